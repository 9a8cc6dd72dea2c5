"""The clusters that run, over all API servers we were told of, and the session that each is in.

A head tells its session's name. So the stored session of a running cluster is told apart from its older ones by name,
and a cluster that was deleted and created again hides none of its past.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.kube import Discovery, Kubernetes, RayCluster

from .heads import HeadClient, HeadUnreachable

logger = logging.getLogger(__name__)

LIVE = "live"
_ASK_AGAIN = 60.0
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that runs, and the API server that knows it."""

    cluster: RayCluster
    kubernetes: Kubernetes

    @property
    def session(self) -> Session:
        """As an entry of the catalog, under the name that stands for whatever session it is in."""
        known = self.cluster
        cluster = Cluster(known.namespace, known.name, known.owner_kind or "", known.owner_name or "")
        return Session(cluster, LIVE, known.created)


@dataclass(frozen=True, slots=True)
class Told:
    """What a head said of itself."""

    head_pod: str
    at: float
    session: str | None = None


class Fleet:
    """All running clusters; none without Kubernetes."""

    def __init__(self, discoveries: Sequence[Discovery] = (), heads: HeadClient | None = None) -> None:
        self._discoveries, self.heads = tuple(discoveries), heads
        self._told: dict[str, Told] = {}
        self._broken: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        for discovery in self._discoveries:
            discovery.on_change = self._changed.set

    @property
    def running(self) -> list[Running]:
        """By namespace and name; where two API servers know the same name, the first one's."""
        found: dict[tuple[str, str], Running] = {}
        for discovery in self._discoveries:
            for cluster in discovery.clusters:
                found.setdefault((cluster.namespace, cluster.name), Running(cluster, discovery.kubernetes))
        return [found[key] for key in sorted(found)]

    def find(self, namespace: str, name: str) -> Running | None:
        for discovery in self._discoveries:
            cluster = discovery.find(namespace, name)
            if cluster is not None:
                return Running(cluster, discovery.kubernetes)
        return None

    def find_owned(self, namespace: str, kind: str, name: str) -> Running | None:
        """The newest cluster of a RayJob or RayService, one whose head is ready if there is one."""
        owned = [
            running
            for running in self.running
            if (running.cluster.namespace, running.cluster.owner_kind, running.cluster.owner_name)
            == (namespace, kind, name)
        ]
        return max(owned, key=lambda r: (bool(r.cluster.head_service), r.cluster.created), default=None)

    @property
    def missing(self) -> list[str]:
        """What is not known of the running clusters, and why."""
        return [*self._broken, *(why for discovery in self._discoveries for why in discovery.missing)]

    @property
    def contacts_heads(self) -> bool:
        """Whether there is Kubernetes to ask at all."""
        return bool(self._discoveries)

    def session_of(self, running: Running) -> str | None:
        """The name of the session that a cluster is in, once its head told it."""
        told = self._told.get(running.cluster.uid)
        return told.session if told and told.head_pod == running.cluster.head_pod else None

    def current(self) -> frozenset[tuple[str, str, str]]:
        """Namespace, cluster and session of those clusters whose head told which it is in."""
        return frozenset(
            (each.cluster.namespace, each.cluster.name, session)
            for each in self.running
            if (session := self.session_of(each)) is not None
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for discovery in self._discoveries:
                group.create_task(discovery.run())
            if self.heads is not None:
                group.create_task(self._keep_asking(self.heads))

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Within the block the clusters are known, sooner or later."""
        task = asyncio.create_task(self._run_or_tell())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self.heads is not None:
                await self.heads.close()
            for discovery in self._discoveries:
                await discovery.kubernetes.close()

    async def _run_or_tell(self) -> None:
        try:
            await self.run()
        except Exception:  # whatever it is, the rest of the server goes on
            logger.exception("running clusters are no longer followed")
            self._broken = ("running clusters are no longer followed; the log says why",)

    async def _keep_asking(self, heads: HeadClient) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)
        while True:
            self._changed.clear()
            running = self.running
            self._told = {r.cluster.uid: self._told[r.cluster.uid] for r in running if r.cluster.uid in self._told}
            await asyncio.gather(*(self._ask(heads, each, turns) for each in running if self._is_due(each)))
            try:
                await asyncio.wait_for(self._changed.wait(), _ASK_AGAIN)
            except TimeoutError:
                continue

    def _is_due(self, running: Running) -> bool:
        told = self._told.get(running.cluster.uid)
        if not running.cluster.head_service:
            return False
        return told is None or told.head_pod != running.cluster.head_pod or time.monotonic() - told.at >= _ASK_AGAIN / 2

    async def _ask(self, heads: HeadClient, running: Running, turns: asyncio.Semaphore) -> None:
        pod = running.cluster.head_pod
        async with turns:
            try:
                told = await heads.version(running)
                self._told[running.cluster.uid] = Told(pod, time.monotonic(), told.session_name)
            except HeadUnreachable as silent:
                logger.info("%s/%s: %s", running.cluster.namespace, running.cluster.name, silent)
                self._told[running.cluster.uid] = Told(pod, time.monotonic(), self.session_of(running))
