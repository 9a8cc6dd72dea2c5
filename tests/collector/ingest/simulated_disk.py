"""A stand-in disk for the spool, harsher than a real one: it loses power, fills up, and fails on demand.

It keeps apart what programs see (the page cache) and what would survive a power cut:
* written bytes and lengths survive when their file was synced, names when the directory was synced;
* at a power cut any subset of the unsynced operations has reached the disk, each write torn anywhere or with
  holes, where the bytes from before stay (zeros behind the end of the file);
* a file sync that fails has written some of the changes and forgotten the rest, as Linux does: a later sync that
  succeeds does not write them;
* a kill ends the program and keeps the page cache, so that a power cut may still take it later.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ray_history.collector.ingest.spool import Disk

OPERATIONS = ("claim", "listdir", "open", "read", "write", "truncate", "fsync", "rename", "unlink")
_DIRECTORY = 1


class Ended(BaseException):
    """The program was killed at this instant; nothing it does afterwards reaches the disk."""


@dataclass(frozen=True)
class Change:
    """Of a file: bytes at an offset, or with `data` None its length set to `offset`."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        if self.data is None:
            del content[self.offset :]
        else:
            content[self.offset : self.offset + len(self.data)] = self.data


@dataclass
class File:
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change.apply(self.seen)
        self.unsynced.append(change)

    def write_back(self, chance: random.Random) -> None:
        """Some of the unsynced changes reach the disk, the rest is forgotten."""
        for change in self.unsynced:
            if chance.random() < 0.6:
                for part in _torn(change, chance):
                    part.apply(self.durable)
        self.unsynced.clear()


def _torn(change: Change, chance: random.Random) -> list[Change]:
    """The change as it may reach the disk: complete, only its start, or with a hole of old bytes."""
    if not change.data:
        return [change]
    kind = chance.randrange(3)
    if kind == 0:
        return [change]
    start = chance.randrange(len(change.data))
    parts = [Change(change.offset, change.data[:start])]
    if kind == 2:
        end = chance.randint(start, len(change.data))
        parts.append(Change(change.offset + end, change.data[end:]))
    return parts


@dataclass(frozen=True)
class Renaming:
    """Of the directory: a file got the name `new`, or lost the name `old`, or both at once."""

    old: str | None
    new: str | None
    file: File

    def apply(self, names: dict[str, File]) -> None:
        if self.old is not None and names.pop(self.old, None) is None:
            return
        if self.new is not None:
            names[self.new] = self.file


class SimulatedDisk(Disk):
    """One directory of files."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.capacity = 1 << 30
        self.failed = 0
        """How many operations failed so far."""
        self._seen: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        self._unsynced: list[Renaming] = []
        self._faults: list[tuple[str, int, int]] = []
        self._until_end: int | None = None
        self._ended = False
        self._handles: dict[int, File] = {}
        self._last_handle = _DIRECTORY

    # What the tests do to it.

    def fail(self, operation: str, number: int, skip: int = 0) -> None:
        """Let the operation fail once with this errno, after it worked `skip` more times."""
        self._faults.append((operation, number, skip))

    def end_program_after(self, operations: int) -> None:
        """Kill the program in the middle of this many operations from now."""
        self._until_end = operations

    def heal(self) -> None:
        """From now on nothing fails, and there is space."""
        self._faults.clear()
        self._until_end = None
        self.capacity = 1 << 30

    def kill(self) -> None:
        """End the program; the page cache stays."""
        self._handles.clear()
        self._ended = False
        self._until_end = None

    def cut_power(self) -> None:
        """End the program and lose all or some of the unsynced changes."""
        self.kill()
        for renaming in self._unsynced:
            if self.chance.random() < 0.6:
                renaming.apply(self._durable)
        self._unsynced.clear()
        self._seen = dict(self._durable)
        for file in self._seen.values():
            file.write_back(self.chance)
            file.seen = bytearray(file.durable)

    @property
    def used(self) -> int:
        return sum(len(file.seen) for file in self._seen.values())

    # What the spool does with it.

    def claim(self, directory: Path) -> int:
        self._enter("claim")
        return _DIRECTORY

    def listdir(self, directory: Path) -> dict[str, int]:
        self._enter("listdir")
        return {name: len(file.seen) for name, file in self._seen.items()}

    def open(self, path: Path, *, create: bool = False) -> int:
        self._enter("open")
        if create:
            if path.name in self._seen:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            self._rename(Renaming(None, path.name, File()))
        if path.name not in self._seen:
            raise FileNotFoundError(errno.ENOENT, "missing", str(path))
        self._last_handle += 1
        self._handles[self._last_handle] = self._seen[path.name]
        return self._last_handle

    def read(self, handle: int, offset: int, length: int) -> bytes:
        self._enter("read")
        return bytes(self._handles[handle].seen[offset : offset + length])

    def write(self, handle: int, offset: int, buffers: Sequence[bytes | memoryview]) -> int:
        file = self._handles[handle]
        data = b"".join(buffers)
        if self.chance.random() < 0.2:
            data = data[: self.chance.randint(1, len(data))]
        try:
            self._enter("write")
        except BaseException:
            file.change(Change(offset, data[: self.chance.randint(0, len(data))]))
            raise
        room = len(file.seen) - offset + max(0, self.capacity - self.used)
        if room == 0:
            self._raise(errno.ENOSPC)
        file.change(Change(offset, data[:room]))
        return min(len(data), room)

    def truncate(self, handle: int, length: int) -> None:
        self._enter("truncate")
        self._handles[handle].change(Change(length, None))

    def fsync(self, handle: int) -> None:
        if handle == _DIRECTORY:
            self._enter("fsync")
            for renaming in self._unsynced:
                renaming.apply(self._durable)
            self._unsynced.clear()
            return
        file = self._handles[handle]
        try:
            self._enter("fsync")
        except OSError:
            file.write_back(self.chance)
            raise
        for change in file.unsynced:
            change.apply(file.durable)
        file.unsynced.clear()

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)

    def rename(self, old: Path, new: Path) -> None:
        self._enter("rename")
        if old.name not in self._seen:
            raise FileNotFoundError(errno.ENOENT, "missing", str(old))
        self._rename(Renaming(old.name, new.name, self._seen[old.name]))

    def unlink(self, path: Path) -> None:
        self._enter("unlink")
        if path.name in self._seen:
            self._rename(Renaming(path.name, None, self._seen[path.name]))

    def _rename(self, renaming: Renaming) -> None:
        renaming.apply(self._seen)
        self._unsynced.append(renaming)

    def _enter(self, operation: str) -> None:
        if self._ended:
            raise Ended
        if self._until_end is not None:
            self._until_end -= 1
            if self._until_end < 0:
                self._ended = True
                raise Ended
        for index, (name, number, skip) in enumerate(self._faults):
            if name == operation:
                if skip:
                    self._faults[index] = (name, number, skip - 1)
                    continue
                del self._faults[index]
                self._raise(number)

    def _raise(self, number: int) -> None:
        self.failed += 1
        raise OSError(number, os.strerror(number))
