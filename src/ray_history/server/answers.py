"""Answers in the shapes that Ray's dashboard uses, and refusals that say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

JSON = "application/json; charset=utf-8"

_PIECE = 256 * 1024


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
