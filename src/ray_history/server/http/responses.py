"""Answers in the shapes that Ray's dashboard uses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ray_history.server.http.budget import OverBudget

JSON = "application/json; charset=utf-8"

LARGE = 4 << 20
"""Answers up to this size may be cached."""
_PIECE = 256 * 1024
_UNTAKEN_BYTES = 128 << 20
_SLOW_SECONDS = 30.0
"""How long other large answers wait for a client that does not read an answer with that much text."""
_COMMA = b", "


class ApiError(Exception):
    """A request that cannot be answered, with a status and a message for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ArchiveFailure(ApiError):
    """The archive cannot be reached, or refuses access."""


def plain_json(body: Any, *, status: int = 200) -> Response:
    """A body without an envelope, as in some of Ray's routes."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def enveloped(data: Mapping[str, Any], message: str = "", *, result: bool = True, status: int = 200) -> Response:
    """Ray's envelope."""
    return plain_json({"result": result, "msg": message, "data": data}, status=status)


def error_response(refused: ApiError) -> Response:
    """The shape of all errors: Ray's envelope, with the fields that Ray's clients read."""
    return plain_json({"result": False, "msg": refused.message, "data": {"result": None}}, status=refused.status)


def note_value(note: str) -> str:
    """The value of the header `X-Ray-History-Note`."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in note)[:500]


def listed_json(head: bytes, texts: Iterable[bytes], tail: bytes) -> Response:
    """JSON texts, separated by commas, between `head` and `tail`."""
    return Response(head + _COMMA.join(texts) + tail, media_type=JSON)


def growing_json(head: bytes, texts: Generator[Sequence[bytes]], tail: bytes) -> Response:
    """The same for many texts, sent while they are made. A slow client does not hold up their maker."""
    return StreamingResponse(_growing(head, texts, tail), media_type=JSON)


class _Untaken:
    """The text of an answer that its client has not taken yet; the maker waits when there is much of it."""

    def __init__(self) -> None:
        self._size, self._changed = 0, threading.Condition()
        self.is_connected = True

    def add(self, size: int) -> None:
        with self._changed:
            if not self._changed.wait_for(self._has_room, _SLOW_SECONDS):
                raise OverBudget(f"the client reads too slowly: {self._size >> 20} MiB of the answer wait for it")
            self._size += size

    def take(self, size: int) -> None:
        with self._changed:
            self._size -= size
            self._changed.notify()

    def disconnect(self) -> None:
        with self._changed:
            self.is_connected = False
            self._changed.notify()

    def _has_room(self) -> bool:
        return self._size < _UNTAKEN_BYTES or not self.is_connected


async def _growing(head: bytes, texts: Generator[Sequence[bytes]], tail: bytes) -> AsyncIterator[bytes]:
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | BaseException | None]()
    untaken = _Untaken()

    def make() -> None:
        failure, before = None, list[bytes]()
        try:
            for batch in texts:
                if batch:
                    piece = _COMMA.join([*before, *batch])
                    untaken.add(len(piece))
                    loop.call_soon_threadsafe(queue.put_nowait, piece)
                    before = [b""]
                if not untaken.is_connected:
                    return
        except Exception as error:  # noqa: BLE001  # it is raised where the answer is sent
            failure = error
        finally:
            texts.close()  # now, and not when the client has read what was made
        loop.call_soon_threadsafe(queue.put_nowait, failure)

    # Not in the thread pool of the handlers: all of its threads may be waiting for this to end.
    loop.run_in_executor(None, copy_context().run, make)
    try:
        yield head
        while isinstance(piece := await queue.get(), bytes):
            yield piece
            untaken.take(len(piece))
    finally:
        untaken.disconnect()
    if piece is not None:
        raise piece  # cuts the connection: the answer is incomplete
    yield tail


class Streamed(StreamingResponse):
    """JSON that is made while it is sent. When the client disconnects, the generator is closed and frees its memory."""

    media_type = JSON

    def __init__(self, parts: Generator[bytes]) -> None:
        super().__init__(parts)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(self._parts.close)


def streamed_json(parts: Iterable[str]) -> Response:
    """JSON text in pieces, which is never completely in memory."""
    return Streamed(_in_pieces(parts))


def _in_pieces(parts: Iterable[str]) -> Generator[bytes]:
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _PIECE:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


def no_profiling() -> Response:
    """Profiling is disabled; the defaults are Ray's, because the frontend reads them."""
    flags = ("native", "subprocesses", "idle", "leaks", "tracePythonAllocators", "pyspyNativeSupported")
    defaults: dict[str, Any] = dict.fromkeys(flags, False)
    defaults |= {"cpuDuration": 5, "memoryDuration": 10, "maxDuration": 60}
    defaults |= {"cpuFormat": "flamegraph", "memoryFormat": "flamegraph"}
    return enveloped({"profilingEnabled": False, "profilingDefaults": defaults})
