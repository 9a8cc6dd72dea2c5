"""What of a running cluster's dashboard is shown: its answers, in the pages that we have.

The pages are ours, of the nearest Ray version, and not the head's: whoever owns a cluster could put any script into
those. Paths that act on the cluster are not passed on (profiling attaches to processes), nor is `/api/packages`, code.
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

from ray_history.server.dashboard.builds import Frontends
from ray_history.server.http.responses import JSON, ApiError, enveloped, no_profiling, plain_json
from ray_history.server.http.shutdown import until_shutdown
from ray_history.server.redaction.log_lines import HiddenLines, written_by_ray
from ray_history.server.redaction.rules import has_secrets, redacted
from ray_history.server.sessions.endpoint import with_and_without_slash

from .fleet import LIVE, Running
from .heads import HeadAnswer, HeadClient, HeadUnreachable, Version

FOLLOWED = "/api/v0/logs/stream"
TAILED = "/api/jobs/{job_or_submission_id}/logs/tail"

_KINDS = ("application/json", "text/plain", "application/octet-stream", "text/event-stream")
_KEPT = ("content-disposition", "content-range", "etag", "last-modified")

LivePage: TypeAlias = Callable[[Request, Running, Version], Awaitable[Response]]
"""Makes the dashboard's page, once the head told its version."""


def running_of(scope: Scope) -> Running:
    """The running cluster that a request is about."""
    running: Running = scope["ray_history.running"]
    return running


def live_routes(
    heads: HeadClient, frontends: Frontends, show: LivePage, forwarded: Iterable[str], *, redact: bool
) -> list[BaseRoute]:
    """The dashboard of a live cluster; `forwarded` are the paths of the head that requests are passed on to."""

    async def page(request: Request) -> Response:
        running = running_of(request.scope)
        told = await heads.version(running)  # a head that is silent shows nothing: the archive does
        return await show(request, running, told)

    async def file(request: Request) -> Response:
        return frontends.file(request.path_params["name"])

    async def status(request: Request) -> Response:
        told = await heads.version(running_of(request.scope))
        return plain_json({"session": told.session_name or LIVE, "ready": True, "stage": "ready", "note": ""})

    async def redaction(_: Request) -> Response:
        return enveloped({"redactionEnabled": redact})

    async def profiling(_: Request) -> Response:
        return no_profiling()

    return [
        *(
            _route(path, ProxyRoute(heads, spelled, redact))
            for path, spelled in with_and_without_slash((path, path) for path in forwarded)
        ),
        _route(FOLLOWED, ProxyRoute(heads, FOLLOWED, redact, follow=True)),
        WebSocketRoute(TAILED, Tailing(heads)),
        Route("/_status", status),
        Route("/api/v0/runtime_env_redaction", redaction),
        Route("/api/profiling_enabled", profiling),
        Route("/", page),
        Route("/_session", _dashboard),
        Route("/api/{rest:path}", _not_passed),
        Route("/{name:path}", file),
    ]


def _route(path: str, endpoint: ProxyRoute) -> Route:
    return Route(path, endpoint, methods=["GET", "HEAD"])


async def _dashboard(request: Request) -> Response:
    """A running cluster has no page of its own but its dashboard."""
    return RedirectResponse(request.url.path.removesuffix("_session"), 307)


async def _not_passed(request: Request) -> Response:
    path = str(request.path_params["rest"])[:100]
    raise ApiError(501, f"/api/{path} of a running cluster is not passed on; ask its head, or open a stored session")


@dataclass(eq=False)
class ProxyRoute:
    """Passes one path on to the head."""

    heads: HeadClient
    path: str
    redact: bool
    follow: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        query = scope["query_string"].decode("ascii", "ignore")
        accept = request.headers.get("accept", "*/*")
        gone = asyncio.create_task(_disconnected(receive))
        work = asyncio.create_task(self._pass_on(request, query, accept, send))
        try:
            await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            gone.cancel()
            work.cancel()  # the viewer left: the head is left too
            await asyncio.gather(gone, work, return_exceptions=True)

    async def _pass_on(self, request: Request, query: str, accept: str, send: Send) -> None:
        path = filled(self.path, request.path_params)
        running = running_of(request.scope)
        async with self.heads.ask(running, request.method, path, query, accept, follow=self.follow) as answer:
            if self.redact and answer.kind == "application/json" and request.method == "GET":
                await _redacted(answer, await answer.whole(), request.scope, send)
            else:
                # All names that are given: Ray takes another one of several than we do.
                names = request.query_params.getlist("filename") if self.redact else []
                shown = next(filter(None, map(written_by_ray, names)), None)
                await self._stream(answer, HiddenLines(shown) if shown else None, request.scope, send)

    async def _stream(self, answer: HeadAnswer, lines: HiddenLines | None, scope: Scope, send: Send) -> None:
        headers = list(_headers(answer))
        if self.follow:
            headers.append((b"cache-control", b"no-store, no-transform"))  # what comes is to be seen at once
        elif "Content-Length" in answer.headers and answer.kind != "application/json" and not lines:  # else it changes
            headers.append((b"content-length", answer.headers["Content-Length"].encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            pieces = _without_secrets(answer.pieces, lines) if lines else answer.pieces
            async for piece in until_shutdown(scope, pieces) if self.follow else pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except HeadUnreachable:
            if not self.follow:
                raise
        await send({"type": "http.response.body", "body": b""})


async def _without_secrets(pieces: AsyncIterator[bytes], lines: HiddenLines) -> AsyncIterator[bytes]:
    """A log that Ray itself writes, as it comes."""
    async for piece in pieces:
        yield await run_in_threadpool(lines.taken, piece)
    yield lines.rest()


async def _redacted(answer: HeadAnswer, body: bytes, scope: Scope, send: Send) -> None:
    """An answer without secrets."""

    def without_secrets() -> bytes:
        told = msgspec.json.decode(body, type=Any if has_secrets(body) else msgspec.Raw)
        return msgspec.json.encode(redacted(told))

    try:
        body = await run_in_threadpool(without_secrets)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HeadUnreachable("its head's answer is no JSON, though it says so") from None
    response = Response(body, answer.status, media_type=JSON)
    response.raw_headers += [pair for pair in _headers(answer) if pair[0] not in (b"content-type", b"etag")]
    await response(scope, _nothing, send)


def _headers(answer: HeadAnswer) -> Iterator[tuple[bytes, bytes]]:
    kind = answer.headers.get("Content-Type", "") if answer.kind in _KINDS else "text/plain; charset=utf-8"
    yield b"content-type", kind.encode("latin-1", "replace")
    for name in _KEPT:
        if name in answer.headers:
            yield name.encode(), answer.headers[name].encode("latin-1", "replace")


def filled(path: str, parts: dict[str, str]) -> str:
    """Ray's path, with the parts that were asked for."""
    for name, value in parts.items():
        if f"{{{name}}}" in path:
            if value in (".", ".."):
                raise ApiError(400, f"{value} is no name")
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


@dataclass(eq=False)
class Tailing:
    """Passes on what the head says about a job's log, and nothing back."""

    heads: HeadClient

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        path = filled(TAILED, socket.path_params)
        async with self.heads.listen(running_of(scope), path) as head:
            await socket.accept()
            gone = asyncio.create_task(_closed(socket))
            work = asyncio.create_task(_pass_texts(head, socket))
            try:
                await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() and not gone.done():
                    await socket.close(1000 if work.exception() is None else 1011)
            finally:
                gone.cancel()
                work.cancel()
                await asyncio.gather(gone, work, return_exceptions=True)


async def _pass_texts(head: aiohttp.ClientWebSocketResponse, socket: WebSocket) -> None:
    async for message in head:
        if message.type is aiohttp.WSMsgType.TEXT:
            await socket.send_text(message.data)


async def _closed(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _nothing() -> dict[str, str]:
    return {"type": "http.disconnect"}
