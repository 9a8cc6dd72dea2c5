"""The sessions of the archive, as a viewer may see them."""

from __future__ import annotations

import threading
import time

from starlette.concurrency import run_in_threadpool

from ray_history.archive.catalog import Catalog, Session, read_catalog
from ray_history.archive.stores import Store
from ray_history.server.auth import EVERYBODY, Hidden, Viewer
from ray_history.server.http.responses import ApiError


class SessionCatalog:
    """The list of sessions, read again when it is some seconds old.

    Every request finds its session here, and only for a viewer: one that they may not see is treated as if it did not
    exist.
    """

    def __init__(self, store: Store, fresh_for: float = 5.0) -> None:
        self._store, self._fresh_for = store, fresh_for
        self._lock = threading.Lock()
        self._listed = float("-inf")
        self._catalog = Catalog(())

    async def read(self, viewer: Viewer) -> Catalog:
        """All sessions that the viewer may see."""
        return await self._visible(viewer, await self._listing())

    async def find(self, viewer: Viewer, namespace: str, cluster: str, session: str) -> Session:
        address = f"{namespace}/{cluster}/{session}"
        if not await viewer.can_see(namespace, cluster):  # before the lookup: timing does not reveal what exists
            raise Hidden(_missing(address))
        return _first((await self._listing()).find(namespace, cluster, session), address)

    async def find_owned(self, viewer: Viewer, namespace: str, kind: str, name: str, session: str) -> Session:
        """Find a session by the owner of its cluster: a RayJob or RayService."""
        catalog = (await self._listing()).find(namespace, None, None)
        owned = tuple(
            entry
            for entry in catalog.sessions
            if (entry.cluster.owner_kind or "").lower() == kind and entry.cluster.owner_name == name
        )
        address = f"{namespace}/{kind}/{name}/{session}"
        visible = await self._visible(viewer, Catalog(owned))
        if owned and not visible.sessions:
            raise Hidden(_missing(address))
        return _first(visible.find(None, None, session), address)

    async def _visible(self, viewer: Viewer, catalog: Catalog) -> Catalog:
        if viewer is EVERYBODY:
            return catalog
        visible = await viewer.visible(entry.cluster for entry in catalog.sessions)
        return Catalog(tuple(entry for entry in catalog.sessions if entry.cluster in visible))

    async def _listing(self) -> Catalog:
        if self._is_fresh():  # saves most requests a thread
            return self._catalog
        return await run_in_threadpool(self.everything)

    def everything(self) -> Catalog:
        """All sessions, for work that no viewer requested."""
        with self._lock:
            if not self._is_fresh():
                self._catalog = read_catalog(self._store)
                self._listed = time.monotonic()
            return self._catalog

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._listed <= self._fresh_for

    def cached(self) -> Catalog:
        """The last listing, however old."""
        return self._catalog


def _missing(address: str) -> str:
    return f"there is no session {address}; see /clusters for a list"


def _first(found: Catalog, address: str) -> Session:
    if not found.sessions:
        raise ApiError(404, _missing(address))
    return found.sessions[0]
