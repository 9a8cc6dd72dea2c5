"""Compression of text with gzip or zstd, whichever the client prefers.

A client that accepts both alike gets gzip. A Ray that forwards requests (`--proxy-server-url`) passes on the codings
that the browser accepts, but reads the answer with aiohttp, which knows zstd only where `backports.zstd` is installed,
and shows its own cluster instead of an answer that it cannot read.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from anyio import to_thread
from isal import isal_zlib
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_history.zstandard import zstd

_KINDS = ("application/json", "text/", "application/javascript", "application/manifest+json", "image/svg+xml")
_MIN_SIZE = 1024
_IN_LOOP_MAX = 64 << 10
"""Bytes that the event loop compresses itself. More are compressed in a thread: an answer of 25 MB takes 0.1 s, and all
other requests would wait."""
_CODING = re.compile(r"\s*(?P<name>[a-z0-9*_-]+)\s*(?:;\s*q\s*=\s*(?P<weight>[01](?:\.[0-9]{0,3})?)\s*)?")


def coding(accepted: str) -> str:
    """The coding that an `Accept-Encoding` header prefers: `gzip`, `zstd`, or none. Malformed parts are ignored."""
    parts = (_CODING.fullmatch(part) for part in accepted.lower().split(","))
    weights = {part["name"]: float(part["weight"] or 1) for part in parts if part}
    others = weights.get("*", 0.0)
    gzip, zstd_weight = weights.get("gzip", others), weights.get("zstd", others)
    best = max(gzip, zstd_weight)
    if best <= 0 or weights.get("identity", 0.0) > best:
        return ""
    return "gzip" if gzip == best else "zstd"


class Compression:
    """Compresses answers piece by piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            send = _CompressedResponse(scope, send)
        await self._app(scope, receive, send)


class _CompressedResponse:
    """One answer on its way out."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        accepted = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept-encoding"]
        self._coding = coding(",".join(accepted)) if scope["method"] == "GET" else ""
        self._compressor: Any = None
        self._start: MutableMapping[str, Any] | None = None
        """The beginning of the answer, until the first bytes show whether compressing pays off."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._body(message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._send(message)

    async def _begin(self, start: MutableMapping[str, Any]) -> None:
        suits = _suits(start)
        if suits or start["status"] == 304:  # a 304 confirms a compressed answer: caches must get the same `vary`
            start["headers"] = [*start["headers"], (b"vary", b"Accept-Encoding")]
        if suits and self._coding:
            self._start = start
        else:
            await self._send(start)

    async def _body(self, body: bytes, *, more: bool) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            if more or len(body) >= _MIN_SIZE:
                self._start_compressing(start)
            await self._send(start)
        if self._compressor is not None:
            if len(body) > _IN_LOOP_MAX:
                body = await to_thread.run_sync(self._compress, body, more)
            else:
                body = self._compress(body, more)
            if more and not body:
                return
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def _compress(self, body: bytes, more: bool) -> bytes:
        compressed: bytes = self._compressor.compress(body)
        return compressed if more else compressed + self._compressor.flush()

    def _start_compressing(self, start: MutableMapping[str, Any]) -> None:
        self._compressor = (
            zstd.ZstdCompressor(level=1) if self._coding == "zstd" else isal_zlib.compressobj(1, wbits=31)
        )
        headers = [pair for pair in start["headers"] if pair[0].lower() not in (b"content-length", b"etag")]
        # The bytes differ from those that the tag was made for, so it may only be a weak one.
        tags = [(b"etag", b"W/" + value.removeprefix(b"W/")) for name, value in start["headers"] if name == b"etag"]
        start["headers"] = [*headers, *tags, (b"content-encoding", self._coding.encode())]


def _suits(start: MutableMapping[str, Any]) -> bool:
    headers = {name.lower(): value for name, value in start["headers"]}
    kind = headers.get(b"content-type", b"").decode("latin-1")
    return (
        start["status"] == 200
        and b"content-encoding" not in headers
        and kind.startswith(_KINDS)
        and not kind.startswith("text/event-stream")
        and b"no-transform" not in headers.get(b"cache-control", b"")
    )
