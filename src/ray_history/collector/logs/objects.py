"""The whole objects of one node: their names, the files they belong to, and which may be overwritten.

An object belongs to a file (`owner`), or to none if the file is gone and the object is all that is left of it. It
is stale if its content is stored under another name too; only a stale object or one of the same owner may be
overwritten or deleted. After a start an object has no owner until its etag, or a comparison of bytes, identifies it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import msgspec

from ray_history.archive.errors import ArchiveError, NotFound
from ray_history.archive.stores import ObjectInfo
from ray_history.collector.destination import Destination

from .state import DeletedFile, LogState, TrackedFile

SAMPLE = 64 * 1024
"""Bytes compared at the start and at the end to decide whether two contents are equal."""

_CHUNK = 1024 * 1024

Content = Callable[[int, int], bytes]
"""Reads bytes `start` to `end`."""


class Interrupted(Exception):
    """An upload was given up: the deadline passed, or the file became shorter."""


@dataclass(slots=True, eq=False)
class StoredObject:
    """A whole object in the archive."""

    size: int
    etag: str | None = None
    owner: TrackedFile | DeletedFile | None = None
    until_ns: int = 0
    """When the file was last written, if there is no owner."""
    is_identified: bool = True
    """False after a start, until its owner was determined."""
    stale: bool = False


class Objects:
    """The whole log objects of one node and session."""

    def __init__(self, destination: Destination, session: str, node: str, state: LogState) -> None:
        self._destination = destination
        self._store = destination.store
        self._session, self._node = session, node
        self._state = state
        self.by_name: dict[str, StoredObject] = {}
        self.reserved: set[str] = set()
        """Names of running uploads."""
        self._doubtful: set[str] = set()
        self._changed = False

    def at(self, name: str) -> StoredObject | None:
        """The object of a name; reads it from the store after a failed put, which may have succeeded."""
        if name in self._doubtful:
            self._read_again(name)
        return self.by_name.get(name)

    def _read_again(self, name: str) -> None:
        before = self.by_name.get(name)
        try:
            info = self._store.head(self.key(name))
        except NotFound:
            self.by_name.pop(name, None)
        else:
            if before is None or not info.etag or info.etag != before.etag:
                until = int(info.modified.timestamp()) * 1_000_000_000
                self.by_name[name] = StoredObject(info.size, info.etag, None, until, is_identified=False)
        self._doubtful.discard(name)

    def _put(self, name: str, put: Callable[[str], object]) -> None:
        existing = self.by_name.get(name)
        own = existing is not None and existing.owner is not None  # old and new content are of the same file
        try:
            put(self.key(name))
        except ArchiveError:
            if not own:
                self._doubtful.add(name)
            raise

    def key(self, name: str) -> str:
        return self._destination.log(self._session, self._node, name)

    def info(self, name: str) -> ObjectInfo:
        """The object as in a listing."""
        return ObjectInfo(self.key(name), self.by_name[name].size, datetime.now(UTC), None)

    def list(self) -> dict[str, ObjectInfo]:
        """The objects in the store, by name."""
        prefix = os.path.dirname(self.key("x"))
        return {info.key.removeprefix(prefix + "/"): info for info in self._store.list(prefix)}

    def upload(self, name: str, source: Iterator[bytes]) -> int:
        """Store a body under a name; thread-safe."""
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in source:
                size += len(chunk)
                yield chunk

        self._put(name, lambda key: self._store.put_stream(key, counted()))
        return size

    def copy(self, source: str, target: str) -> None:
        """Store an object under another name too; by a download if the store cannot copy it (S3 above 5 GiB)."""
        begin = self.key(source)
        try:
            self._put(target, lambda key: self._store.copy(begin, key))
        except NotFound:
            raise
        except ArchiveError:
            self._put(target, lambda key: self._store.put_stream(key, self._store.stream(begin)))

    def content(self, name: str) -> Content:
        key = self.key(name)
        return lambda start, end: self._store.get_range(key, start, end - start)

    def is_prefix(self, name: str, size: int, content: Content) -> bool:
        """Whether the object is the start of this content, by its first and last bytes."""
        end = self.by_name[name].size
        if end > size:
            return False
        stored = self.content(name)
        return all(
            stored(start, stop) == content(start, stop)
            for start, stop in {(0, min(end, SAMPLE)), (max(0, end - SAMPLE), end)}
            if stop
        )

    def preserved_name(self, name: str, until_ns: int, size: int, content: Content) -> tuple[str, bool]:
        """A free name for the content that a file had until then, and whether it is stored there already."""
        moment = datetime.fromtimestamp(until_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
        for number in count(1):
            candidate = f"{name}.until-{moment}" + (f"-{number}" if number > 1 else "")
            if candidate in self._state.names or candidate in self.reserved:
                continue
            existing = self.at(candidate)
            if existing is None or existing.stale:
                return candidate, False
            if existing.owner is None and existing.size == size and self.is_prefix(candidate, size, content):
                return candidate, True
        raise AssertionError("unreachable")

    def mark_stale(self, name: str) -> None:
        """The content is stored elsewhere now."""
        existing = self.by_name[name]
        existing.owner, existing.is_identified, existing.stale = None, True, True
        self._state.remains.pop(name, None)
        self._state.leftovers[name] = existing.etag or ""

    def disown(self, name: str, until_ns: int) -> None:
        """The file is gone; the object is all that is left of it."""
        existing = self.by_name[name]
        existing.owner, existing.is_identified, existing.until_ns = None, True, until_ns
        self._state.remains[name] = until_ns

    def record(self, name: str, stored: StoredObject) -> None:
        """Note that this object was stored under the name."""
        self._doubtful.discard(name)
        self._changed = True
        self.by_name[name] = stored
        self._state.leftovers.pop(name, None)
        self._state.remains.pop(name, None)

    def delete_stale(self) -> None:
        stale = [name for name, existing in self.by_name.items() if existing.stale]
        if not stale:
            return
        self._store.delete_many([self.key(name) for name in stale])
        for name in stale:
            del self.by_name[name]
            self._state.leftovers.pop(name, None)

    def refresh_etags(self) -> None:
        """Read the etags of stored objects, by which a later start identifies them."""
        if not self._changed:
            return
        for name, info in self.list().items():
            existing = self.by_name.get(name)
            if existing is None or existing.size != info.size:
                continue
            existing.etag = info.etag
            owner = existing.owner
            if existing.is_identified and owner is not None and owner.whole is not None and owner.whole.name == name:
                owner.whole = msgspec.structs.replace(owner.whole, etag=info.etag)
            if existing.stale:
                self._state.leftovers[name] = info.etag or ""
        self._changed = False


def chunks(descriptor: int, size: int, check: Callable[[], None]) -> Iterator[bytes]:
    """The first `size` bytes of an open file in chunks; `check` raises when it is time to stop."""
    position = 0
    while position < size:
        check()
        try:
            chunk = os.pread(descriptor, min(_CHUNK, size - position), position)
        except OSError as error:
            raise Interrupted(f"the file cannot be read: {error.strerror}") from error
        if not chunk:
            raise Interrupted("the file became shorter while it was uploaded")
        position += len(chunk)
        yield chunk
