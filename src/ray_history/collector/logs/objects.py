"""The whole objects of one node: which stand under which name, whose they are, and what may be overwritten.

An object is its file's (`owner`), or nobody's: its file is gone and it is all that is left of it. An object is `stale`
when its content stands under another name too; only such a one, or its owner's, may be overwritten or deleted. After a
start an object is nobody's until its etag, or a look at its bytes, tells that it is what was remembered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import msgspec

from ...archive.errors import ArchiveError, NotFound
from ...archive.stores import ObjectInfo
from ..destination import Destination
from .state import Followed, Former, Positions

SAMPLE = 64 * 1024
"""Bytes compared at the begin and at the end to know whether two contents are the same."""

_CHUNK = 1024 * 1024

Content = Callable[[int, int], bytes]
"""Reads bytes `start` to `end`."""


class Interrupted(Exception):
    """An upload was given up: the time was over, or the file became shorter under it."""


@dataclass(slots=True, eq=False)
class Standing:
    """An object that is there."""

    size: int
    etag: str | None = None
    owner: Followed | Former | None = None
    until_ns: int = 0
    """When the file was last written, if it is nobody's."""
    known: bool = True
    """False after a start, as long as nobody looked whose it is."""
    stale: bool = False


class Objects:
    """The whole log objects of one node and session."""

    def __init__(self, destination: Destination, session: str, node: str, positions: Positions) -> None:
        self._destination = destination
        self._store = destination.store
        self._session, self._node = session, node
        self._positions = positions
        self.standing: dict[str, Standing] = {}
        self.reserved: set[str] = set()
        """Names something is on its way to."""
        self._doubtful: set[str] = set()
        self._changed = False

    def at(self, name: str) -> Standing | None:
        """What stands under a name; asks the store when a put failed there, because that may have arrived."""
        if name in self._doubtful:
            self._ask(name)
        return self.standing.get(name)

    def _ask(self, name: str) -> None:
        before = self.standing.get(name)
        try:
            info = self._store.head(self.key(name))
        except NotFound:
            self.standing.pop(name, None)
        else:
            if before is None or not info.etag or info.etag != before.etag:
                until = int(info.modified.timestamp()) * 1_000_000_000
                self.standing[name] = Standing(info.size, info.etag, None, until, known=False)
        self._doubtful.discard(name)

    def _put(self, name: str, put: Callable[[str], object]) -> None:
        there = self.standing.get(name)
        own = there is not None and there.owner is not None  # then old and new are the same file's
        try:
            put(self.key(name))
        except ArchiveError:
            if not own:
                self._doubtful.add(name)
            raise

    def key(self, name: str) -> str:
        return self._destination.log(self._session, self._node, name)

    def info(self, name: str) -> ObjectInfo:
        """What a reader of the archive needs to know of a standing object."""
        return ObjectInfo(self.key(name), self.standing[name].size, datetime.now(UTC), None)

    def list(self) -> dict[str, ObjectInfo]:
        """The objects that are in the store, by name."""
        prefix = os.path.dirname(self.key("x"))
        return {info.key.removeprefix(prefix + "/"): info for info in self._store.list(prefix)}

    def upload(self, name: str, source: Iterator[bytes]) -> int:
        """Store a body under a name; safe in threads."""
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in source:
                size += len(chunk)
                yield chunk

        self._put(name, lambda key: self._store.put_stream(key, counted()))
        return size

    def copy(self, source: str, target: str) -> None:
        """Store an object under another name too; through here when the store cannot (S3 above 5 GiB)."""
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

    def begins(self, name: str, size: int, content: Content) -> bool:
        """Whether the object is the begin of this content, by its first and last bytes."""
        end = self.standing[name].size
        if end > size:
            return False
        stored = self.content(name)
        return all(
            stored(start, stop) == content(start, stop)
            for start, stop in {(0, min(end, SAMPLE)), (max(0, end - SAMPLE), end)}
            if stop
        )

    def keep_name(self, name: str, until_ns: int, size: int, content: Content) -> tuple[str, bool]:
        """A free name for what a file held until then, and whether this very content stands there already."""
        moment = datetime.fromtimestamp(until_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
        for number in count(1):
            kept = f"{name}.until-{moment}" + (f"-{number}" if number > 1 else "")
            if kept in self._positions.names or kept in self.reserved:
                continue
            there = self.at(kept)
            if there is None or there.stale:
                return kept, False
            if there.owner is None and there.size == size and self.begins(kept, size, content):
                return kept, True
        raise AssertionError("unreachable")

    def forsake(self, name: str) -> None:
        """The content stands elsewhere now."""
        there = self.standing[name]
        there.owner, there.known, there.stale = None, True, True
        self._positions.remains.pop(name, None)
        self._positions.leftovers[name] = there.etag or ""

    def release(self, name: str, until_ns: int) -> None:
        """The file is gone; the object is all there is."""
        there = self.standing[name]
        there.owner, there.known, there.until_ns = None, True, until_ns
        self._positions.remains[name] = until_ns

    def take(self, name: str, standing: Standing) -> None:
        """This object stands under the name now."""
        self._doubtful.discard(name)
        self._changed = True
        self.standing[name] = standing
        self._positions.leftovers.pop(name, None)
        self._positions.remains.pop(name, None)

    def delete_stale(self) -> None:
        stale = [name for name, there in self.standing.items() if there.stale]
        if not stale:
            return
        self._store.delete_many([self.key(name) for name in stale])
        for name in stale:
            del self.standing[name]
            self._positions.leftovers.pop(name, None)

    def note_etags(self) -> None:
        """Learn the etags of what was stored, so that a later start knows it again."""
        if not self._changed:
            return
        for name, info in self.list().items():
            there = self.standing.get(name)
            if there is None or there.size != info.size:
                continue
            there.etag = info.etag
            owner = there.owner
            if there.known and owner is not None and owner.whole is not None and owner.whole.name == name:
                owner.whole = msgspec.structs.replace(owner.whole, etag=info.etag)
            if there.stale:
                self._positions.leftovers[name] = info.etag or ""
        self._changed = False


def chunks(descriptor: int, size: int, check: Callable[[], None]) -> Iterator[bytes]:
    """The first `size` bytes of an open file, a few at a time; `check` raises when it is time to stop."""
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
