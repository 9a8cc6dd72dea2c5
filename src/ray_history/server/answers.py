"""Answers in the shapes that Ray's dashboard uses, and refusals that say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

JSON = "application/json; charset=utf-8"

LARGE = 4 << 20
"""Answers up to this size are made whole, and may be kept."""
_PIECE = 256 * 1024
_COMMA = b", "


class Refused(Exception):
    """A request that cannot be answered: the status, and a message for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ArchiveRefused(Refused):
    """The archive gives no answer, or refuses."""


def plain_json(body: Any, *, status: int = 200) -> Response:
    """A body without an envelope, as some of Ray's routes answer."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def enveloped(data: Mapping[str, Any], message: str = "", *, result: bool = True, status: int = 200) -> Response:
    """Ray's envelope."""
    return plain_json({"result": result, "msg": message, "data": data}, status=status)


def refusal(refused: Refused) -> Response:
    """The one shape of an error: Ray's envelope, with what Ray's own clients look for."""
    return plain_json({"result": False, "msg": refused.message, "data": {"result": None}}, status=refused.status)


def note_value(note: str) -> str:
    """A note as a header may carry it: the text of `X-Ray-History-Note`."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in note)[:500]


def listed_json(head: bytes, texts: Sequence[bytes], tail: bytes) -> Response:
    """JSON texts with commas between them, and what stands around them."""
    size = len(head) + sum(map(len, texts)) + len(_COMMA) * max(len(texts) - 1, 0) + len(tail)
    if size <= LARGE:
        return Response(head + _COMMA.join(texts) + tail, media_type=JSON)
    return _Joined(head, texts, tail, size)


class _Joined(Response):
    """A large answer, put together piece by piece as it is sent: as a whole it would fill as much memory again."""

    def __init__(self, head: bytes, texts: Sequence[bytes], tail: bytes, size: int) -> None:
        super().__init__(headers={"content-length": str(size)}, media_type=JSON)
        self._head, self._texts, self._tail = head, texts, tail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # as ASGI has it
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._head, "more_body": True})
        for begin, end in _runs(self._texts):
            comma = _COMMA if begin else b""
            piece = comma + _COMMA.join(self._texts[begin:end])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": self._tail})


def _runs(texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Where to cut texts into runs of about one piece."""
    begin = size = 0
    for number, text in enumerate(texts):
        size += len(text)
        if size >= _PIECE:
            yield begin, number + 1
            begin, size = number + 1, 0
    if begin < len(texts):
        yield begin, len(texts)


def streamed_json(parts: Iterable[str]) -> Response:
    """JSON text in pieces, never whole in memory."""
    return StreamingResponse(_in_pieces(parts), media_type=JSON)


def _in_pieces(parts: Iterable[str]) -> Iterator[bytes]:
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _PIECE:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()
