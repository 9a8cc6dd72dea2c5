"""Bytes on a connection, as the protocol of the server gets them, with a stand-in for the transport."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from zlib import crc32

import uvicorn
from uvicorn.server import ServerState

from ray_history.connections import (
    BODY_BYTES,
    CLOSING_REASONS,
    CONNECTIONS,
    HEAD_BYTES,
    HEAD_FIELDS,
    Connections,
    LimitedConnection,
)
from tests.fuzz.target import target

_REQUESTS = (
    b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\ntoken",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\ntoken\r\n0\r\nTrailer: x\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nrest",
    b"HEAD /%ff%00?a=%zz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nCookie: a=b\r\n\r\n",
)
_WORDS = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n\n",
        b"Content-Length: ",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"HTTP/1.1",
    ),
    *(
        b"Upgrade: websocket",
        b"Content-Length: 99999999999999999999",
        b"0\r\n\r\n",
        b"ffffffff\r\n",
        b"A: " + b"b" * 200,
    ),
)
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class _Transport(asyncio.Transport):
    """A stand-in for a socket: what is written to it is kept."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711), "sockname": ("127.0.0.1", 8080)})
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with the size of the body."""
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    assert size <= BODY_BYTES
    assert len(scope["headers"]) <= HEAD_FIELDS
    assert sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["raw_path"]) <= HEAD_BYTES
    body = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


_CONFIG = uvicorn.Config(_echo, log_config=None, http=LimitedConnection, ws="none", access_log=False)
_CONFIG.load()


async def _answered(pieces: list[bytes]) -> tuple[bytes, Connections, LimitedConnection]:
    connections = Connections()
    protocol = LimitedConnection(config=_CONFIG, server_state=ServerState(), app_state={CONNECTIONS: connections})
    transport = _Transport()
    protocol.connection_made(transport)
    for piece in pieces:
        if transport.is_closed:
            break
        protocol.data_received(piece)
        for _ in range(8):  # the application answers before the next piece arrives
            await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    for _ in range(8):
        await asyncio.sleep(0)
    return bytes(transport.written), connections, protocol


@target("connections", lambda: _REQUESTS, tokens=_WORDS)
def connection(data: bytes) -> None:
    """Any bytes are answered by complete answers, of which none is a server error, or the connection is closed for one
    of the known reasons; no request beyond the limits reaches the application; nothing is left behind."""
    step = 1 + len(data) // (1 + crc32(data[:64]) % 32)
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    written, connections, protocol = asyncio.run(_answered(pieces))
    statuses = [int(found[1]) for found in _STATUS.finditer(written)]
    assert all(status in (100, 200) or 400 <= status < 500 for status in statuses), written[:300]
    assert connections.closed.keys() <= set(CLOSING_REASONS)
    assert connections.open_count == 0
    assert protocol.requests <= 1 + data.count(b"HTTP/")
    assert len(statuses) <= 2 * protocol.requests + 1
