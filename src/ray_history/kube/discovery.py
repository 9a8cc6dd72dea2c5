"""The running Ray clusters: listed once, then watched.

Invariants:
* while the API server does not answer, the last known clusters are kept; `missing` says that they may be out of date;
* a watch continues from the last change or bookmark. If that is too old everything is listed again, and clusters that
  are no longer listed are removed;
* after failures it pauses, each time for longer. Each failure is logged once, and none is raised.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any

from .client import Kubernetes, resource_path
from .errors import Denied, Gone, KubeError, NotFound
from .ray_clusters import GROUP_VERSION, PLURAL, RayCluster, parse_ray_cluster

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LIST_INTERVAL = 15.0
"""Seconds between lists if watching is not allowed."""
_ALL_NAMESPACES = ""


class Discovery:
    """The running clusters of one API server, in all namespaces or in some."""

    def __init__(
        self, kubernetes: Kubernetes, namespaces: Iterable[str] = (), first_pause: float = _FIRST_PAUSE
    ) -> None:
        self.kubernetes = kubernetes
        self._scopes = tuple(dict.fromkeys(namespaces)) or (_ALL_NAMESPACES,)
        self._first_pause = first_pause
        self.on_change: Callable[[], None] = lambda: None
        self._found: dict[str, dict[tuple[str, str], RayCluster]] = {scope: {} for scope in self._scopes}
        self._missing: dict[str, str] = dict.fromkeys(self._scopes, "not listed yet")
        self._versions: dict[str, str] = dict.fromkeys(self._scopes, "")
        self._pauses: dict[str, float] = dict.fromkeys(self._scopes, first_pause)
        self._listed_only = False
        self.list_interval = _LIST_INTERVAL
        self.lists = 0
        """How often everything was listed."""

    @property
    def clusters(self) -> list[RayCluster]:
        return [cluster for found in list(self._found.values()) for cluster in list(found.values())]

    def find(self, namespace: str, name: str) -> RayCluster | None:
        for found in list(self._found.values()):
            if (namespace, name) in found:
                return found[namespace, name]
        return None

    @property
    def missing(self) -> list[str]:
        """Why the list may be incomplete or out of date; empty if it is not."""
        where = f"Kubernetes {self.kubernetes.access.name}"
        return [
            f"{where}{f', namespace {scope}' if scope else ''}: {reason}"
            for scope, reason in list(self._missing.items())
            if reason
        ]

    async def run(self) -> None:
        """Follow the clusters until cancelled."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes:
                group.create_task(self._follow(scope))

    async def _follow(self, scope: str) -> None:
        path = resource_path(GROUP_VERSION, PLURAL, scope)
        while True:
            wait = self._first_pause
            try:
                if not self._versions[scope]:
                    await self._list(scope, path)
                await self._watch(scope, path)
            except Gone:
                self._versions[scope] = ""
            except KubeError as error:
                self._failed(scope, error)
                if isinstance(error, Denied | NotFound):
                    self._versions[scope] = ""
                wait = self._pauses[scope]
                self._pauses[scope] = min(wait * 2, _LONGEST_PAUSE)
            await asyncio.sleep(wait * (0.5 + random.random()))  # noqa: S311  # so that replicas do not retry in step

    async def _watch(self, scope: str, path: str) -> None:
        """Apply changes until the API server ends the watch; list again if watching is denied, as in KubeRay's role."""
        try:
            async with aclosing(self.kubernetes.watch(path, self._versions[scope])) as changes:
                async for change in changes:
                    self._apply(scope, change.kind, change.object)
                    self._versions[scope] = change.resource_version or self._versions[scope]
                    self._succeeded(scope)
        except Denied as error:
            if error.status != 403:
                raise
            if not self._listed_only:
                logger.info(
                    "%s: watching is not allowed, listing every %g s: %s",
                    self.kubernetes.access.name,
                    self.list_interval,
                    error,
                )
            self._listed_only = True
            self._versions[scope] = ""
            await asyncio.sleep(self.list_interval)

    async def _list(self, scope: str, path: str) -> None:
        listing = await self.kubernetes.list(path)
        found = {}
        for item in listing.items:
            cluster = parse_ray_cluster(item)
            if cluster is not None:
                found[cluster.namespace, cluster.name] = cluster
        self._found[scope] = found
        self.lists += 1
        self._versions[scope] = listing.resource_version
        self._succeeded(scope)
        self.on_change()

    def _apply(self, scope: str, kind: str, body: dict[str, Any]) -> None:
        cluster = parse_ray_cluster(body)
        if kind == "BOOKMARK" or cluster is None:
            return
        if kind == "DELETED":
            self._found[scope].pop((cluster.namespace, cluster.name), None)
        else:
            self._found[scope][cluster.namespace, cluster.name] = cluster
        self.on_change()

    def _succeeded(self, scope: str) -> None:
        self._missing[scope], self._pauses[scope] = "", self._first_pause

    def _failed(self, scope: str, error: KubeError) -> None:
        match error:
            case Denied():
                reason = f"not allowed to list running clusters: {error}"
            case NotFound():
                reason = f"there is no RayCluster resource, KubeRay does not seem to be installed: {error}"
            case _:
                reason = f"running clusters may be out of date: {error}"
        if self._missing[scope] != reason:
            logger.warning("%s: %s", self.kubernetes.access.name, reason)
        self._missing[scope] = reason
