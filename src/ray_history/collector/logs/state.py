"""How far each log file is in the archive: what the collector must remember across restarts.

Invariants:
* positions move only after the store confirmed the bytes. The state file is written after that, so it may be behind
  the archive but never ahead; `recovery` catches up, even from an old copy or without one;
* a file is identified by device and inode, and by bytes at its start and before the last position (`Fingerprint`):
  another file with a reused inode number, or the same file rewritten, does not have them;
* the state file is replaced as a whole and synced, only if something changed.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from ray_history.collector.saved_file import DamagedFile, load, save
from ray_history.decoding import DECODING_ERRORS

from .scanner import Identity, read_at

HEAD, EDGE = 1024, 256
"""Bytes that identify a file: at its start, and before the position."""

_SAVE_INTERVAL = 1.0


class Stream(msgspec.Struct, omit_defaults=True, eq=False):
    """The tails of one file under one name: one generation of that path."""

    path: str
    generation: int
    sent: int = 0
    """Where the next tail starts."""
    extent: int = 0
    """Bundles may have bytes up to here; a whole object must have as many before they are deleted."""
    since: int | None = None
    """The first bundle with bytes that no whole object has; None if there is none."""


class WholeObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The object that has a file from its start."""

    name: str
    size: int
    mtime_ns: int
    etag: str | None = None
    """None until the objects were listed."""


class Fingerprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Checksums of bytes that identify a file."""

    head_size: int = 0
    head_crc: int = 0
    edge_end: int = 0
    edge_crc: int = 0

    @classmethod
    def of(cls, descriptor: int, end: int, last: bytes = b"") -> Fingerprint:
        """The fingerprint of a file stored up to `end`; `last` are bytes before `end` that were read already."""
        head = read_at(descriptor, 0, min(HEAD, end))
        edge = last[-EDGE:] if len(last) >= EDGE else read_at(descriptor, max(0, end - EDGE), end)
        return cls(len(head), zlib.crc32(head), end, zlib.crc32(edge))

    def matches(self, descriptor: int) -> bool:
        head = read_at(descriptor, 0, self.head_size)
        edge = read_at(descriptor, max(0, self.edge_end - EDGE), self.edge_end)
        return zlib.crc32(head) == self.head_crc and zlib.crc32(edge) == self.edge_crc


class TrackedFile(msgspec.Struct, omit_defaults=True, eq=False):
    """A log file on the disk, and its position in the archive."""

    device: int
    inode: int
    name: str
    first_name: str = msgspec.field(name="born")
    """The first name under which it was seen."""
    size: int = 0
    mtime_ns: int = 0
    streams: list[Stream] = []
    """The last one continues; earlier ones wait for a whole object with their bytes."""
    whole: WholeObject | None = None
    fingerprint: Fingerprint = msgspec.field(default=Fingerprint(), name="mark")
    empty_since: int | None = None
    """The bundle that names this file, which has no bytes yet."""

    @property
    def identity(self) -> Identity:
        return (self.device, self.inode)

    @property
    def stored(self) -> int:
        """Bytes in the archive, in tails or in a whole object."""
        sent = max((stream.sent for stream in self.streams), default=0)
        return max(sent, self.whole.size) if self.whole else sent

    @property
    def reach(self) -> int:
        """Bytes that may be in the archive; a shorter file was truncated."""
        return max([self.stored, *(stream.extent for stream in self.streams)])

    @property
    def is_whole(self) -> bool:
        """Whether a whole object of its name has all of it."""
        whole = self.whole
        return whole is not None and (whole.name, whole.size, whole.mtime_ns) == (self.name, self.size, self.mtime_ns)

    @property
    def is_renamed(self) -> bool:
        """Whether it has another name than when it was last stored, or first seen."""
        shipped_as = self.whole.name if self.whole is not None else self._sent_as or self.first_name
        return shipped_as != self.name and self.size > 0

    @property
    def stored_as(self) -> str:
        """The name of its newest bytes in the archive."""
        if self.whole is not None and self.whole.size >= max((stream.sent for stream in self.streams), default=0):
            return self.whole.name
        return self._sent_as or self.name

    @property
    def _sent_as(self) -> str:
        return next((stream.path for stream in reversed(self.streams) if stream.sent), "")

    def covered_by(self, whole: WholeObject) -> None:
        """Set the whole object; bundles are no longer needed for the bytes that it has."""
        self.whole, self.empty_since = whole, None
        for stream in self.streams:
            if stream.extent <= whole.size:
                stream.since = None
        self.streams = [s for s in self.streams if s.since is not None or s is self.streams[-1]]


class DeletedFile(msgspec.Struct, omit_defaults=True, eq=False):
    """A file that was deleted or truncated, with bytes in the archive."""

    name: str
    mtime_ns: int
    streams: list[Stream]
    whole: WholeObject | None = None
    rewritten: bool = False
    """The file still exists, with other content."""


class Rewrites(msgspec.Struct, omit_defaults=True):
    """The preserved former contents of a file that is rewritten in place."""

    gap_ns: int = 0
    """Time between two that are kept, doubled each time there are too many."""
    kept: list[tuple[int, str]] = []
    """The time of the last write of each, and the name of its object."""


class Counters(msgspec.Struct):
    """Counters since the first start on this volume."""

    files_seen: int = 0
    bytes_written: int = 0
    """By Ray, as far as scans saw it."""
    bytes_stored: int = 0
    """Of these, in the archive."""
    bytes_lost: int = 0
    """Deleted or overwritten before they were stored."""
    bytes_uploaded: int = 0
    """To the store: compressed tails and whole files."""
    bundles: int = 0
    whole_uploads: int = 0
    problems: int = 0


class _StateFile(msgspec.Struct, omit_defaults=True):
    session: str
    node: str
    next_sequence: int
    next_generation: int
    files: list[TrackedFile] = []
    deleted_files: list[DeletedFile] = msgspec.field(default_factory=list, name="formers")
    paths: dict[str, tuple[int, int]] = {}
    barriers: list[int] = []
    remains: dict[str, int] = {}
    leftovers: dict[str, str] = {}
    rewrites: dict[str, Rewrites] = {}
    counters: Counters = msgspec.field(default_factory=Counters)


class LogState:
    """All log files of a node, and the state file."""

    def __init__(self, state_file: Path, session: str, node: str) -> None:
        self._file = state_file
        self.session, self.node = session, node
        self.lost = ""
        """Why there is no state of an earlier process; empty if there is."""
        loaded = self._load(session, node)
        # Numbers made of the time are larger than those of any earlier process, even if an old state file comes back.
        now = time.time_ns() // 1000
        self._content = loaded or _StateFile(session, node, now, now)
        self._saved = msgspec.json.encode(self._content) if loaded else b""
        self._saved_at = 0.0
        self.files: dict[Identity, TrackedFile] = {file.identity: file for file in self._content.files}
        self.gone: dict[Identity, TrackedFile] = {}
        """Deleted, but still open."""
        self.names: dict[str, TrackedFile] = {file.name: file for file in self.files.values()}
        self.deleted_files = self._content.deleted_files
        self.paths = self._content.paths
        """By path in existing bundles: its newest generation, and the last bundle with bytes of it."""
        self.barriers = self._content.barriers
        """Bundles in which the generation of a path grows: earlier bundles are deleted before them."""
        self.remains = self._content.remains
        """Objects of deleted files, with the time of the last write (ns)."""
        self.leftovers = self._content.leftovers
        """Objects with content that is stored elsewhere too, and their etags."""
        self.rewrites = self._content.rewrites
        """By the name of a file that is rewritten in place."""
        self.counters = self._content.counters
        self.next_sequence = self._content.next_sequence
        self.known_sequence = 0 if self.lost else self.next_sequence
        """Bundles from here on are missing in the state file."""
        self.next_generation = self._content.next_generation

    @property
    def identities(self) -> AbstractSet[Identity]:
        """All tracked files."""
        return self.files.keys() | self.gone.keys()

    def streams(self) -> list[Stream]:
        return [stream for holder in self.holders() for stream in holder.streams]

    def holders(self) -> list[TrackedFile | DeletedFile]:
        """All files that have, or had, bytes in the archive."""
        return [*self.files.values(), *self.gone.values(), *self.deleted_files]

    def save_soon(self) -> None:
        """Write the state file unless it was just written: an old one costs a look at the archive, but no bytes."""
        if time.monotonic() - self._saved_at >= _SAVE_INTERVAL:
            self.save()

    def save(self) -> None:
        """Write the state file if something changed."""
        self._saved_at = time.monotonic()
        content = self._content
        content.files = [*self.files.values(), *self.gone.values()]
        content.next_sequence, content.next_generation = self.next_sequence, self.next_generation
        encoded = msgspec.json.encode(content)
        if encoded == self._saved:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        save(self._file, encoded)
        self._saved = encoded

    def _load(self, session: str, node: str) -> _StateFile | None:
        try:
            state = msgspec.json.decode(load(self._file), type=_StateFile)
        except FileNotFoundError:
            self.lost = f"there is no {self._file}"
            return None
        except (*DECODING_ERRORS, DamagedFile) as error:
            self.lost = f"{self._file} is damaged: {error}"
            return None
        if (state.session, state.node) != (session, node):
            self.lost = f"{self._file} is of session {state.session} on node {state.node}"
            return None
        return state
