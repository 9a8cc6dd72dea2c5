"""The viewer of a request: a name for the log, and the clusters that they may see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from ray_history.archive.layout import Cluster
from ray_history.server.http.responses import ApiError

_VIEWER = "ray_history.viewer"
_MAX_CONCURRENT = 8


class Hidden(ApiError):
    """Something that the viewer may not see. The answer is the same as if it did not exist."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


@dataclass(frozen=True, slots=True, eq=False)
class Viewer:
    name: str
    can_see: Callable[[str, str], Awaitable[bool]]
    """Whether they may see the cluster with this namespace and name."""

    async def visible(self, clusters: Iterable[Cluster]) -> frozenset[Cluster]:
        """Those of the clusters that they may see."""
        if self is EVERYBODY:
            return frozenset(clusters)
        by_namespace: dict[str, set[Cluster]] = {}
        for cluster in clusters:
            by_namespace.setdefault(cluster.namespace, set()).add(cluster)
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

        async def visible_in(namespace: str) -> list[Cluster]:
            async with semaphore:
                return [cluster for cluster in by_namespace[namespace] if await self.can_see(namespace, cluster.name)]

        found = await asyncio.gather(*map(visible_in, by_namespace))
        return frozenset(cluster for clusters_of_one in found for cluster in clusters_of_one)


async def _everything(_namespace: str, _cluster: str) -> bool:
    return True


EVERYBODY = Viewer("anybody", _everything)
"""The viewer of all requests to a server without authentication."""


def viewer_of(scope: Scope) -> Viewer:
    """The viewer of a request; a KeyError if it did not pass the guard."""
    viewer: Viewer = scope[_VIEWER]
    return viewer


def display_name(scope: Scope) -> str | None:
    """The name that pages show; None without authentication."""
    viewer: Viewer | None = scope.get(_VIEWER)
    return None if viewer is None or viewer is EVERYBODY else viewer.name


def is_authenticated(scope: Scope) -> bool:
    """Whether the request passed the guard; open paths are answered to others, too."""
    return _VIEWER in scope


def with_viewer(scope: Scope, viewer: Viewer, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """The scope as everything behind the guard gets it."""
    return {**scope, _VIEWER: viewer, "headers": headers}
