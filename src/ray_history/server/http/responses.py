"""Answers in the shapes that Ray's dashboard uses, and refusals that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

JSON = "application/json; charset=utf-8"

LARGE = 4 << 20
"""Answers up to this size may be kept."""
_PIECE = 256 * 1024
_COMMA = b", "


class ApiError(Exception):
    """A request that cannot be answered: the status, and a message for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ArchiveFailure(ApiError):
    """The archive gives no answer, or refuses."""


def plain_json(body: Any, *, status: int = 200) -> Response:
    """A body without an envelope, as some of Ray's routes answer."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def enveloped(data: Mapping[str, Any], message: str = "", *, result: bool = True, status: int = 200) -> Response:
    """Ray's envelope."""
    return plain_json({"result": result, "msg": message, "data": data}, status=status)


def error_response(refused: ApiError) -> Response:
    """The one shape of an error: Ray's envelope, with what Ray's own clients look for."""
    return plain_json({"result": False, "msg": refused.message, "data": {"result": None}}, status=refused.status)


def note_value(note: str) -> str:
    """A note as a header may carry it: the text of `X-Ray-History-Note`."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in note)[:500]


def listed_json(head: bytes, texts: Iterable[bytes], tail: bytes) -> Response:
    """JSON texts with commas between them, and what stands around them."""
    return Response(head + _COMMA.join(texts) + tail, media_type=JSON)


def growing_json(head: bytes, texts: Iterator[Sequence[bytes]], tail: bytes) -> Response:
    """The same of many texts, sent while they are made; who makes them never waits for who reads them."""
    return StreamingResponse(_growing(head, texts, tail), media_type=JSON)


async def _growing(head: bytes, texts: Iterator[Sequence[bytes]], tail: bytes) -> AsyncIterator[bytes]:
    loop, made = asyncio.get_running_loop(), asyncio.Queue[bytes | BaseException | None]()
    is_wanted = True

    def make() -> None:
        end, before = None, list[bytes]()
        try:
            for some in texts:
                if some:
                    loop.call_soon_threadsafe(made.put_nowait, _COMMA.join([*before, *some]))
                    before = [b""]
                if not is_wanted:
                    return
        except Exception as error:  # noqa: BLE001  # it is raised where the answer is sent
            end = error
        loop.call_soon_threadsafe(made.put_nowait, end)

    # Not in a thread of those that handlers run in: all of them may be waiting for this to end.
    loop.run_in_executor(None, make)
    yield head
    try:
        while isinstance(piece := await made.get(), bytes):
            yield piece
    finally:
        is_wanted = False
    if piece is not None:
        raise piece  # breaks off what was promised to be whole
    yield tail


class Streamed(StreamingResponse):
    """JSON that is made while it is read. Once nobody reads on, its maker is closed, and what that held is free."""

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
    """JSON text in pieces, never whole in memory."""
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
    """Nothing can be profiled; the defaults are Ray's, since the frontend reads them."""
    flags = ("native", "subprocesses", "idle", "leaks", "tracePythonAllocators", "pyspyNativeSupported")
    defaults: dict[str, Any] = dict.fromkeys(flags, False)
    defaults |= {"cpuDuration": 5, "memoryDuration": 10, "maxDuration": 60}
    defaults |= {"cpuFormat": "flamegraph", "memoryFormat": "flamegraph"}
    return enveloped({"profilingEnabled": False, "profilingDefaults": defaults})
