"""An API server, the stand-in or a real one, with a namespace for the test."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ray_history.kube import Kubernetes, from_kubeconfig, resource_path
from tests.support.kube_stand_in import KubeStandIn

T = TypeVar("T")


@dataclass
class World:
    """An API server with a namespace for the test."""

    kubeconfig: Path
    namespace: str
    stand_in: KubeStandIn | None = None

    def kubernetes(self, **how: Any) -> Kubernetes:
        return Kubernetes(from_kubeconfig([self.kubeconfig]), **how)

    def ask(self, question: Any) -> Any:
        """Run `question(kubernetes)` in its own event loop."""

        async def run() -> Any:
            kubernetes = self.kubernetes()
            try:
                return await question(kubernetes)
            finally:
                await self.close(kubernetes)

        return asyncio.run(run())

    async def close(self, kubernetes: Kubernetes) -> None:
        await kubernetes.close()
        if self.stand_in is None:
            await asyncio.sleep(0.1)  # lets TLS connections shut down

    def create(self, cluster: dict[str, Any]) -> None:
        path = resource_path("ray.io/v1", "rayclusters", self.namespace)
        status = cluster.pop("status")

        async def do(kubernetes: Kubernetes) -> None:
            made = await kubernetes._answer("POST", path, body=cluster)
            if self.stand_in is not None:
                self.stand_in.put("RayCluster", {**made, "status": status})
            else:
                made["status"] = status
                await kubernetes._answer("PUT", f"{path}/{made['metadata']['name']}/status", body=made)

        self.ask(do)

    def delete(self, name: str) -> None:
        path = resource_path("ray.io/v1", "rayclusters", self.namespace, name)
        self.ask(lambda kubernetes: kubernetes._answer("DELETE", path))


@contextmanager
def stand_in_world(folder: Path) -> Iterator[World]:
    with KubeStandIn().running() as server:
        file = folder / "kubeconfig"
        file.write_text(server.kubeconfig())
        yield World(file, "team", server)


@contextmanager
def real_world(kubeconfig: Path) -> Iterator[World]:
    world = World(kubeconfig, f"ray-history-test-{secrets.token_hex(4)}")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}}
    world.ask(lambda kubernetes: kubernetes._answer("POST", "/api/v1/namespaces", body=body))
    try:
        yield world
    finally:
        world.ask(lambda kubernetes: kubernetes._answer("DELETE", f"/api/v1/namespaces/{world.namespace}"))


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """A generous time limit, for what would otherwise hang."""
    return await asyncio.wait_for(work, seconds)
