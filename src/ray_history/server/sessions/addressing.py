"""Which session a request is about: by its path, or by the cookies of a browser that entered one.

The cookie way is KubeRay's: `/clusters` lists, `/enter_cluster/…` sets five cookies for ten minutes, every later
request renews them. Its JSON and messages are kept to the letter; both ways lead to the same routes.
"""

from __future__ import annotations

import threading
import time

from starlette.concurrency import run_in_threadpool

from ray_history.archive.catalog import Catalog, Session, read_catalog
from ray_history.archive.stores import Store
from ray_history.server.auth import EVERYBODY, Hidden, Viewer
from ray_history.server.http.responses import ApiError


class SessionCatalog:
    """The sessions of the archive as somebody sees them, listed anew when the list is some seconds old.

    This is the only way to a session, and it asks who looks: what they may not see is answered as if it were not there.
    """

    def __init__(self, store: Store, fresh_for: float = 5.0) -> None:
        self._store, self._fresh_for = store, fresh_for
        self._lock = threading.Lock()
        self._listed = float("-inf")
        self._catalog = Catalog(())

    async def read(self, viewer: Viewer) -> Catalog:
        """All that there is for them."""
        return await self._seen(viewer, await self._listing())

    async def find(self, viewer: Viewer, namespace: str, cluster: str, session: str) -> Session:
        what = f"{namespace}/{cluster}/{session}"
        if not await viewer.sees(namespace, cluster):  # asked before looking: it takes as long when there is nothing
            raise Hidden(_missing(what))
        return _first((await self._listing()).find(namespace, cluster, session), what)

    async def find_owned(self, viewer: Viewer, namespace: str, kind: str, name: str, session: str) -> Session:
        """By the owner of the cluster: a RayJob or RayService."""
        catalog = (await self._listing()).find(namespace, None, None)
        owned = tuple(
            entry
            for entry in catalog.sessions
            if (entry.cluster.owner_kind or "").lower() == kind and entry.cluster.owner_name == name
        )
        what = f"{namespace}/{kind}/{name}/{session}"
        seen = await self._seen(viewer, Catalog(owned))
        if owned and not seen.sessions:
            raise Hidden(_missing(what))
        return _first(seen.find(None, None, session), what)

    async def _seen(self, viewer: Viewer, catalog: Catalog) -> Catalog:
        if viewer is EVERYBODY:
            return catalog
        seen = await viewer.seen(entry.cluster for entry in catalog.sessions)
        return Catalog(tuple(entry for entry in catalog.sessions if entry.cluster in seen))

    async def _listing(self) -> Catalog:
        if self._is_fresh():  # every request comes by here: most need no thread
            return self._catalog
        return await run_in_threadpool(self.everything)

    def everything(self) -> Catalog:
        """For the server's own work, whoever looks."""
        with self._lock:
            if not self._is_fresh():
                self._catalog = read_catalog(self._store)
                self._listed = time.monotonic()
            return self._catalog

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._listed <= self._fresh_for

    def known(self) -> Catalog:
        """What the last listing found, without another."""
        return self._catalog


def _missing(what: str) -> str:
    return f"there is no session {what}; /clusters lists what there is"


def _first(found: Catalog, what: str) -> Session:
    if not found.sessions:
        raise ApiError(404, _missing(what))
    return found.sessions[0]
