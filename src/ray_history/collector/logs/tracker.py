"""Tracks what happened to the log files since the last scan: new, grown, renamed, truncated, deleted.

A file is identified by its inode, so one with another name was rotated or moved. A deleted file that is still open here
is read to its end. Of any other file that was deleted or rewritten, the archive keeps what it has: it becomes a
`DeletedFile`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from .objects import Objects
from .scanner import Descriptors, Identity, ScannedFile, Vanished, read_at, walk
from .state import DeletedFile, Fingerprint, LogState, TrackedFile

NewFileFilter = Callable[[AbstractSet[Identity]], AbstractSet[Identity]]
"""Selects the files of this node from those that were not seen before."""

_LINE = 100  # assumed bytes per line that was not counted
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of one scan."""

    files: int
    pending_files: int
    pending_bytes: int
    """Not in the archive yet."""
    pending_lines: int
    """Lines in these bytes; an estimate beyond the bytes that a scan may read."""


class Tracker:
    """The files on the disk."""

    def __init__(
        self,
        root: Path,
        state: LogState,
        objects: Objects,
        descriptors: Descriptors,
        count_bytes: int,
        own_files: NewFileFilter,
    ) -> None:
        self._root = root
        self._state = state
        self._objects = objects
        self._descriptors = descriptors
        self._count_bytes = count_bytes
        self.own_files = own_files
        self.busy: AbstractSet[Identity] = frozenset()
        """Files that are being stored; what happens to them is noticed afterwards."""
        self._lines: dict[Identity, tuple[int, int, int]] = {}
        self._missed: set[Identity] = set()
        self.scanned = False
        self.unsent: set[TrackedFile] = set(state.files.values())
        """Files that may have bytes to upload; after a start all, so that each is first identified by its bytes."""
        self.unreadable: set[Identity] = set()
        self.problems: list[str] = []
        self.empty_directories: tuple[str, ...] = ()
        """Of the last scan."""

    def scan(self) -> ScanResult:
        """Walk the tree once."""
        tree = walk(self._root)
        for folder in tree.unlisted:
            self.report(f"log directory {folder or '.'} cannot be listed")
        self.empty_directories = tree.empty
        found = self._by_identity(tree.files)
        new = found.keys() - self._state.identities
        for foreign in new - self.own_files(new) if new else ():
            del found[foreign]
        renamed = self._update(found.values())
        self._handle_missing(found, tree.unlisted)
        if renamed or len(self._state.names) != len(self._state.files):
            self._state.names = {file.name: file for file in self._state.files.values()}
        self.scanned = True
        return self._result()

    def reset(self, file: TrackedFile, size: int) -> None:
        """Start over with a file that was truncated or rewritten, or whose inode number was reused."""
        counters = self._state.counters
        if size < file.reach:
            counters.bytes_lost += max(0, file.size - file.stored)
            counters.bytes_written += size
        else:  # its growth was counted already, its first bytes were not
            counters.bytes_written += file.stored + max(0, size - file.size)
        self._mark_deleted(file, file.stored_as, rewritten=True)  # its present name may be that of the new bytes
        file.streams, file.whole, file.fingerprint = [], None, Fingerprint()
        file.first_name, file.size = file.name, size
        self.unsent.add(file)

    def report_unreadable(self, file: TrackedFile, error: OSError) -> None:
        """Skip a file until the next scan: no permission, or a disk error."""
        self.unreadable.add(file.identity)
        self.report(f"log {file.name} cannot be read: {error.strerror}")

    def report(self, problem: str) -> None:
        """Note a problem once."""
        if problem not in self.problems and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
            self._state.counters.problems += 1

    def _by_identity(self, files: list[ScannedFile]) -> dict[Identity, ScannedFile]:
        """The files with one name each: a second link is not another file."""
        found: dict[Identity, ScannedFile] = {}
        tracked = self._state.files
        for each in files:
            other = found.setdefault(each.identity, each)
            if other is not each:
                file = tracked.get(each.identity)
                if each.name == file.name if file else each.name < other.name:
                    found[each.identity] = each
        return found

    def _update(self, found: Iterable[ScannedFile]) -> bool:
        files, counters = self._state.files, self._state.counters
        renamed = False
        for identity, name, size, mtime_ns in found:
            if identity in self.busy:
                continue
            file = files.get(identity)
            if file is None:
                file = self._state.gone.pop(identity, None)  # a previous scan missed it
                if file is None:
                    file = TrackedFile(*identity, name, name)
                    counters.files_seen += 1
                files[identity] = file
                renamed = True
            elif file.size == size and file.mtime_ns == mtime_ns and file.name == name:
                continue
            if size < file.reach:
                self.reset(file, size)
                file.first_name = name
            if file.name != name:
                file.name, file.empty_since = name, None
                renamed = True
            counters.bytes_lost += max(0, file.size - size)
            counters.bytes_written += max(0, size - file.size)
            file.size, file.mtime_ns = size, mtime_ns
            self.unsent.add(file)
        return renamed

    def _handle_missing(self, found: dict[Identity, ScannedFile], unlisted: tuple[str, ...]) -> None:
        state = self._state
        missing = state.files.keys() - found.keys() - self.busy
        taken = {each.name for each in found.values()} if missing else set()
        missed_before, self._missed = self._missed, set()
        for identity in missing:
            file = state.files[identity]
            if file.name.startswith(unlisted):
                continue
            descriptor = self._descriptors.already_open(identity)
            if descriptor is None:
                state.counters.bytes_lost += max(0, file.size - file.stored)
                self._mark_deleted(file, file.name)
            else:
                status = os.fstat(descriptor)
                if status.st_nlink and identity not in missed_before and file.name not in taken:
                    self._missed.add(identity)  # a walk may miss a file that is renamed at the same time
                    continue
                self._descriptors.hold(identity)
                state.gone[identity] = file
                state.counters.bytes_written += max(0, status.st_size - file.size)
                file.size, file.mtime_ns = status.st_size, status.st_mtime_ns
                self.unsent.add(file)
            del state.files[identity]

    def _mark_deleted(self, file: TrackedFile, name: str, *, rewritten: bool = False) -> None:
        self._lines.pop(file.identity, None)
        if not file.reach:
            return
        deleted = DeletedFile(name, file.mtime_ns, file.streams, file.whole, rewritten)
        self._state.deleted_files.append(deleted)
        if file.whole is not None:
            existing = self._objects.by_name.get(file.whole.name)
            if existing is not None and existing.owner is file:
                existing.owner = deleted

    def _result(self) -> ScanResult:
        state = self._state
        self.unsent = {
            file for file in self.unsent if file is (state.files.get(file.identity) or state.gone.get(file.identity))
        }
        pending_files = pending_bytes = pending_lines = 0
        budget = self._count_bytes
        for file in self.unsent:
            pending = file.size - file.stored
            if pending <= 0:
                continue
            pending_files += 1
            pending_bytes += pending
            lines, read = self._count_lines(file, budget)
            pending_lines += lines
            budget -= read
        return ScanResult(len(self._state.files), pending_files, pending_bytes, pending_lines)

    def _count_lines(self, file: TrackedFile, budget: int) -> tuple[int, int]:
        """Lines that are not in the archive, and the number of bytes read to count them."""
        stored, counted, lines = self._lines.get(file.identity, (-1, 0, 0))
        if stored != file.stored:
            stored, counted, lines = file.stored, file.stored, 0
        read = 0
        if counted < file.size and budget > 0:
            try:
                descriptor = self._descriptors.get(file.identity, file.name)
                data = read_at(descriptor, counted, min(file.size, counted + budget))
            except (Vanished, OSError):
                data = b""
            read = len(data)
            counted, lines = counted + read, lines + data.count(b"\n")
            self._lines[file.identity] = (stored, counted, lines)
        return lines + max(0, file.size - counted) // _LINE, read
