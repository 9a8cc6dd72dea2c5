"""What every request passes through: limits, headers, compression, counting, one line in the log."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

from backports import zstd
from isal import isal_zlib
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import Refused, refusal

journal = logging.getLogger("ray_history.access")

LONGEST_QUERY = 16 * 1024
_METHODS = frozenset({"GET", "HEAD"})
_COMPRESSED = ("application/json", "text/", "application/javascript", "application/manifest+json", "image/svg+xml")
_WORTH_IT = 1024

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; font-src 'self' data:; "
        b"script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; connect-src 'self'; "
        b"frame-ancestors 'self'; base-uri 'self'; form-action 'self'; object-src 'none'",
    ),
]
"""The dashboard's own frontend styles inline, and evaluates a regular expression engine for its log viewer."""


class Plumbing:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._clock = app, clock
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = 0.0
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, sent = self._clock(), 500, 0
        identity = _header(scope, b"x-request-id")[:64] or secrets.token_hex(8)
        scope["ray_history.request"] = identity
        self.running += 1

        async def out(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name.lower() for name, _ in message["headers"]}
                added = [pair for pair in _HEADERS if pair[0] not in names]
                message["headers"] = [
                    *message["headers"],
                    *added,
                    (b"x-request-id", identity.encode("latin-1", "replace")),
                ]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            refused = _refused(scope)
            if refused is not None:
                await refusal(refused)(scope, receive, out)
            else:
                await _Compressing(self._app, scope, out).run(receive)
        finally:
            self.running -= 1
            took = self._clock() - begin
            self.seconds += took
            self.requests[scope["method"], status] += 1
            journal.info("%s %s %s %d %d %.3f", identity, scope["method"], _path(scope), status, sent, took)


def _refused(scope: Scope) -> Refused | None:
    if scope["method"] not in _METHODS:
        return Refused(405, f"{scope['method'][:20]} is not allowed: history cannot be changed")
    if len(scope["query_string"]) > LONGEST_QUERY:
        return Refused(414, f"the query has {len(scope['query_string'])} bytes; at most {LONGEST_QUERY} are taken")
    return None


def _path(scope: Scope) -> str:
    return str(scope["path"])[:300].encode("unicode_escape").decode()


def _header(scope: Scope, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


class _Compressing:
    """Compresses text with what the client takes, piece by piece."""

    def __init__(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        self._app, self._scope, self._send = app, scope, send
        taken = {part.split(";")[0].strip() for part in _header(scope, b"accept-encoding").lower().split(",")}
        self._coding = "zstd" if "zstd" in taken else "gzip" if "gzip" in taken else ""
        self._packer: Any = None
        self._start: MutableMapping[str, Any] | None = None

    async def run(self, receive: Receive) -> None:
        await self._app(self._scope, receive, self._take if self._coding else self._send)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    async def _body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if _suits(start) and (more or len(body) >= _WORTH_IT) and self._scope["method"] == "GET":
                self._packer = (
                    zstd.ZstdCompressor(level=1) if self._coding == "zstd" else isal_zlib.compressobj(1, wbits=31)
                )
                kept = [pair for pair in start["headers"] if pair[0].lower() not in (b"content-length", b"etag")]
                weak = [
                    (b"etag", b"W/" + value.removeprefix(b"W/")) for name, value in start["headers"] if name == b"etag"
                ]
                coding = [(b"content-encoding", self._coding.encode()), (b"vary", b"Accept-Encoding")]
                start["headers"] = [*kept, *weak, *coding]
            await self._send(start)
        if self._packer is not None:
            body = self._packer.compress(body) + (b"" if more else self._packer.flush())
            if not body and more:
                return
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def _suits(start: MutableMapping[str, Any]) -> bool:
    headers = {name.lower(): value for name, value in start["headers"]}
    kind = headers.get(b"content-type", b"").decode("latin-1")
    return (
        start["status"] == 200
        and b"content-encoding" not in headers
        and kind.startswith(_COMPRESSED)
        and not kind.startswith("text/event-stream")
        and b"no-transform" not in headers.get(b"cache-control", b"")
    )
