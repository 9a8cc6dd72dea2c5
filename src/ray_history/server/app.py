"""The web application: its services, its middleware, and its routes.

The dashboard of a session stands below `/s/{namespace}/{cluster}/{session}/`, and below `/` for the session that a
browser entered by cookie. Both lead to the same routes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.layout import Cluster
from ray_history.connections import CONNECTIONS, Connections
from ray_history.index.cache import CacheUnusable
from ray_history.server.api.kuberay import Addressing
from ray_history.server.api.metrics import CacheSize, ServerMetrics, metrics
from ray_history.server.api.misc import anything_polled
from ray_history.server.api.openapi import document
from ray_history.server.auth import AllowedHosts, AuthBackend, Guard, Hidden, Login, NoAuth, audit, viewer_of
from ray_history.server.completeness.status import Status
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.http.budget import Budget, Budgets, OverBudget
from ray_history.server.http.compression import Compression
from ray_history.server.http.form_queries import FormQueries
from ray_history.server.http.middleware import Limits, RequestLog, RequestStatistics, SecurityHeaders, UnhandledErrors
from ray_history.server.http.ray_proxy import RayProxy
from ray_history.server.http.response_cache import ResponseCache
from ray_history.server.http.responses import ApiError, error_response, plain_json
from ray_history.server.http.shutdown import SHUTDOWN, shutdown_event
from ray_history.server.live import LIVE, Fleet, LiveDashboard, LiveGateway
from ray_history.server.logs.job_tail import JobTail
from ray_history.server.routes import ROUTES
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.endpoint import Handler, SessionEndpoint, archive_refusal, with_and_without_slash
from ray_history.server.sessions.manager import Sessions
from ray_history.server.sessions.overview import OverviewCache
from ray_history.server.sessions.prebuild import Prebuilder
from ray_history.server.sessions.readiness import Readiness
from ray_history.server.sessions.routes import forwarded_paths
from ray_history.server.ui.bars import dashboard_page, live_page
from ray_history.server.ui.errors import render_error
from ray_history.server.ui.home.page import Front, Home
from ray_history.server.ui.home.session_list import ArchiveSource, RunningSource, SessionList
from ray_history.server.ui.opening import OpeningPage
from ray_history.server.ui.render import STATIC_PREFIX, Site, page, static_file
from ray_history.server.ui.session.page import session_page

logger = logging.getLogger(__name__)

_RESPONSE_CACHE_BYTES = 128 << 20
"""Per process."""


@dataclass(frozen=True, slots=True)
class AppConfig:
    """What the operator chose for the web application."""

    redact: bool = True
    dashboards: tuple[Path, ...] = ()
    base_path: str = ""
    secure_cookies: bool = False
    hosts: AllowedHosts = AllowedHosts()  # noqa: RUF009  # frozen
    auth: AuthBackend = field(default_factory=NoAuth)
    fleet: Fleet = field(default_factory=Fleet)
    prebuild: int = 0
    """How many of the newest sessions are indexed before anyone opens them."""
    connections: Connections = field(default_factory=Connections)
    budget: Budget = field(default_factory=Budget)
    worker: str = ""
    """The name of this process, if the server has several."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers of all requests share."""

    config: AppConfig
    sessions: Sessions
    catalog: SessionCatalog
    frontends: Frontends
    responses: ResponseCache
    session_list: SessionList
    prebuilder: Prebuilder
    statistics: RequestStatistics
    readiness: Readiness
    cache_size: CacheSize

    @classmethod
    def create(cls, sessions: Sessions, config: AppConfig) -> Services:
        indexer, fleet, statistics = sessions.indexer, config.fleet, RequestStatistics()
        sessions.running = fleet.current
        catalog = SessionCatalog(indexer.store)
        overviews = OverviewCache(indexer.store, indexer.summaries, indexer.cache.root / "summaries")
        stored = ArchiveSource(catalog, overviews, redact=config.redact, running=fleet.current)
        return cls(
            config,
            sessions,
            catalog,
            Frontends(config.dashboards),
            ResponseCache(_RESPONSE_CACHE_BYTES),
            SessionList([RunningSource(fleet, catalog), stored]),
            Prebuilder(indexer, catalog, overviews, config.prebuild, lambda: not statistics.running),
            statistics,
            Readiness(indexer.cache),
            CacheSize(indexer.cache),
        )

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[dict[str, Any]]:
        self.sessions.indexer.prepare()
        self.prebuilder.start()
        async with self.config.fleet.followed():
            with shutdown_event() as shutdown:
                yield {SHUTDOWN: shutdown, CONNECTIONS: self.config.connections}
        await run_in_threadpool(self.prebuilder.stop)
        await run_in_threadpool(self.session_list.close)
        await self.config.auth.close()
        await run_in_threadpool(self.sessions.close)

    @property
    def site(self) -> Site:
        """What every page needs to know."""
        config = self.config
        store_url = self.sessions.indexer.store.url
        return Site(config.base_path, store_url, self.catalog, _visible, config.auth.tokens is not None)

    def endpoint(self, handler: Handler) -> SessionEndpoint:
        return SessionEndpoint(self.sessions, handler, self.config.redact, self.responses, render_error)

    async def metrics(self, _: Request) -> Response:
        config = self.config
        values = ServerMetrics(
            self.statistics, config.connections, self.sessions, config.fleet, self.cache_size, config.worker
        )
        return await run_in_threadpool(metrics, values)

    async def dashboard_file(self, request: Request) -> Response:
        return self.frontends.file(request.path_params["name"])


def make_app(sessions: Sessions, config: AppConfig = AppConfig()) -> Starlette:  # noqa: B008  # frozen
    services, base = Services.create(sessions, config), config.base_path
    routes = site_routes(services, SessionDispatcher(services))
    app = Starlette(
        routes=[Route(base, _redirect_with_slash), Mount(base, routes=routes)] if base else routes,
        middleware=[
            Middleware(RequestLog, services.statistics),
            Middleware(SecurityHeaders),
            Middleware(RayProxy),
            Middleware(FormQueries),
            Middleware(Limits),
            Middleware(Compression),
            Middleware(Budgets, config.budget),
            Middleware(UnhandledErrors, _respond_to_failure),
            Middleware(Guard, config.auth, _refuse_unauthenticated, config.base_path, config.hosts),
        ],
        exception_handlers={
            ApiError: _refuse,
            ArchiveError: _refuse_for_archive,
            CacheUnusable: _refuse_for_cache,
            OverBudget: _refuse_for_budget,
            HTTPException: _refuse_for_http,
        },
        lifespan=services.lifespan,
    )
    app.state.site = services.site
    return app


def site_routes(services: Services, dispatcher: SessionDispatcher) -> list[BaseRoute]:
    """The routes of the whole server; those of a session stand below its path, and below `/` for the cookie."""
    config, addressing = services.config, dispatcher.addressing
    home = Home(services.session_list, config.fleet)
    session = "/s/{namespace}/{cluster}/{session}"
    return [
        *(Route(path, _alive) for path in ("/livez", "/healthz")),
        *(Route(path, services.readiness.answer) for path in ("/readyz", "/readz")),
        *Login(config.auth, page, config.base_path, secure=config.secure_cookies).routes(),
        Route("/metrics", services.metrics),
        Route(STATIC_PREFIX + "/{name}", static_file),
        # A Ray that forwards requests asks for the files of the bar below the session.
        Route(session + STATIC_PREFIX + "/{name}", static_file),
        *(Route(path, home) for path in ("/select_cluster", "/select_cluster/")),
        Route("/", Front(home, dispatcher.by_cookie)),
        *(Route(path, addressing.clusters) for path in ("/clusters", "/clusters/")),
        Route("/enter_cluster/{rest:path}", addressing.enter),
        Route(session, _redirect_with_slash),
        Mount(session, app=RoutedApp(dispatcher.by_path, dispatcher.routes)),
        Mount("/", app=RoutedApp(dispatcher.by_cookie, dispatcher.routes)),
    ]


def session_routes(services: Services) -> list[BaseRoute]:
    """The routes of a stored session."""
    sessions, frontends = services.sessions, services.frontends
    pages = {"/": dashboard_page(frontends), "/_session": session_page(frontends)}
    handlers = with_and_without_slash((route.path, route.handler) for route in ROUTES)
    return [
        _get("/_status", Status(sessions)),
        Route("/openapi.json", _describe),
        WebSocketRoute("/api/jobs/{job_or_submission_id}/logs/tail", JobTail(sessions, redact=services.config.redact)),
        *(_get(path, services.endpoint(handler)) for path, handler in handlers),
        *(_get(path, OpeningPage(sessions, services.endpoint(handler))) for path, handler in pages.items()),
        _get("/api/{rest:path}", services.endpoint(anything_polled)),
        Route("/{name:path}", services.dashboard_file),
    ]


class SessionDispatcher:
    """Finds the session of a request, and passes the request to the head of a running cluster or to the archive."""

    def __init__(self, services: Services) -> None:
        config, heads = services.config, services.config.fleet.heads
        self._catalog = services.catalog
        self._stored = Router(session_routes(services))
        forwarded = None
        if heads is not None:
            show = live_page(services.frontends, services.catalog)
            paths = forwarded_paths(ROUTES)
            forwarded = Router(LiveDashboard(heads, services.frontends, show, config.redact).routes(paths))
        self._live = LiveGateway(config.fleet, services.catalog, services.sessions, forwarded, self._stored)
        self.addressing = Addressing(services.catalog, self._live, config.secure_cookies, config.base_path)
        self.routes = [*self._stored.routes, *(forwarded.routes if forwarded else ())]

    async def by_path(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The session that the path names."""
        names = scope["path_params"]
        if names["session"] == LIVE:
            await self._live(names["namespace"], names["cluster"], scope, receive, send)
            return
        scope["ray_history.session"] = await self._catalog.find(
            viewer_of(scope), names["namespace"], names["cluster"], names["session"]
        )
        await self._stored(scope, receive, send)

    async def by_cookie(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The session that the browser entered before. Answers renew its cookies before they expire."""
        cookies = HTTPConnection(scope).cookies
        session = await self.addressing.by_cookies(viewer_of(scope), cookies)
        scope["ray_history.session"] = session
        if self.addressing.is_renewal_due(cookies):
            send = _renewing_cookies(self.addressing, session, send)
        if session.name == LIVE:
            await self._live(session.cluster.namespace, session.cluster.name, scope, receive, send)
        else:
            await self._stored(scope, receive, send)


@dataclass(frozen=True, slots=True)
class RoutedApp:
    """An application with the routes that it dispatches to, for tests that walk through all routes."""

    app: ASGIApp
    routes: list[BaseRoute]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def _get(path: str, endpoint: ASGIApp) -> Route:
    return Route(path, endpoint, methods=["GET", "HEAD"])


def _renewing_cookies(addressing: Addressing, session: Session, send: Send) -> Send:
    carrier = Response()
    addressing.set_cookies(carrier, session)
    cookies = [pair for pair in carrier.raw_headers if pair[0] == b"set-cookie"]

    async def out(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *cookies]
        await send(message)

    return out


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


async def _describe(request: Request) -> Response:
    return plain_json(document(ROUTES, str(request.url.replace(query="")).removesuffix("/openapi.json")))


async def _redirect_with_slash(request: Request) -> Response:
    """The frontend uses relative addresses, so the address of its page must end in a slash."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{request.url.path}/{query}", 307)


async def _visible(scope: Scope, clusters: AbstractSet[Cluster]) -> AbstractSet[Cluster]:
    return await viewer_of(scope).visible(clusters)


async def _refuse_unauthenticated(scope: Scope, refused: ApiError) -> Response:
    return await render_error(Request(scope), refused)


async def _refuse(request: Request | WebSocket, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101
    if isinstance(error, Hidden):
        audit.record("denied", request.scope, viewer_of(request.scope).name, status=error.status)
    return await _refusal(request, error)


async def _refuse_for_archive(request: Request | WebSocket, error: Exception) -> Response:
    assert isinstance(error, ArchiveError)  # noqa: S101
    return await _refusal(request, archive_refusal(error))


async def _refuse_for_cache(request: Request | WebSocket, error: Exception) -> Response:
    logger.error("%s", error)
    return await _refusal(request, ApiError(503, str(error)))


async def _refuse_for_budget(request: Request | WebSocket, error: Exception) -> Response:
    return await _refusal(request, ApiError(503, str(error)))


async def _refuse_for_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    return await render_error(request, ApiError(error.status_code, error.detail))


async def _refusal(request: Request | WebSocket, refused: ApiError) -> Response:
    if isinstance(request, WebSocket):  # the answer to its handshake; nothing shows it as a page
        return error_response(refused)
    return await render_error(request, refused)


async def _respond_to_failure(request: Request, error: Exception) -> Response:
    logger.error("%s failed", request.url.path, exc_info=error)
    return await render_error(request, ApiError(500, "internal server error; see the server log for this request id"))
