"""The interface of all stores.

Invariants, the same for all of them:
* a key is `/`-separated, relative, with no empty, `.` or `..` segment; it is stored verbatim, `?`, `&`, `=` included;
* an object is visible as a whole or not at all: a failed put leaves the old object or none;
* a read returns exactly the requested bytes or raises; a truncated body is never returned as a complete one;
* listings are complete or raise; "nothing there" and "cannot be read" are different outcomes;
* operations are synchronous and thread-safe, and each is bounded by a deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol

from ray_history.archive.errors import Misconfigured, TooLarge

READ_CHUNK = 4 * 1024 * 1024
"""Bytes per chunk of a stream: large enough for few requests, small in a 256 MiB sidecar."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object in a listing."""

    key: str
    size: int
    modified: datetime
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the key tree: directory prefixes without trailing slash, and objects."""

    directories: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


class Store(Protocol):
    """Objects under string keys."""

    url: str
    """The place, for messages; without credentials."""

    def check(self, *, create: bool = False) -> None:
        """Raise within seconds if the place cannot be used; `create` creates a missing bucket."""

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing an existing object."""

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        """Store a large body in parts, without holding it; returns its size. An exception of `source` aborts it."""

    def create(self, key: str, data: bytes) -> bool:
        """Store `data` if there is no object yet; False if there is one."""

    def get(self, key: str) -> bytes:
        """The content of the object."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes `start` to `start + length`; fewer only at the end of the object."""

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        """The content from `start` on, in chunks of about `READ_CHUNK`."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below the directory `prefix`, in any order, without directory markers."""

    def list_level(self, prefix: str = "") -> Level:
        """Objects and directories directly in the directory `prefix`."""

    def head(self, key: str) -> ObjectInfo:
        """Size, time and etag of one object."""

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, replacing an existing `target`."""

    def delete(self, key: str) -> None:
        """Delete one object; it is no error if there is none."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete many objects in as few requests as the store allows."""


def read_small(store: Store, key: str, most: int) -> bytes:
    """The content of an object; raises `TooLarge` beyond `most` bytes, whatever size is listed."""
    body = store.get_range(key, 0, most + 1)
    if len(body) > most:
        raise TooLarge(f"{store.url}/{key} has more than {most} bytes")
    return body


def require_key(key: str) -> str:
    """`key`, unless it could name another object on some store."""
    if not key or "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise Misconfigured(f"not a valid object key: {key!r}")
    return key


def require_prefix(prefix: str) -> str:
    """A directory prefix without slashes at its ends; empty for the root."""
    prefix = prefix.strip("/")
    return require_key(prefix) if prefix else ""


def chunks_of(source: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    """The body of a put in chunks, from a file or from chunks."""
    read = getattr(source, "read", None)
    if read is None:
        yield from source
        return
    while chunk := read(READ_CHUNK):
        yield chunk
