"""The running clusters of all API servers, and the session that each is in.

Heads report the names of their sessions. By that name the stored session of a running cluster is distinguished from its
older ones, and a cluster that was deleted and created again hides none of its past.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ray_history.kube import Discovery

from .heads import HeadClient, HeadUnreachable
from .running import RunningCluster

logger = logging.getLogger(__name__)

_POLL_INTERVAL = 60.0
_MAX_CONCURRENT = 8


@dataclass(frozen=True, slots=True)
class _HeadReport:
    """The session that a head reported."""

    head_pod: str
    at: float
    session: str | None = None


class Fleet:
    """All running clusters; none without Kubernetes."""

    def __init__(self, discoveries: Sequence[Discovery] = (), heads: HeadClient | None = None) -> None:
        self._discoveries, self.heads = tuple(discoveries), heads
        self._reports: dict[str, _HeadReport] = {}
        """By the UID of the cluster."""
        self._failure: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        for discovery in self._discoveries:
            discovery.on_change = self._changed.set

    @property
    def running(self) -> list[RunningCluster]:
        """Sorted by namespace and name. If two API servers report the same name, the first one's cluster."""
        return [each for each in self._clusters() if not each.cluster.is_suspended]

    @property
    def suspended(self) -> list[RunningCluster]:
        """Those that have no head until they are resumed."""
        return [each for each in self._clusters() if each.cluster.is_suspended]

    def _clusters(self) -> list[RunningCluster]:
        found: dict[tuple[str, str], RunningCluster] = {}
        for discovery in self._discoveries:
            for cluster in discovery.clusters:
                found.setdefault((cluster.namespace, cluster.name), RunningCluster(cluster, discovery.kubernetes))
        return [found[key] for key in sorted(found)]

    def find(self, namespace: str, name: str) -> RunningCluster | None:
        for discovery in self._discoveries:
            cluster = discovery.find(namespace, name)
            if cluster is not None:
                return RunningCluster(cluster, discovery.kubernetes)
        return None

    def find_owned(self, namespace: str, kind: str, name: str) -> RunningCluster | None:
        """The newest cluster of a RayJob or RayService, preferably one whose head is ready."""
        owned = [
            running
            for running in self._clusters()
            if (running.cluster.namespace, running.cluster.owner_kind, running.cluster.owner_name)
            == (namespace, kind, name)
        ]
        return max(
            owned,
            key=lambda r: (not r.cluster.is_suspended, bool(r.cluster.head_service), r.cluster.created),
            default=None,
        )

    @property
    def missing(self) -> list[str]:
        """Why the list of running clusters may be incomplete or out of date; empty if it is not."""
        return [*self._failure, *(reason for discovery in self._discoveries for reason in discovery.missing)]

    @property
    def has_kubernetes(self) -> bool:
        return bool(self._discoveries)

    def session_of(self, running: RunningCluster) -> str | None:
        """The name of the session that a cluster is in; None until its head reported it."""
        report = self._reports.get(running.cluster.uid)
        return report.session if report and report.head_pod == running.cluster.head_pod else None

    def current(self) -> frozenset[tuple[str, str, str]]:
        """Namespace, cluster and session of the clusters whose heads reported a session."""
        return frozenset(
            (each.cluster.namespace, each.cluster.name, session)
            for each in self.running
            if (session := self.session_of(each)) is not None
        )

    async def run(self) -> None:
        """Follow the clusters and poll their heads until cancelled."""
        async with asyncio.TaskGroup() as group:
            for discovery in self._discoveries:
                group.create_task(discovery.run())
            if self.heads is not None:
                group.create_task(self._poll_heads(self.heads))

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Follow the clusters in the background, and close all connections at the end."""
        task = asyncio.create_task(self._run_and_report_failure())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self.heads is not None:
                await self.heads.close()
            for discovery in self._discoveries:
                await discovery.kubernetes.close()

    async def _run_and_report_failure(self) -> None:
        try:
            await self.run()
        except Exception:  # the rest of the server does not depend on it
            logger.exception("running clusters are no longer followed")
            self._failure = ("running clusters are no longer followed; see the server log",)

    async def _poll_heads(self, heads: HeadClient) -> None:
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT)
        while True:
            self._changed.clear()
            running = self.running
            uids = {each.cluster.uid for each in running}
            self._reports = {uid: report for uid, report in self._reports.items() if uid in uids}
            heads.forget_all_but(uids)
            await asyncio.gather(*(self._poll_head(heads, each, semaphore) for each in running if self._is_due(each)))
            try:
                await asyncio.wait_for(self._changed.wait(), _POLL_INTERVAL)
            except TimeoutError:
                continue

    def _is_due(self, running: RunningCluster) -> bool:
        report = self._reports.get(running.cluster.uid)
        if not running.cluster.head_service:
            return False
        if report is None or report.head_pod != running.cluster.head_pod:
            return True
        return time.monotonic() - report.at >= _POLL_INTERVAL / 2

    async def _poll_head(self, heads: HeadClient, running: RunningCluster, semaphore: asyncio.Semaphore) -> None:
        pod = running.cluster.head_pod
        async with semaphore:
            try:
                version = await heads.version(running)
                session = version.session_name
            except HeadUnreachable as error:
                logger.info("%s: %s", running.name, error)
                session = self.session_of(running)
            self._reports[running.cluster.uid] = _HeadReport(pod, time.monotonic(), session)
