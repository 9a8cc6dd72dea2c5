"""Which Ray clusters run: listed once, then watched.

Invariants:
* what was seen last stays known while the API server is silent; `missing` says that it may be old;
* a watch goes on from the last change or bookmark; when that is too old everything is listed again, and what is no
  longer there is gone;
* failures are waited out with growing pauses, each told once in the log, and never reach those who ask.
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
from .ray_clusters import GROUP_VERSION, PLURAL, RayCluster, ray_cluster

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LIST_AGAIN = 15.0
"""Seconds between lists, where watching is not allowed."""
_ALL = ""


class Discovery:
    """The running clusters of one API server, in all namespaces or in some."""

    def __init__(
        self, kubernetes: Kubernetes, namespaces: Iterable[str] = (), first_pause: float = _FIRST_PAUSE
    ) -> None:
        self.kubernetes = kubernetes
        self._scopes = tuple(dict.fromkeys(namespaces)) or (_ALL,)
        self._first_pause = first_pause
        self.on_change: Callable[[], None] = lambda: None
        self._found: dict[str, dict[tuple[str, str], RayCluster]] = {scope: {} for scope in self._scopes}
        self._missing: dict[str, str] = dict.fromkeys(self._scopes, "they were not listed yet")
        self._seen_until: dict[str, str] = dict.fromkeys(self._scopes, "")
        self._pauses: dict[str, float] = dict.fromkeys(self._scopes, first_pause)
        self._listed_only = False
        self.list_again = _LIST_AGAIN
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
        """What is not known of the running clusters, and why; nothing when all is well."""
        where = f"Kubernetes {self.kubernetes.access.name}"
        return [
            f"{where}{f', namespace {scope}' if scope else ''}: {why}"
            for scope, why in list(self._missing.items())
            if why
        ]

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes:
                group.create_task(self._follow(scope))

    async def _follow(self, scope: str) -> None:
        path = resource_path(GROUP_VERSION, PLURAL, scope)
        while True:
            wait = self._first_pause
            try:
                if not self._seen_until[scope]:
                    await self._list(scope, path)
                await self._watch(scope, path)
            except Gone:
                self._seen_until[scope] = ""
            except KubeError as error:
                self._failed(scope, error)
                if isinstance(error, Denied | NotFound):
                    self._seen_until[scope] = ""
                wait = self._pauses[scope]
                self._pauses[scope] = min(wait * 2, _LONGEST_PAUSE)
            await asyncio.sleep(wait * (0.5 + random.random()))  # noqa: S311  # not all replicas at once

    async def _watch(self, scope: str, path: str) -> None:
        """Until the API server ends it; one that may be listed only (KubeRay's role) is listed again and again."""
        try:
            async with aclosing(self.kubernetes.watch(path, self._seen_until[scope])) as changes:
                async for change in changes:
                    self._apply(scope, change.kind, change.thing)
                    self._seen_until[scope] = change.resource_version or self._seen_until[scope]
                    self._well(scope)
        except Denied as error:
            if error.status != 403:
                raise
            if not self._listed_only:
                logger.info("%s: listed every %g s: %s", self.kubernetes.access.name, self.list_again, error)
            self._listed_only = True
            self._seen_until[scope] = ""
            await asyncio.sleep(self.list_again)

    async def _list(self, scope: str, path: str) -> None:
        listing = await self.kubernetes.list(path)
        found = {}
        for thing in listing.items:
            cluster = ray_cluster(thing)
            if cluster is not None:
                found[cluster.namespace, cluster.name] = cluster
        self._found[scope] = found
        self.lists += 1
        self._seen_until[scope] = listing.resource_version
        self._well(scope)
        self.on_change()

    def _apply(self, scope: str, kind: str, thing: dict[str, Any]) -> None:
        cluster = ray_cluster(thing)
        if kind == "BOOKMARK" or cluster is None:
            return
        if kind == "DELETED":
            self._found[scope].pop((cluster.namespace, cluster.name), None)
        else:
            self._found[scope][cluster.namespace, cluster.name] = cluster
        self.on_change()

    def _well(self, scope: str) -> None:
        self._missing[scope], self._pauses[scope] = "", self._first_pause

    def _failed(self, scope: str, error: KubeError) -> None:
        match error:
            case Denied():
                why = f"running clusters may not be listed: {error}"
            case NotFound():
                why = f"it knows no RayClusters, KubeRay seems not to be installed: {error}"
            case _:
                why = f"running clusters are as last seen: {error}"
        if self._missing[scope] != why:
            logger.warning("%s: %s", self.kubernetes.access.name, why)
        self._missing[scope] = why
