"""The web application: which path leads where.

The whole dashboard of a session stands below `/s/{namespace}/{cluster}/{session}/`, and, for the session that a browser
entered by cookie, below `/`. Both lead to the same routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.layout import Cluster
from ray_history.server.api import misc
from ray_history.server.api.kuberay import Addressing
from ray_history.server.api.metrics import metrics
from ray_history.server.api.openapi import document
from ray_history.server.completeness import status
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.http.middleware import Plumbing
from ray_history.server.http.response_cache import ResponseCache
from ray_history.server.http.responses import ApiError, error_response, plain_json
from ray_history.server.http.shutdown import KEY as ENDING
from ray_history.server.http.shutdown import shutdown_event
from ray_history.server.logs.job_tail import JobTail
from ray_history.server.routes import ROUTES
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.endpoint import Handler, SessionEndpoint, refused_by_archive, with_and_without_slash
from ray_history.server.sessions.manager import Sessions
from ray_history.server.sessions.overview import OverviewCache
from ray_history.server.sessions.prebuild import IndexAhead
from ray_history.server.sessions.routes import forwarded_paths
from ray_history.server.ui.bars import dashboard_page, live_page
from ray_history.server.ui.errors import render_error
from ray_history.server.ui.home.page import Front, Home
from ray_history.server.ui.home.session_list import ArchiveSource, RunningSource, SessionList
from ray_history.server.ui.opening import OpeningPage
from ray_history.server.ui.render import STATIC_PREFIX, Site, page, static_file
from ray_history.server.ui.session.page import session_page

from .auth import Guard, Hidden, Login, Mode, Nobody, viewer_of
from .auth.audit import told
from .live import LIVE, Fleet, LiveView, live_routes

logger = logging.getLogger(__name__)

_ANSWERS = 128 << 20
"""Bytes of answers kept per process."""


@dataclass(frozen=True, slots=True)
class AppConfig:
    """What the operator chose about the web side."""

    redact: bool = True
    dashboards: tuple[Path, ...] = ()
    base_path: str = ""
    secure_cookies: bool = False
    auth: Mode = field(default_factory=Nobody)
    fleet: Fleet = field(default_factory=Fleet)
    index_ahead: int = 0
    """How many of the newest sessions are indexed before anybody asks."""
    worker: str = ""
    """Which process of the server this is, if there are several."""


def make_app(sessions: Sessions, choices: AppConfig = AppConfig()) -> ASGIApp:  # noqa: B008  # frozen
    """The whole application."""
    frontends, fleet = Frontends(choices.dashboards), choices.fleet
    sessions.running = fleet.current
    dashboard = Router(_session_routes(sessions, frontends, redact=choices.redact))
    catalog = SessionCatalog(sessions.indexer.store)
    shown = live_page(frontends, catalog)
    heads = (
        Router(live_routes(fleet.heads, frontends, shown, forwarded_paths(ROUTES), redact=choices.redact))
        if fleet.heads
        else None
    )
    live = LiveView(fleet, catalog, sessions, heads, dashboard)
    addressing = Addressing(catalog, live, choices.secure_cookies, choices.base_path)
    below = [*dashboard.routes, *(heads.routes if heads else ())]

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        names = scope["path_params"]
        if names["session"] == LIVE:
            await live(names["namespace"], names["cluster"], scope, receive, send)
            return
        scope["ray_history.session"] = await catalog.find(
            viewer_of(scope), names["namespace"], names["cluster"], names["session"]
        )
        await dashboard(scope, receive, send)

    async def by_cookie(scope: Scope, receive: Receive, send: Send) -> None:
        session = await addressing.by_cookies(viewer_of(scope), HTTPConnection(scope).cookies)
        scope["ray_history.session"] = session
        remembering = _remembering(addressing, session, send)
        if session.name == LIVE:
            await live(session.cluster.namespace, session.cluster.name, scope, receive, remembering)
        else:
            await dashboard(scope, receive, remembering)

    indexer = sessions.indexer
    known = OverviewCache(indexer.store, indexer.summaries, indexer.cache.root / "summaries")
    archived = ArchiveSource(addressing.catalog, known, redact=choices.redact, running=fleet.current)
    session_list = SessionList([RunningSource(fleet, addressing.catalog), archived])
    home = Home(session_list, fleet)

    def is_idle() -> bool:
        return plumbing.running == 0

    ahead = IndexAhead(indexer, addressing.catalog, known, choices.index_ahead, is_idle)

    async def counted(_: Request) -> Response:
        return await run_in_threadpool(metrics, plumbing, sessions, fleet, choices.worker)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, asyncio.Event]]:
        ahead.start()
        async with fleet.followed():
            with shutdown_event() as ending:
                yield {ENDING: ending}
        await run_in_threadpool(ahead.stop)
        await run_in_threadpool(session_list.close)
        await choices.auth.close()
        await run_in_threadpool(sessions.close)

    routes: list[BaseRoute] = [
        *(Route(path, _alive) for path in ("/livez", "/readz", "/healthz")),
        *Login(choices.auth, page, choices.base_path, secure=choices.secure_cookies).routes(),
        Route("/metrics", counted),
        Route(STATIC_PREFIX + "/{name}", static_file),
        # A Ray that shows a session as its own asks below that for what the bar needs.
        Route("/s/{namespace}/{cluster}/{session}" + STATIC_PREFIX + "/{name}", static_file),
        *(Route(path, home) for path in ("/select_cluster", "/select_cluster/")),
        Route("/", Front(home, by_cookie)),
        Route("/clusters", addressing.clusters),
        Route("/clusters/", addressing.clusters),
        Route("/enter_cluster/{rest:path}", addressing.enter),
        Route("/s/{namespace}/{cluster}/{session}", _with_slash),
        Mount("/s/{namespace}/{cluster}/{session}", app=_Leading(by_path, below)),
        Mount("/", app=_Leading(by_cookie, below)),
    ]
    if choices.base_path:
        routes = [Mount(choices.base_path, routes=routes)]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            ApiError: _refuse,
            ArchiveError: _refuse_archive,
            HTTPException: _refuse_http,
            Exception: _crashed,
        },
    )
    app.state.site = Site(
        choices.base_path, sessions.indexer.store.url, addressing.catalog, _seen, choices.auth.tokens is not None
    )

    async def refuse(scope: Scope, refused: ApiError) -> Response:
        return await render_error(Request({**scope, "app": app}), refused)

    plumbing: Plumbing = Plumbing(Guard(app, choices.auth, refuse, choices.base_path))
    return plumbing


@dataclass(frozen=True, slots=True)
class _Leading:
    """An application that leads to routes, which can be seen: a test walks through all that there are."""

    app: ASGIApp
    routes: list[BaseRoute]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def _session_routes(sessions: Sessions, frontends: Frontends, *, redact: bool) -> list[BaseRoute]:
    answers = ResponseCache(_ANSWERS)

    def seen(handler: Handler) -> ASGIApp:
        return OpeningPage(sessions, SessionEndpoint(sessions, handler, redact, answers, render_error))

    async def file(request: Request) -> Response:
        return frontends.file(request.path_params["name"])

    def route(path: str, endpoint: ASGIApp) -> Route:
        return Route(path, endpoint, methods=["GET", "HEAD"])

    return [
        route("/_status", status.Status(sessions)),
        Route("/openapi.json", _described),
        WebSocketRoute("/api/jobs/{job_or_submission_id}/logs/tail", JobTail(sessions, redact=redact)),
        *(
            route(path, SessionEndpoint(sessions, handler, redact, answers, render_error))
            for path, handler in with_and_without_slash((route.path, route.handler) for route in ROUTES)
        ),
        route("/", seen(dashboard_page(frontends))),
        route("/_session", seen(session_page(frontends))),
        route("/api/{rest:path}", SessionEndpoint(sessions, misc.anything_polled, redact, answers, render_error)),
        Route("/{name:path}", file),
    ]


def _remembering(addressing: Addressing, session: Session, send: Send) -> Callable[[Message], Awaitable[None]]:
    """Renews the cookies with every answer."""
    carrier = Response()
    addressing.remember(carrier, session)
    cookies = [pair for pair in carrier.raw_headers if pair[0] == b"set-cookie"]

    async def out(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *cookies]
        await send(message)

    return out


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


async def _described(request: Request) -> Response:
    return plain_json(document(ROUTES, str(request.url.replace(query="")).removesuffix("/openapi.json")))


async def _with_slash(request: Request) -> Response:
    """The frontend's addresses are relative: its page must end in a slash."""
    return RedirectResponse(str(request.url.replace(path=request.url.path + "/")), 307)


async def _seen(scope: Scope, clusters: AbstractSet[Cluster]) -> AbstractSet[Cluster]:
    return await viewer_of(scope).seen(clusters)


async def _refuse(request: Request | WebSocket, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101
    if isinstance(error, Hidden):
        told("denied", request.scope, viewer_of(request.scope).name, status=error.status)
    return await _sent(request, error)


async def _refuse_archive(request: Request | WebSocket, error: Exception) -> Response:
    assert isinstance(error, ArchiveError)  # noqa: S101
    return await _sent(request, refused_by_archive(error))


async def _sent(request: Request | WebSocket, refused: ApiError) -> Response:
    """The answer; whoever wanted a web socket gets the refusal instead of one."""
    if isinstance(request, WebSocket):
        return error_response(refused)
    return await render_error(request, refused)


async def _crashed(request: Request, error: Exception) -> Response:
    logger.error("%s failed", request.url.path, exc_info=error)
    refused = ApiError(500, "the server made a mistake; its log says more, under this request's X-Request-Id")
    return await render_error(request, refused)


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    return await render_error(request, ApiError(error.status_code, error.detail))
