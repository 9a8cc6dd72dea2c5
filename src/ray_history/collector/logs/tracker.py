"""What happened to the log files since the last look: new, grown, renamed, truncated, deleted.

A file is known by its inode, so one with another name was rotated or moved. One that is gone while it was still open
here is read to its end; of any other that is gone, or begins anew, what the archive has stays: it becomes a `Former`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from .objects import Objects
from .scanner import Descriptors, Found, Identity, Vanished, read_at, walk
from .state import Followed, Former, Mark, Positions

Strangers = Callable[[AbstractSet[Identity]], AbstractSet[Identity]]
"""Which of the files that were not seen before are this node's; asked after all of them were seen."""

_LINE = 100  # bytes, of lines that were not counted
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What one look at the log files found."""

    files: int
    pending_files: int
    pending_bytes: int
    """Not in the archive yet."""
    pending_lines: int
    """Among them; beyond the bytes a scan may read, a guess."""


class Follower:
    """Knows the files on the disk."""

    def __init__(
        self,
        root: Path,
        positions: Positions,
        objects: Objects,
        descriptors: Descriptors,
        count_bytes: int,
        ours_of: Strangers,
    ) -> None:
        self._root = root
        self._positions = positions
        self._objects = objects
        self._descriptors = descriptors
        self._count_bytes = count_bytes
        self.ours_of = ours_of
        self._lines: dict[Identity, tuple[int, int, int]] = {}
        self._missed: set[Identity] = set()
        self.scanned = False
        self.unsent: set[Followed] = set(positions.files.values())
        """Files that may have bytes to ship; after a start all, so that each is known again by its bytes first."""
        self.unreadable: set[Identity] = set()
        self.problems: list[str] = []

    def scan(self) -> ScanResult:
        """One walk over the tree."""
        tree = walk(self._root)
        for folder in tree.unlisted:
            self.report(f"log directory {folder or '.'} cannot be listed")
        found = self._by_identity(tree.files)
        strangers = found.keys() - self._positions.identities
        for other in strangers - self.ours_of(strangers) if strangers else ():
            del found[other]
        renamed = self._take_up(found.values())
        self._miss(found, tree.unlisted)
        if renamed or len(self._positions.names) != len(self._positions.files):
            self._positions.names = {file.name: file for file in self._positions.files.values()}
        self.scanned = True
        return self._result()

    def renew(self, file: Followed, size: int) -> None:
        """Other bytes stand behind this inode now: truncated, or a deleted file's number was given out again."""
        counters = self._positions.counters
        if size < file.reach:
            counters.bytes_lost += max(0, file.size - file.stored)
            counters.bytes_written += size
        else:  # its growth was counted, not that it began anew
            counters.bytes_written += file.stored + max(0, size - file.size)
        self._bury(file, file.stored_as)  # a name that it has since may be that of the other bytes
        file.streams, file.whole, file.mark = [], None, Mark()
        file.born, file.size = file.name, size
        self.unsent.add(file)

    def cannot_read(self, file: Followed, error: OSError) -> None:
        """This user may not read it, or the disk is broken: the file is left out, and tried again."""
        self.unreadable.add(file.identity)
        self.report(f"log {file.name} cannot be read: {error.strerror}")

    def report(self, problem: str) -> None:
        """Tell once what could not be read."""
        if problem not in self.problems and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
            self._positions.counters.problems += 1

    def _by_identity(self, files: list[Found]) -> dict[Identity, Found]:
        """One name for each file: a second link to it is not another file."""
        found: dict[Identity, Found] = {}
        known = self._positions.files
        for each in files:
            other = found.setdefault(each.identity, each)
            if other is not each:
                file = known.get(each.identity)
                if each.name == file.name if file else each.name < other.name:
                    found[each.identity] = each
        return found

    def _take_up(self, found: Iterable[Found]) -> bool:
        files, counters = self._positions.files, self._positions.counters
        renamed = False
        for identity, name, size, mtime_ns in found:
            file = files.get(identity)
            if file is None:
                file = self._positions.gone.pop(identity, None)  # it was away and came back
                if file is None:
                    file = Followed(*identity, name, name)
                    counters.files_seen += 1
                files[identity] = file
                renamed = True
            elif file.size == size and file.mtime_ns == mtime_ns and file.name == name:
                continue
            if size < file.reach:
                self.renew(file, size)
                file.born = name
            if file.name != name:
                file.name = name
                renamed = True
            counters.bytes_lost += max(0, file.size - size)
            counters.bytes_written += max(0, size - file.size)
            file.size, file.mtime_ns = size, mtime_ns
            self.unsent.add(file)
        return renamed

    def _miss(self, found: dict[Identity, Found], unlisted: tuple[str, ...]) -> None:
        positions = self._positions
        missing = positions.files.keys() - found.keys()
        taken = {each.name for each in found.values()} if missing else set()
        missed_before, self._missed = self._missed, set()
        for identity in missing:
            file = positions.files[identity]
            if file.name.startswith(unlisted):
                continue
            descriptor = self._descriptors.known(identity)
            if descriptor is None:
                positions.counters.bytes_lost += max(0, file.size - file.stored)
                self._bury(file, file.name)
            else:
                status = os.fstat(descriptor)
                if status.st_nlink and identity not in missed_before and file.name not in taken:
                    self._missed.add(identity)  # a walk may miss a file that is renamed under it
                    continue
                self._descriptors.hold(identity)
                positions.gone[identity] = file
                positions.counters.bytes_written += max(0, status.st_size - file.size)
                file.size, file.mtime_ns = status.st_size, status.st_mtime_ns
                self.unsent.add(file)
            del positions.files[identity]

    def _bury(self, file: Followed, name: str) -> None:
        self._lines.pop(file.identity, None)
        if not file.reach:
            return
        former = Former(name, file.mtime_ns, file.streams, file.whole)
        self._positions.formers.append(former)
        if file.whole is not None:
            there = self._objects.standing.get(file.whole.name)
            if there is not None and there.owner is file:
                there.owner = former

    def _result(self) -> ScanResult:
        positions = self._positions
        self.unsent = {
            file
            for file in self.unsent
            if file is (positions.files.get(file.identity) or positions.gone.get(file.identity))
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
        return ScanResult(len(self._positions.files), pending_files, pending_bytes, pending_lines)

    def _count_lines(self, file: Followed, budget: int) -> tuple[int, int]:
        """Lines that are not in the archive, and the bytes read to count them."""
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
