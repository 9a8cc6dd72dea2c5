"""Paging of listings by `cursor`: empty asks for the first page, each answer holds the `next_cursor`.

A cursor is valid only for the query that it came with, on the same tables: pages of a session that changed in between
would not fit together.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.endpoint import SessionRequest

OFFSET_MAX = 2**63 - 1
"""The largest offset that DuckDB takes; a token can be forged."""
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class Page:
    """The page that a request asks for."""

    offset: int
    query_hash: bytes
    """Of the query and of the state of the session."""

    def next_token(self, limit: int, rows: int) -> str | None:
        """The cursor of the following page, None on the last of all `rows`."""
        end = self.offset + limit
        return encode(end, self.query_hash) if limit and end < rows else None


def requested_page(request: SessionRequest) -> Page | None:
    """The page of the `cursor` parameter; None without one."""
    token = request.query.get("cursor")
    if token is None:
        return None
    if "offset" in request.query:
        raise ApiError(400, "use either cursor or offset, not both")
    query_hash = _query_hash(request)
    return Page(decode(token, query_hash) if token else 0, query_hash)


def _query_hash(request: SessionRequest) -> bytes:
    manifest = request.open.opened.manifest
    parts = [f"{name}={value}" for name, value in request.query.multi_items() if name != "cursor"]
    parts += [request.http.url.path, str(request.open.ended_ns), *(file.digest for file in manifest.files)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).digest()


def encode(offset: int, query_hash: bytes) -> str:
    return base64.urlsafe_b64encode(offset.to_bytes(_OFFSET_BYTES) + query_hash).decode().rstrip("=")


def decode(token: str, query_hash: bytes) -> int:
    """The offset of a token; refused if it is of another query."""
    try:
        decoded = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        decoded = b""
    offset = int.from_bytes(decoded[:_OFFSET_BYTES])
    if decoded[_OFFSET_BYTES:] != query_hash or offset > OFFSET_MAX:
        raise ApiError(
            400,
            "the cursor belongs to another query, or the session has changed since; "
            "start again with an empty cursor=, or use offset=",
        )
    return offset
