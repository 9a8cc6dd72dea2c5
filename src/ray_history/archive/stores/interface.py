"""One interface over every place an archive can live.

Invariants, the same for all stores:
* a key is `/`-separated, relative, with no empty, `.` or `..` segment; it is stored verbatim, `?`, `&`, `=` included;
* an object is visible whole or not at all: a put that fails or is cancelled leaves the old object or none;
* a read returns exactly the bytes asked for or raises; a body cut short is never returned as a whole one;
* listings are complete or raise; "nothing there" and "could not look" are different outcomes;
* operations are synchronous and thread-safe, each bounded by a deadline; `AsyncStore` runs them off the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol

from ..errors import Misconfigured

READ_CHUNK = 4 * 1024 * 1024
"""Bytes held at a time while streaming: large enough for few requests, small beside a 256 MiB sidecar."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing tells about one object."""

    key: str
    size: int
    modified: datetime
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the key tree: directory prefixes without trailing slash, and the objects beside them."""

    directories: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


class Store(Protocol):
    """A flat space of objects under string keys."""

    url: str
    """Where this is, for messages; never holds credentials."""

    def check(self, *, create: bool = False) -> None:
        """Fail within seconds, in one line, when the place cannot be used; `create` makes a missing bucket."""

    def put(self, key: str, data: bytes) -> None:
        """Store `data` whole, replacing what was there."""

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        """Store a large body part by part without holding it; returns its size. An exception of `source` aborts it."""

    def create(self, key: str, data: bytes) -> bool:
        """Store `data` only when nothing is there; False when something was."""

    def get(self, key: str) -> bytes:
        """The whole object."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes `start` to `start + length`, fewer only at the object's end."""

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        """The object from `start` on, in chunks of about `READ_CHUNK`."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below the directory `prefix`, in no promised order, directory markers left out."""

    def list_level(self, prefix: str = "") -> Level:
        """What stands directly in the directory `prefix`."""

    def head(self, key: str) -> ObjectInfo:
        """Size, time and etag of one object."""

    def copy(self, source: str, target: str) -> None:
        """Store the object `source` under `target` too, inside the store, replacing what was there."""

    def delete(self, key: str) -> None:
        """Remove one object; it is no error when there is none."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove many objects in as few requests as the store allows."""


def require_key(key: str) -> str:
    """Refuse a key that could mean another object on some store."""
    if not key or "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise Misconfigured(f"not a valid object key: {key!r}")
    return key


def require_prefix(prefix: str) -> str:
    """A directory prefix without its slashes at the ends; empty for the root."""
    prefix = prefix.strip("/")
    return require_key(prefix) if prefix else ""


def chunks_of(source: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    """The body of a put in pieces, whether it came as a file or as pieces."""
    read = getattr(source, "read", None)
    if read is None:
        yield from source
        return
    while chunk := read(READ_CHUNK):
        yield chunk
