"""Pages of a listing one after the other: `cursor=` asks for the first, each answer names the next.

A cursor is only good for the question that it came with, on the tables that it came from: pages of a session that went
on in between would not fit together.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.endpoint import SessionRequest

_FURTHEST = 2**63 - 1
"""What a database takes: a token may be made by anybody."""


@dataclass(frozen=True, slots=True)
class Following:
    """Where to go on; the last page has no token."""

    token: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """The page that is asked for."""

    offset: int
    question: bytes

    def next(self, limit: int, rows: int) -> Following:
        """The page behind it, of so many rows in all."""
        end = self.offset + limit
        return Following(_written(end, self.question) if limit and end < rows else None)


def begun(request: SessionRequest) -> Page | None:
    """The page of `cursor`, empty for the first; None where nobody asks for one."""
    token = request.query.get("cursor")
    if token is None:
        return None
    if "offset" in request.query:
        raise ApiError(400, "cursor and offset are given; take one of them")
    question = _question(request)
    return Page(_read(token, question) if token else 0, question)


def _question(request: SessionRequest) -> bytes:
    manifest = request.open.opened.manifest
    told = [f"{name}={value}" for name, value in request.query.multi_items() if name != "cursor"]
    told += [request.http.url.path, str(request.open.ended_ns), *(file.digest for file in manifest.files)]
    return hashlib.blake2b("\n".join(told).encode(), digest_size=8).digest()


def _written(offset: int, question: bytes) -> str:
    return base64.urlsafe_b64encode(offset.to_bytes(8) + question).decode().rstrip("=")


def _read(token: str, question: bytes) -> int:
    try:
        told = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        told = b""
    offset = int.from_bytes(told[:8])
    if len(told) != 8 + len(question) or told[8:] != question or offset > _FURTHEST:
        raise ApiError(
            400,
            "cursor is of another question, or the session went on since; "
            "begin again with an empty cursor=, or go by offset=",
        )
    return offset
