"""How far each log file is in the archive: what the collector must remember over a restart.

Invariants:
* Positions move only after the store confirmed the bytes. The file is written after that, so it may be behind the
  archive and never ahead of it; `recovery` catches up, also from an old copy or from none.
* A file is its device and inode, and the bytes at its begin and before the last position (`Mark`): another file that
  got the same inode number, or the same file written anew, does not have them.
* The state file is replaced as a whole, synced, only when something changed.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import msgspec

from .scanner import Identity, read_at

HEAD, EDGE = 1024, 256
"""Bytes that are compared to know a file again: at its begin, and before the position."""


_SAVE_INTERVAL = 1.0


class Stream(msgspec.Struct, omit_defaults=True, eq=False):
    """The tails of one file under one name: one generation of that path."""

    path: str
    generation: int
    sent: int = 0
    """Where the next tail starts."""
    extent: int = 0
    """Bundles may hold bytes up to here: what a whole object must have before they are deleted."""
    since: int | None = None
    """The first bundle with bytes that stand in no whole object; None when there is none."""


class Whole(msgspec.Struct, frozen=True, omit_defaults=True):
    """The object a file is stored in from its begin."""

    name: str
    size: int
    mtime_ns: int
    etag: str | None = None
    """None until a listing told it."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some bytes by which a file is known again."""

    head_size: int = 0
    head_crc: int = 0
    edge_end: int = 0
    edge_crc: int = 0

    @classmethod
    def at(cls, descriptor: int, end: int, last: bytes = b"") -> Mark:
        """Of a file that is stored up to `end`; `last` are bytes before `end` that were read already."""
        head = read_at(descriptor, 0, min(HEAD, end))
        edge = last[-EDGE:] if len(last) >= EDGE else read_at(descriptor, max(0, end - EDGE), end)
        return cls(len(head), zlib.crc32(head), end, zlib.crc32(edge))

    def is_on(self, descriptor: int) -> bool:
        head = read_at(descriptor, 0, self.head_size)
        edge = read_at(descriptor, max(0, self.edge_end - EDGE), self.edge_end)
        return zlib.crc32(head) == self.head_crc and zlib.crc32(edge) == self.edge_crc


class Followed(msgspec.Struct, omit_defaults=True, eq=False):
    """A log file on the disk, and where it is in the archive."""

    device: int
    inode: int
    name: str
    born: str
    """The name it was first seen under."""
    size: int = 0
    mtime_ns: int = 0
    streams: list[Stream] = []
    """The last one goes on; earlier ones wait for a whole object that has their bytes."""
    whole: Whole | None = None
    mark: Mark = Mark()

    @property
    def identity(self) -> Identity:
        return (self.device, self.inode)

    @property
    def stored(self) -> int:
        """Bytes that are in the archive, in tails or whole."""
        sent = max((stream.sent for stream in self.streams), default=0)
        return max(sent, self.whole.size) if self.whole else sent

    @property
    def reach(self) -> int:
        """Bytes that may be in the archive; a file that is shorter was truncated."""
        return max([self.stored, *(stream.extent for stream in self.streams)])

    @property
    def is_whole(self) -> bool:
        """A whole object has all of it, under its name."""
        whole = self.whole
        return whole is not None and (whole.name, whole.size, whole.mtime_ns) == (self.name, self.size, self.mtime_ns)

    @property
    def is_settled(self) -> bool:
        """It was renamed since it was stored, shipped or first seen, and stands nowhere whole under its name."""
        shipped_as = self.whole.name if self.whole is not None else self._sent_as or self.born
        return shipped_as != self.name and self.size > 0

    @property
    def stored_as(self) -> str:
        """The name that its newest bytes in the archive have there."""
        if self.whole is not None and self.whole.size >= max((stream.sent for stream in self.streams), default=0):
            return self.whole.name
        return self._sent_as or self.name

    @property
    def _sent_as(self) -> str:
        return next((stream.path for stream in reversed(self.streams) if stream.sent), "")

    def covered_by(self, whole: Whole) -> None:
        """Bundles are not needed for bytes that stand in this object now."""
        self.whole = whole
        for stream in self.streams:
            if stream.extent <= whole.size:
                stream.since = None
        self.streams = [s for s in self.streams if s.since is not None or s is self.streams[-1]]


class Former(msgspec.Struct, omit_defaults=True, eq=False):
    """A file that is no more (deleted, truncated), and whose bytes are in the archive in pieces."""

    name: str
    mtime_ns: int
    streams: list[Stream]
    whole: Whole | None = None


class Counters(msgspec.Struct):
    """What was done, since the first start on this volume."""

    files_seen: int = 0
    bytes_written: int = 0
    """By Ray, as far as it was seen."""
    bytes_stored: int = 0
    """Of them in the archive, in tails or whole."""
    bytes_lost: int = 0
    """Gone from the disk before they were stored."""
    bytes_uploaded: int = 0
    """Sent to the store: compressed tails and whole files."""
    bundles: int = 0
    whole_uploads: int = 0
    problems: int = 0


class _State(msgspec.Struct, omit_defaults=True):
    session: str
    node: str
    next_sequence: int
    next_generation: int
    files: list[Followed] = []
    formers: list[Former] = []
    paths: dict[str, tuple[int, int]] = {}
    barriers: list[int] = []
    remains: dict[str, int] = {}
    leftovers: dict[str, str] = {}
    counters: Counters = msgspec.field(default_factory=Counters)


class Positions:
    """All files, and the state file they are kept in."""

    def __init__(self, state_file: Path, session: str, node: str) -> None:
        self._file = state_file
        self.node = node
        self.lost = ""
        """Why nothing was remembered; empty when something was."""
        state = self._load(session, node)
        # Numbers that tell the time are larger than those of any earlier life, also one whose state file comes back.
        now = time.time_ns() // 1000
        self._state = state or _State(session, node, now, now)
        self._saved = msgspec.json.encode(self._state) if state else b""
        self._saved_at = 0.0
        self.files: dict[Identity, Followed] = {file.identity: file for file in self._state.files}
        self.gone: dict[Identity, Followed] = {}
        """Deleted and still open."""
        self.names: dict[str, Followed] = {file.name: file for file in self.files.values()}
        self.formers = self._state.formers
        self.paths = self._state.paths
        """Of each path in live bundles: its newest generation and the last bundle that has bytes of it."""
        self.barriers = self._state.barriers
        """Bundles in which a path's generation grows: those before are deleted before them."""
        self.remains = self._state.remains
        """Objects whose file is gone, and when that was last written (ns)."""
        self.leftovers = self._state.leftovers
        """Objects whose content stands elsewhere too, and their etags."""
        self.counters = self._state.counters
        self.next_sequence = self._state.next_sequence
        self.known_sequence = 0 if self.lost else self.next_sequence
        """Bundles from here on were put and not remembered."""
        self.next_generation = self._state.next_generation

    @property
    def identities(self) -> AbstractSet[Identity]:
        """All files that are followed."""
        return self.files.keys() | self.gone.keys()

    def streams(self) -> list[Stream]:
        return [stream for holder in self.holders() for stream in holder.streams]

    def holders(self) -> list[Followed | Former]:
        """All that has, or had, bytes in the archive."""
        return [*self.files.values(), *self.gone.values(), *self.formers]

    def save_soon(self) -> None:
        """Write the state file unless that was a moment ago: to be behind costs a look at the archive, no bytes."""
        if time.monotonic() - self._saved_at >= _SAVE_INTERVAL:
            self.save()

    def save(self) -> None:
        """Write the state file when something changed."""
        self._saved_at = time.monotonic()
        state = self._state
        state.files = [*self.files.values(), *self.gone.values()]
        state.next_sequence, state.next_generation = self.next_sequence, self.next_generation
        encoded = msgspec.json.encode(state)
        if encoded == self._saved:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_name(self._file.name + ".new")
        with open(temporary, "wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._saved = encoded

    def _load(self, session: str, node: str) -> _State | None:
        data = b""
        with suppress(FileNotFoundError):
            data = self._file.read_bytes()
        if not data:
            self.lost = f"there is no {self._file}"
            return None
        try:
            state = msgspec.json.decode(data, type=_State)
        except msgspec.DecodeError as error:
            self.lost = f"{self._file} cannot be understood: {error}"
            return None
        if (state.session, state.node) != (session, node):
            self.lost = f"{self._file} is of session {state.session} on node {state.node}"
            return None
        return state
