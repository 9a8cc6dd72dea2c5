"""Ray Data and Ray Serve after death: a pipeline that ended and an application that served, as the dashboard told.

Serve never falls silent (it asks its replicas for their health each second), so what is compared is what two live
answers some seconds apart agree on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.server.app import AppConfig
from tests.collector.collector_process import CollectorProcess
from tests.history.living import ENDED, KEYS, Rows, differences, has_status, keyed, listings, submit
from tests.server.serving import Served, served
from tests.support.processes import port_for_later
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]

POLL_SECONDS = 2


@dataclass(frozen=True)
class Lived:
    """Two looks at a living cluster, and the server that shows it dead."""

    looks: tuple[dict[str, Any], dict[str, Any]]
    server: Served
    base: str

    def lasting(self, table: str) -> Rows:
        """The rows that did not change between the looks, of what had ended where that is a matter of ending."""
        first, second = (look[table] for look in self.looks)
        over = ENDED.get(table)
        state = "status" if table == "jobs" else "state"
        return {
            key: row for key, row in first.items() if second.get(key) == row and (over is None or row[state] in over)
        }

    def rebuilt(self, table: str) -> Rows:
        answer = self.server.get(f"{self.base}/api/v0/{table}?detail=1&limit=100000&exclude_driver=false&raw=true")
        return keyed(table, answer.rows)


def look(cluster: RayCluster) -> dict[str, Any]:
    found: dict[str, Any] = dict(listings(cluster))
    found["serve"] = cluster.get("/api/serve/applications/")
    job = next(row["job_id"] for row in found["jobs"].values() if row["submission_id"] == "pipeline")
    found["datasets"] = cluster.get(f"/api/data/datasets/{job}")
    found["data job"] = job
    return found


def serves(cluster: RayCluster) -> bool:
    """Whether the application has answered; fails at once, with its log, if its job has."""
    has_status(cluster, "serves", "RUNNING")
    return (cluster.root / "serves.ready").exists()


@pytest.fixture(scope="module")
def lived(real_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    folder = tmp_path_factory.mktemp("libraries")
    store = open_store(resolve((folder / "archive").as_uri(), Upstream(), {}))
    cluster = RayCluster()
    with ExitStack() as stack:
        stack.callback(cluster.remove)
        collector = stack.enter_context(
            CollectorProcess(
                folder / "head",
                store.url,
                f"--ray-tmp-root={cluster.root}",
                "--role=Head",
                f"--ray-dashboard-address={cluster.dashboard}",
                f"--poll-interval={POLL_SECONDS}s",
            )
        )
        cluster.start_head(collector.port, cpus=4)
        submit(cluster, "serves", "serves", SERVE_PORT=str(port_for_later()))
        submit(cluster, "data", "pipeline")
        until(partial(serves, cluster), "the application serves")
        until(lambda: has_status(cluster, "pipeline", "SUCCEEDED"), "the pipeline has ended")
        first = look(cluster)
        time.sleep(3 * POLL_SECONDS)  # asked by the collector in between
        looks = (first, look(cluster))
        (folder / "live.json").write_text(json.dumps(looks, indent=1))  # for whoever looks into a failure
        session = cluster.session.name
        cluster.kill()
        collector.end()
        server = stack.enter_context(served(store, folder / "cache", AppConfig(redact=False)))
        yield Lived(looks, server, f"/s/default/oracle/{session}")


@pytest.mark.parametrize("table", sorted(KEYS.keys() - {"placement_groups"}))
def test_what_lasted_is_what_was_shown(lived: Lived, table: str) -> None:
    live = lived.lasting(table)
    assert live, "nothing lasted"
    rebuilt = {key: row for key, row in lived.rebuilt(table).items() if key in live}
    found = [
        f"{table} {key} ({one.get('name')}): {field}\n  live    {one.get(field)}\n  rebuilt {other.get(field)}"
        for key, field, one, other in differences(live, rebuilt)
    ]
    assert not found, "\n".join(found)


def test_the_pipeline_is_told_by_its_operators(lived: Lived) -> None:
    live = lived.looks[1]["datasets"]
    assert [dataset["state"] for dataset in live["datasets"]]
    assert lived.server.get(f"{lived.base}/api/data/datasets/{lived.looks[1]['data job']}").json == live


def test_the_application_is_told_with_its_replicas(lived: Lived) -> None:
    first, second = (look["serve"] for look in lived.looks)
    assert first["applications"]["greets"]["status"] == "RUNNING"
    assert len(first["applications"]["greets"]["deployments"]["Doubles"]["replicas"]) == 2
    told = lived.server.get(f"{lived.base}/api/serve/applications/?raw=1").json
    assert common(told, common(first, second)) == common(first, second)


def common(one: Any, other: Any) -> Any:
    """What both say alike."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: common(one[key], other[key]) for key in one if key in other and alike(one[key], other[key])}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [common(*pair) for pair in zip(one, other, strict=True)]
    return one if one == other else None


def alike(one: Any, other: Any) -> bool:
    return isinstance(one, (dict, list)) or one == other
