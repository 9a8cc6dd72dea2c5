"""Compresses text with what the client takes, piece by piece.

Of gzip and zstd, where a client takes both alike, it is gzip: a Ray that shows us (`--proxy-server-url`) passes on
what the browser takes, reads the answer with aiohttp, which knows zstd only where `backports.zstd` is installed, and
shows its own cluster instead of an answer that it cannot read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from typing import Any

from isal import isal_zlib
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_KINDS = ("application/json", "text/", "application/javascript", "application/manifest+json", "image/svg+xml")
_WORTH_IT = 1024
_CODING = re.compile(r"\s*(?P<name>[a-z0-9*_-]+)\s*(?:;\s*q\s*=\s*(?P<weight>[01](?:\.[0-9]{0,3})?)\s*)?")


def coding(accepted: str) -> str:
    """`gzip`, `zstd`, or nothing: what an `Accept-Encoding` likes best. What cannot be understood is not taken."""
    parts = (_CODING.fullmatch(part) for part in accepted.lower().split(","))
    weights = {part["name"]: float(part["weight"] or 1) for part in parts if part}
    others = weights.get("*", 0.0)
    gzip, packed = weights.get("gzip", others), weights.get("zstd", others)
    if max(gzip, packed) <= 0 or weights.get("identity", 0.0) > max(gzip, packed):
        return ""
    return "gzip" if gzip >= packed else "zstd"


class Compressing:
    """One answer on its way out."""

    def __init__(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        self._app, self._scope, self._send = app, scope, send
        told = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept-encoding"]
        self._coding = coding(",".join(told)) if scope["method"] == "GET" else ""
        self._packer: Any = None
        self._start: MutableMapping[str, Any] | None = None

    async def run(self, receive: Receive) -> None:
        await self._app(self._scope, receive, self._take)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    async def _begin(self, start: MutableMapping[str, Any]) -> None:
        suits = _suits(start)
        if suits or start["status"] == 304:  # a cache must know it of the answer that stands for a compressed one, too
            start["headers"] = [*start["headers"], (b"vary", b"Accept-Encoding")]
        if suits and self._coding:
            self._start = start  # whether it is worth it is known with the first bytes
        else:
            await self._send(start)

    async def _body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if more or len(body) >= _WORTH_IT:
                self._packer = (
                    zstd.ZstdCompressor(level=1) if self._coding == "zstd" else isal_zlib.compressobj(1, wbits=31)
                )
                kept = [pair for pair in start["headers"] if pair[0].lower() not in (b"content-length", b"etag")]
                weak = [
                    (b"etag", b"W/" + value.removeprefix(b"W/")) for name, value in start["headers"] if name == b"etag"
                ]
                start["headers"] = [*kept, *weak, (b"content-encoding", self._coding.encode())]
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
        and kind.startswith(_KINDS)
        and not kind.startswith("text/event-stream")
        and b"no-transform" not in headers.get(b"cache-control", b"")
    )
