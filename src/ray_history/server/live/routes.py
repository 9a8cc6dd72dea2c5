"""The dashboard of a running cluster: answers of its head, in pages of this server.

The pages come from this server's builds of the nearest Ray version. Those of the head could contain any script of the
owner of the cluster. Paths that act on the cluster (profiling attaches to processes) and `/api/packages`, which serves
code, are not forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import aiohttp
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from ray_history.decoding import DECODING_ERRORS
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.http.responses import JSON, ApiError, enveloped, no_profiling, plain_json
from ray_history.server.http.shutdown import until_shutdown
from ray_history.server.redaction.log_lines import RedactedLines, written_by_ray
from ray_history.server.redaction.rules import has_secrets, redacted
from ray_history.server.sessions.endpoint import with_and_without_slash

from .heads import HeadClient, HeadResponse, HeadUnreachable, Version
from .running import LIVE, RunningCluster

FOLLOWED = "/api/v0/logs/stream"
TAILED = "/api/jobs/{job_or_submission_id}/logs/tail"
METRICS_HEALTH = ("/api/grafana_health", "/api/prometheus_health")

_MEDIA_TYPES = ("application/json", "text/plain", "application/octet-stream", "text/event-stream")
_FORWARDED_HEADERS = ("content-disposition", "content-range", "etag", "last-modified")

LivePage: TypeAlias = Callable[[Request, RunningCluster, Version], Awaitable[Response]]
"""Renders the dashboard's page for a head of that version."""


def running_of(scope: Scope) -> RunningCluster:
    """The running cluster that a request is about."""
    running: RunningCluster = scope["ray_history.running"]
    return running


@dataclass(frozen=True, slots=True)
class LiveDashboard:
    """The dashboard of a running cluster."""

    heads: HeadClient
    frontends: Frontends
    show: LivePage
    redact: bool

    def routes(self, forwarded: Iterable[str]) -> list[BaseRoute]:
        """`forwarded` are the paths of the head that requests are passed on to."""
        heads, redact = self.heads, self.redact
        paths = with_and_without_slash((path, path) for path in forwarded)
        return [
            *(_get(path, ProxyRoute(heads, head_path, redact)) for path, head_path in paths),
            _get(FOLLOWED, ProxyRoute(heads, FOLLOWED, redact, follow=True)),
            *(_get(path, HealthRoute(heads, path, redact)) for path in METRICS_HEALTH),
            WebSocketRoute(TAILED, JobLogProxy(heads)),
            Route("/_status", self.status),
            Route("/api/v0/runtime_env_redaction", self.redaction),
            Route("/api/profiling_enabled", _no_profiling),
            Route("/", self.page),
            Route("/_session", _redirect_to_dashboard),
            Route("/api/{rest:path}", _refuse),
            Route("/{name:path}", self.file),
        ]

    async def page(self, request: Request) -> Response:
        running = running_of(request.scope)
        # The page does not wait for the head. If the last question was not answered, this raises, and the archive is
        # shown instead.
        return await self.show(request, running, self.heads.last_version(running))

    async def status(self, request: Request) -> Response:
        version = await self.heads.version(running_of(request.scope))
        return plain_json({"session": version.session_name or LIVE, "ready": True, "stage": "ready", "note": ""})

    async def redaction(self, _: Request) -> Response:
        return enveloped({"redactionEnabled": self.redact})

    async def file(self, request: Request) -> Response:
        return self.frontends.file(request.path_params["name"])


def _get(path: str, endpoint: ProxyRoute) -> Route:
    return Route(path, endpoint, methods=["GET", "HEAD"])


async def _no_profiling(_: Request) -> Response:
    return no_profiling()


async def _redirect_to_dashboard(request: Request) -> Response:
    """A running cluster has no session page, only its dashboard."""
    return RedirectResponse(request.url.path.removesuffix("_session"), 307)


async def _refuse(request: Request) -> Response:
    path = str(request.path_params["rest"])[:100]
    raise ApiError(501, f"/api/{path} is not forwarded to running clusters; ask the head, or open a stored session")


@dataclass(eq=False)
class ProxyRoute:
    """Forwards one path to the head."""

    heads: HeadClient
    path: str
    redact: bool
    follow: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        disconnected = asyncio.create_task(_until_disconnected(receive))
        work = asyncio.create_task(self._forward(request, send))
        try:
            await asyncio.wait({disconnected, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            disconnected.cancel()
            work.cancel()  # a request to the head ends when the viewer disconnects
            await asyncio.gather(disconnected, work, return_exceptions=True)

    async def _forward(self, request: Request, send: Send) -> None:
        scope, path = request.scope, fill_path(self.path, request.path_params)
        query, accept = scope["query_string"].decode("ascii", "ignore"), request.headers.get("accept", "*/*")
        async with self.heads.request(
            running_of(scope), request.method, path, query, accept, follow=self.follow
        ) as answer:
            if self.redact and answer.media_type == "application/json" and request.method == "GET":
                await _send_redacted(answer, await answer.read(), scope, send)
            else:
                # Of several names Ray uses another one than this server does, so all are checked.
                names = request.query_params.getlist("filename") if self.redact else []
                redact_line = next(filter(None, map(written_by_ray, names)), None)
                await self._stream(answer, RedactedLines(redact_line) if redact_line else None, scope, send)

    async def _stream(self, answer: HeadResponse, lines: RedactedLines | None, scope: Scope, send: Send) -> None:
        headers = list(_headers(answer))
        if self.follow:
            headers.append(
                (b"cache-control", b"no-store, no-transform")
            )  # neither compression nor a proxy may hold bytes back
        elif "Content-Length" in answer.headers and answer.media_type != "application/json" and not lines:
            # Only an answer that is not redacted keeps its length.
            headers.append((b"content-length", answer.headers["Content-Length"].encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            pieces = _redacted_lines(answer.pieces, lines) if lines else answer.pieces
            async for piece in until_shutdown(scope, pieces) if self.follow else pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except HeadUnreachable:
            if not self.follow:
                raise
        await send({"type": "http.response.body", "body": b""})


@dataclass(eq=False)
class HealthRoute(ProxyRoute):
    """Asks the head whether it has a Grafana and a Prometheus. If not, recorded metrics are shown."""

    async def _forward(self, request: Request, send: Send) -> None:
        running = running_of(request.scope)
        async with self.heads.request(running, "GET", self.path, accept="application/json") as answer:
            body = await answer.read()
            if answer.status != 200 or not _has_charts(body):
                raise HeadUnreachable("its head has no Grafana and Prometheus")
            await _send_redacted(answer, body, request.scope, send)


class _Health(msgspec.Struct):
    result: bool
    data: dict[str, Any] = {}


def _has_charts(body: bytes) -> bool:
    """Whether the head's answer says so; the host `DISABLED` is how Ray's users switch Grafana off."""
    try:
        answer = msgspec.json.decode(body, type=_Health)
    except DECODING_ERRORS:
        return False
    return answer.result and answer.data.get("grafanaHost") != "DISABLED"


async def _redacted_lines(pieces: AsyncIterator[bytes], lines: RedactedLines) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield await run_in_threadpool(lines.feed, piece)
    yield lines.finish()


async def _send_redacted(answer: HeadResponse, body: bytes, scope: Scope, send: Send) -> None:
    try:
        body = await run_in_threadpool(_redact_json, body)
    except DECODING_ERRORS:
        raise HeadUnreachable("its head sent malformed JSON") from None
    response = Response(body, answer.status, media_type=JSON)
    response.raw_headers += [pair for pair in _headers(answer) if pair[0] not in (b"content-type", b"etag")]
    await response(scope, _no_messages, send)


def _redact_json(body: bytes) -> bytes:
    value = msgspec.json.decode(body, type=Any if has_secrets(body) else msgspec.Raw)
    return msgspec.json.encode(redacted(value))


def _headers(answer: HeadResponse) -> Iterator[tuple[bytes, bytes]]:
    is_safe = answer.media_type in _MEDIA_TYPES
    content_type = answer.headers.get("Content-Type", "") if is_safe else "text/plain; charset=utf-8"
    yield b"content-type", content_type.encode("latin-1", "replace")
    for name in _FORWARDED_HEADERS:
        if name in answer.headers:
            yield name.encode(), answer.headers[name].encode("latin-1", "replace")


def fill_path(path: str, parts: dict[str, str]) -> str:
    """Ray's path with the parts of the request."""
    for name, value in parts.items():
        if f"{{{name}}}" in path:
            if value in (".", ".."):
                raise ApiError(400, f"invalid {name} {value!r}")
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


@dataclass(eq=False)
class JobLogProxy:
    """Forwards the web socket with a job's log. Messages of the client are ignored."""

    heads: HeadClient

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        path = fill_path(TAILED, socket.path_params)
        async with self.heads.open_websocket(running_of(scope), path) as head:
            await socket.accept()
            closed = asyncio.create_task(_until_closed(socket))
            work = asyncio.create_task(_forward_texts(head, socket))
            try:
                await asyncio.wait({closed, work}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() and not closed.done():
                    await socket.close(1000 if work.exception() is None else 1011)
            finally:
                closed.cancel()
                work.cancel()
                await asyncio.gather(closed, work, return_exceptions=True)


async def _forward_texts(head: aiohttp.ClientWebSocketResponse, socket: WebSocket) -> None:
    async for message in head:
        if message.type is aiohttp.WSMsgType.TEXT:
            await socket.send_text(message.data)


async def _until_closed(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _no_messages() -> dict[str, str]:
    return {"type": "http.disconnect"}
