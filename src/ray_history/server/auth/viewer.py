"""Somebody who looks: a name for the log, and which clusters exist for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from ray_history.archive.layout import Cluster
from ray_history.server.http.responses import ApiError

_VIEWER = "ray_history.viewer"
_AT_ONCE = 8


class Hidden(ApiError):
    """Something that is there and does not exist for this viewer: answered exactly as if it were not there."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


@dataclass(frozen=True, slots=True, eq=False)
class Viewer:
    """Who asks."""

    name: str
    sees: Callable[[str, str], Awaitable[bool]]
    """Whether the cluster of this namespace and name exists for them."""

    async def seen(self, clusters: Iterable[Cluster]) -> frozenset[Cluster]:
        """Those of the clusters that exist for them."""
        if self is EVERYBODY:
            return frozenset(clusters)
        by_namespace: dict[str, set[Cluster]] = {}
        for cluster in clusters:
            by_namespace.setdefault(cluster.namespace, set()).add(cluster)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def of_namespace(namespace: str) -> list[Cluster]:
            async with turns:
                return [cluster for cluster in by_namespace[namespace] if await self.sees(namespace, cluster.name)]

        found = await asyncio.gather(*map(of_namespace, by_namespace))
        return frozenset(cluster for some in found for cluster in some)


async def _everything(_namespace: str, _cluster: str) -> bool:
    return True


EVERYBODY = Viewer("anybody", _everything)
"""The viewer of a server that asks nobody who they are."""


def viewer_of(scope: Scope) -> Viewer:
    """Who asks; a request that passed no guard has nobody, and fails."""
    viewer: Viewer = scope[_VIEWER]
    return viewer


def shown_name(scope: Scope) -> str | None:
    """Whose name a page shows; nobody's where nobody is asked, or known."""
    viewer: Viewer | None = scope.get(_VIEWER)
    return None if viewer is None or viewer is EVERYBODY else viewer.name


def is_let_in(scope: Scope) -> bool:
    """Whether whoever asks passed the guard; what is open to all is answered to others too."""
    return _VIEWER in scope


def let_in(scope: Scope, viewer: Viewer, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """The request as everything behind the guard gets it."""
    return {**scope, _VIEWER: viewer, "headers": headers}
