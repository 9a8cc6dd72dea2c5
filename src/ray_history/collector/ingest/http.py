"""The HTTP side of the collector: receives Ray's event batches and serves the status pages.

A batch is appended to the spool and synced before it is acknowledged; batches that arrive together share one sync
(group commit). Batches are not parsed here: Ray sends a refused batch again, without end and before any other, so the
only reasons to refuse one are a body over the limit (413) and no space (503), and what Ray never sends: a content type
other than JSON (415; pages of other sites can only send others), and a body that does not arrive in time (408).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from ray_history.connections import CONNECTIONS, Connections

from .envelope import Unreadable, split
from .spool import Spool, SpoolFull

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Page = Callable[[], tuple[int, bytes, bytes]]
"""Status, content type and body of a status page."""

REQUEST_SECONDS = 10.0
"""Seconds in which a request must arrive whole; Ray's agent gives up after three."""

_RECENT_BATCHES = 512
"""Ray has one batch in flight per node and sends the same bytes again after a timeout."""


class Refusal(NamedTuple):
    """Why a batch was refused."""

    reason: str
    detail: str


class GroupCommit:
    """A thread that appends all waiting batches to the spool and syncs once for all of them."""

    def __init__(self, spool: Spool, acknowledged: Callable[[], None] = lambda: None) -> None:
        """`acknowledged` is called after bodies are durable."""
        self._spool = spool
        self._acknowledged = acknowledged
        self._waiting: queue.SimpleQueue[tuple[bytes, asyncio.Future[Refusal | None], asyncio.AbstractEventLoop] | None]
        self._waiting = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    async def commit(self, body: bytes) -> Refusal | None:
        """Durable on return, unless it returns a refusal."""
        # A refusal is returned, not raised: the frames of an exception keep the body alive until the next garbage
        # collection, and batches are refused when memory is short.
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Refusal | None] = loop.create_future()
        self._waiting.put((body, done, loop))
        return await done

    def stop(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            group = [first]
            while not self._waiting.empty():
                another = self._waiting.get()
                if another is None:
                    self._waiting.put(None)
                    break
                group.append(another)
            refusal: Refusal | None = None
            try:
                self._spool.append([body for body, _, _ in group])
                self._acknowledged()
            except SpoolFull as error:
                refusal = Refusal("full", str(error))
            except OSError as error:
                refusal = Refusal("disk", f"the spool cannot be written: {error}")
            for _, done, loop in group:
                loop.call_soon_threadsafe(_settle, done, refusal)
            group.clear()  # do not hold the bodies while waiting


def _settle(done: asyncio.Future[Refusal | None], refusal: Refusal | None) -> None:
    if not done.cancelled():
        done.set_result(refusal)


class _Arriving:
    """A batch whose body has not arrived whole."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        self.is_given_up = False
        self._task = asyncio.current_task()

    def give_up(self) -> None:
        """Free its memory, and end the waiting for the rest."""
        self.is_given_up = True
        self.chunks.clear()
        if self._task is not None:
            self._task.cancel()


class IngestApp:
    """The ASGI application."""

    def __init__(
        self,
        commit: GroupCommit,
        pages: dict[str, Page],
        *,
        body_bytes: int,
        connections: Connections | None = None,
    ) -> None:
        self._commit = commit
        self._pages = pages
        self._body_bytes = body_bytes
        self._in_flight = 0
        """Bytes of bodies in memory."""
        self._arriving: dict[_Arriving, None] = {}
        """The one that began first is the slowest."""
        self.connections = connections or Connections(request_seconds=REQUEST_SECONDS, body_bytes=math.inf)
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        self.batches = 0
        self.bytes = 0
        self.duplicated = 0
        """Events of batches that Ray sent again although they were stored."""
        self.refused = dict.fromkeys(("full", "busy", "slow", "too large", "content type", "disk"), 0)
        self.full = False
        """Whether the newest batch was refused."""
        self.last_post = 0.0
        """Monotonic time of the newest batch."""
        self._last_warning = 0.0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        if scope["type"] != "http":
            return
        path, method = scope["path"].rstrip("/"), scope["method"]
        if path == "/v1/events":
            if method != "POST":
                await _answer(send, 405, b"text/plain", b"POST a JSON array of Ray events\n", (b"allow", b"POST"))
            elif not _is_json(scope["headers"]):
                await self._refuse(send, 415, "content type", "a batch is not sent as application/json", _CLOSE)
            else:
                await self._receive(receive, send)
        elif (page := self._pages.get(path)) is not None:
            if method not in ("GET", "HEAD"):
                await _answer(send, 405, b"text/plain", b"GET only\n", (b"allow", b"GET, HEAD"))
                return
            status, kind, body = page()
            await _answer(send, status, kind, b"" if method == "HEAD" else body)
        else:
            await _answer(send, 404, b"text/plain", b"this is a Ray History collector: POST /v1/events\n")

    async def _live(self, scope: Message, receive: Receive, send: Send) -> None:
        scope["state"][CONNECTIONS] = self.connections
        for stage in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{stage}.complete"})

    async def _receive(self, receive: Receive, send: Send) -> None:
        self.last_post = time.monotonic()
        batch = _Arriving()
        self._arriving[batch] = None
        try:
            body = await self._body(batch, receive, send)
            self._arriving.pop(batch, None)
            if body is not None:
                await self._store(body, send)
        finally:
            self._arriving.pop(batch, None)
            self._in_flight -= batch.size

    async def _body(self, batch: _Arriving, receive: Receive, send: Send) -> bytes | None:
        """The whole body; None if the batch was refused, or its sender left."""
        while True:
            try:
                message = await receive()
            except asyncio.CancelledError:
                if not batch.is_given_up:
                    raise
                await self._refuse(send, 503, "slow", "too many batches at once, and this was the slowest", _CLOSE)
                return None
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            if batch.size + len(chunk) > self._body_bytes:
                await self._refuse(send, 413, "too large", f"a batch is larger than {self._body_bytes} bytes", _CLOSE)
                return None
            if not self._make_room(batch, len(chunk)):
                await self._refuse(send, 503, "busy", "too many batches at once", _CLOSE)
                return None
            batch.chunks.append(chunk)
            batch.size += len(chunk)
            self._in_flight += len(chunk)
            if not message.get("more_body"):
                body = b"".join(batch.chunks)
                batch.chunks.clear()
                return body

    def _make_room(self, batch: _Arriving, size: int) -> bool:
        """Room for more of a batch, at the cost of those that began before it: one that stalls must not stop others."""
        while self._in_flight + size > 2 * self._body_bytes:
            slowest = next(iter(self._arriving))
            if slowest is batch:
                return False
            del self._arriving[slowest]
            self._in_flight -= slowest.size
            slowest.size = 0
            slowest.give_up()
        return True

    async def _store(self, body: bytes, send: Send) -> None:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if digest in self._recent:
            self.duplicated += _count(body)
        else:
            refusal = await self._commit.commit(body)
            self.full = refusal is not None
            if refusal is not None:
                await self._refuse(send, 503, *refusal)
                return
            self._recent[digest] = None
            if len(self._recent) > _RECENT_BATCHES:
                self._recent.popitem(last=False)
        self.batches += 1
        self.bytes += len(body)
        await _answer(send, 200, b"text/plain", b"")

    async def _refuse(self, send: Send, status: int, reason: str, detail: str, *headers: tuple[bytes, bytes]) -> None:
        self.refused[reason] += 1
        if time.monotonic() - self._last_warning > 10:
            self._last_warning = time.monotonic()
            logger.error("refusing events, which Ray will send again: %s", detail)
        await _answer(send, status, b"text/plain", detail.encode() + b"\n", (b"retry-after", b"10"), *headers)


_CLOSE = (b"connection", b"close")
"""For answers to a body that has not arrived whole: the rest is not read."""


def _is_json(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    kinds = [value for name, value in headers if name == b"content-type"]
    return [kind.partition(b";")[0].strip().lower() for kind in kinds] == [b"application/json"]


def _count(body: bytes) -> int:
    try:
        return len(split(body))
    except Unreadable:
        return 1


async def _answer(send: Send, status: int, kind: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    base = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": base})
    await send({"type": "http.response.body", "body": body})
