"""The web application: which path leads where.

The whole dashboard of a session stands below `/s/{namespace}/{cluster}/{session}/`, and, for the session that a browser
entered by cookie, below `/`. Both lead to the same routes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from ray_history.archive.catalog import Catalog, Session, read_catalog
from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores import Store

from . import listing
from .answers import Refused, refusal
from .handling import Handler, SessionEndpoint, refused_by_archive
from .sessions import Sessions

journal = logging.getLogger(__name__)


@dataclass(eq=False)
class SessionCatalog:
    """The sessions of the archive, listed anew when the list is some seconds old."""

    store: Store
    fresh_for: float = 5.0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listed = -1e9
        self._catalog = Catalog(())

    def read(self) -> Catalog:
        with self._lock:
            if time.monotonic() - self._listed > self.fresh_for:
                self._catalog = read_catalog(self.store)
                self._listed = time.monotonic()
            return self._catalog

    def find(self, namespace: str, cluster: str, session: str) -> Session:
        found = self.read().find(namespace, cluster, session).sessions
        if not found:
            raise Refused(404, f"there is no session {namespace}/{cluster}/{session}; /clusters lists what there is")
        return found[0]


HANDLERS: dict[str, Handler] = {**listing.HANDLERS}
"""Every path of a session's dashboard."""


def session_routes(sessions: Sessions, *, redact: bool) -> list[BaseRoute]:
    return [
        Route(path, SessionEndpoint(sessions, handler, redact), methods=["GET", "HEAD"])
        for path, handler in HANDLERS.items()
    ]


def make_app(sessions: Sessions, *, redact: bool = True) -> Starlette:
    catalog = SessionCatalog(sessions.indexer.store)
    dashboard = Starlette(routes=session_routes(sessions, redact=redact))

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        names = scope["path_params"]
        try:
            session = await run_in_threadpool(catalog.find, names["namespace"], names["cluster"], names["session"])
        except Refused as refused:
            await refusal(refused)(scope, receive, send)
            return
        except ArchiveError as error:
            await refusal(refused_by_archive(error))(scope, receive, send)
            return
        scope["ray_history.session"] = session
        await dashboard(scope, receive, send)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(sessions.close)

    return Starlette(routes=[Mount("/s/{namespace}/{cluster}/{session}", app=by_path)], lifespan=lifespan)
