"""A server with an API server and a head, both stand-ins, for tests of running clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray_history.archive.stores import Store
from ray_history.kube import Discovery, HeadResolver, Kubernetes, from_kubeconfig
from ray_history.server.app import AppConfig
from ray_history.server.live import Fleet, HeadClient
from tests.server.serving import Served, served
from tests.support.kube_stand_in import KubeStandIn
from tests.support.waiting import until

from .head_stand_in import HeadStandIn


@dataclass
class Place:
    """A server, an API server, and the head of `default/demo`."""

    server: Served
    kube: KubeStandIn
    head: HeadStandIn
    client: HeadClient | None

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.server.get("/clusters").json
        return rows

    def passed_on(self) -> list[tuple[str, str, dict[str, str]]]:
        """The requests to the head, except for those that poll its version in the background."""
        return [asked for asked in self.head.requests if asked[1] != "/api/version"]

    def until_known(self) -> None:
        until(lambda: any(row["sessionName"] == "live" for row in self.rows()), "the cluster is listed as live")


@contextmanager
def place(
    store: Store, folder: Path, *, heads: bool = True, choices: dict[str, Any] | None = None, **ways: Any
) -> Iterator[Place]:
    with KubeStandIn().running() as kube, HeadStandIn().running() as head:
        (folder / "kubeconfig").write_text(kube.kubeconfig())
        kube.backends["default", "demo-head-svc"] = head.address
        ways.setdefault("address", lambda _: f"http://{head.address}")
        discovery = Discovery(Kubernetes(from_kubeconfig([folder / "kubeconfig"])), first_pause=0.05)
        discovery.list_again = 0.05
        client = HeadClient(HeadResolver(**ways)) if heads else None
        fleet = Fleet([discovery], client)
        with served(store, folder / "cache", AppConfig(fleet=fleet, **(choices or {}))) as server:
            yield Place(server, kube, head, client)
