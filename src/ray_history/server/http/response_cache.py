"""A cache of answers about ended sessions: they never change, and dashboards request the same ones repeatedly."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from ray_history.server.http.responses import LARGE

OVERHEAD = 2048
"""Bytes that an answer takes beyond its body: its headers and its place in the cache."""


class ResponseCache:
    """Answers by their tag, up to a limit of bytes; the least recently used are evicted."""

    def __init__(self, max_bytes: int, largest: int = LARGE) -> None:
        self._max_bytes, self._largest = max_bytes, largest
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = OrderedDict()
        self.bytes = 0

    def get(self, tag: str) -> Response | None:
        with self._lock:
            found = self._answers.get(tag)
            if found is None:
                return None
            self._answers.move_to_end(tag)
        body, headers = found
        response = Response(body)
        response.raw_headers = list(headers)
        return response

    def store(self, tag: str, response: Response) -> None:
        """Store the answer now, or, if it is streamed, once it was sent completely."""
        if isinstance(response, StreamingResponse):
            response.body_iterator = self._copying(tag, response, response.body_iterator)  # type: ignore[arg-type]
        elif type(response) is Response:
            self._put(tag, bytes(response.body), response.raw_headers)

    async def _copying(
        self, tag: str, response: StreamingResponse, pieces: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        held: list[bytes] | None = []
        size = 0
        async for piece in pieces:
            size += len(piece)
            if size > self._largest:
                held = None
            if held is not None:
                held.append(piece)
            yield piece
        if held is not None:
            headers = [*response.raw_headers, (b"content-length", str(size).encode())]
            self._put(tag, b"".join(held), headers)

    def _put(self, tag: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        if len(body) > self._largest:
            return
        with self._lock:
            if tag in self._answers:
                return
            self._answers[tag] = (body, list(headers))
            self.bytes += len(body) + OVERHEAD
            while self.bytes > self._max_bytes:
                _, (evicted, _) = self._answers.popitem(last=False)
                self.bytes -= len(evicted) + OVERHEAD
