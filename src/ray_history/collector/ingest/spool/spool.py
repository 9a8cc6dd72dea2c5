"""An open spool: one thread appends, one thread seals, reads and removes, one may look ahead."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from .disk import REAL_DISK, Disk, opened, write_all
from .recovery import recover
from .segment import HEADER_SIZE, Damage, Segment, corrupt_path, damage_message, frames, header, read_records

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT)


class SpoolFull(Exception):
    """There is no space for these bodies; none of them counts as stored. Ray will send them again."""


class Pending(NamedTuple):
    """Stored and not yet removed."""

    bodies: int
    bytes: int


class Spool:
    """Stores bodies durably and returns segments, oldest first."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = 16 * 1024 * 1024,
        max_bytes: int = 1024 * 1024 * 1024,
        clock: Callable[[], int] = time.time_ns,
        disk: Disk = REAL_DISK,
    ) -> None:
        """Open the spool; reads and checks everything that an earlier process left."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._clock = clock
        self._disk = disk
        self._writing = Lock()  # held during append, seal and close
        self._state = Lock()  # for the fields below; never held during I/O
        self._current: Segment | None = None  # has records, except inside append
        self._handle = -1  # of the current segment
        self._closed = False
        self._folder = disk.claim(directory)
        try:
            found = recover(disk, self._folder, directory)
            self.problems = found.problems
            """Messages about damaged, torn or unexpected files."""
            self._sealed = found.sealed
            self._emptied = found.emptied  # without acknowledged records; unlinked unless one is the mark
            self._damaged = found.damaged
            self._mark = found.mark
            self._next_sequence = found.next_sequence
            self._last_created_ns = found.last_created_ns
            self._size = found.size
            self._sweep()
        except BaseException:
            disk.close(self._folder)
            raise

    def append(self, bodies: Sequence[bytes]) -> None:
        """Store the bodies in one segment with one write and one fsync: all are durable on return.

        Raises SpoolFull or OSError; then none counts as stored, though some may be read.
        """
        records = frames(bodies)
        length = sum(map(len, records))
        with self._writing:
            self._require_open()
            if not bodies:
                return
            if self._current is not None and self._current.end + length > self._segment_bytes:
                self._seal()
            self._require_room(length if self._current is not None else HEADER_SIZE + length)
            try:
                self._store(records, length, len(bodies))
            except OSError as error:
                if error.errno in _FULL:
                    raise SpoolFull(f"the disk of the spool {self._directory} is full: {error.strerror}") from error
                raise

    def seal(self) -> None:
        """Close the current segment, so that it can be uploaded; waits for a running append."""
        with self._writing:
            self._seal()

    def sealed(self) -> list[Segment]:
        """The segments that can be read and removed, oldest first."""
        with self._state:
            return list(self._sealed.values())

    def read(self, segment: Segment) -> Iterator[bytes]:
        """The bodies of a sealed segment in order, one in memory at a time; without damaged ones, which are noted."""
        with opened(self._disk, segment.path) as handle:
            noted = partial(self._note_damage, segment)
            yield from (body for body, _ in read_records(self._disk, handle, segment.end, damaged=noted))

    def is_damaged(self, segment: Segment) -> bool:
        """Whether something in the segment could not be read."""
        return segment.sequence in self._damaged

    def waiting(self) -> list[Segment]:
        """All segments with records that are not removed yet, oldest first; the last may grow."""
        return self._unshipped()

    def peek(self, segment: Segment, start: int) -> Iterator[bytes]:
        """The bodies of a waiting segment from the offset `start` on, for any thread.

        Nothing is noted: the segment may be removed meanwhile, and `read` reports damage.
        """
        with suppress(FileNotFoundError), opened(self._disk, segment.path) as handle:
            records = read_records(self._disk, handle, segment.end, max(start, HEADER_SIZE), damaged=lambda _: None)
            yield from (body for body, _ in records)

    def remove(self, segment: Segment) -> None:
        """Delete an uploaded segment durably; repeating it is harmless. A damaged one is renamed."""
        self._require_open()
        with self._state:
            damaged, is_mark = segment.sequence in self._damaged, segment.sequence == self._mark
        if is_mark and not damaged:
            try:
                with opened(self._disk, segment.path) as handle:
                    self._disk.truncate(handle, HEADER_SIZE)
                    self._forget(segment, left=HEADER_SIZE)
                    self._disk.fsync(handle)
            except FileNotFoundError:  # someone else deleted it
                self._forget(segment, left=0)
            return
        if damaged:
            with suppress(FileNotFoundError):
                self._disk.rename(segment.path, corrupt_path(segment.path))
        else:
            self._disk.unlink(segment.path)
        self._forget(segment, left=segment.size if damaged else 0)
        self._disk.fsync(self._folder)

    @property
    def size(self) -> int:
        """Bytes of all files in the directory, including corrupt and unexpected ones; `max_bytes` limits it."""
        with self._state:
            return self._size

    @property
    def pending(self) -> Pending:
        segments = self._unshipped()
        return Pending(sum(s.records for s in segments), sum(s.body_bytes for s in segments))

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest segment that still waits was created; nothing waits when it is None."""
        return min((segment.created_ns for segment in self._unshipped()), default=None)

    def close(self) -> None:
        """Release the directory; stored bodies remain for the next process."""
        with self._writing:
            if self._closed:
                return
            self._seal()
            self._closed = True
            self._disk.close(self._folder)

    def _store(self, records: Sequence[bytes], length: int, count: int) -> None:
        current = self._current or self._create()
        try:
            write_all(self._disk, self._handle, current.end, records)
            self._disk.fsync(self._handle)
        except BaseException:
            self._abandon(current, length)
            raise
        end = current.end + length
        with self._state:
            self._current = replace(current, size=end, end=end, records=current.records + count)
            self._size += length

    def _create(self) -> Segment:
        """Open a new segment; its header and name are durable before anything is written to it."""
        sequence = self._next_sequence
        created_ns = max(self._clock(), self._last_created_ns + 1)
        self._next_sequence, self._last_created_ns = sequence + 1, created_ns
        path = self._directory / f"{sequence:020d}.spool"
        segment = Segment(sequence, created_ns, path, HEADER_SIZE, HEADER_SIZE, 0)
        handle = self._disk.open(path, create=True)
        with self._state:
            self._size += segment.size
        try:
            write_all(self._disk, handle, 0, [header(created_ns)])
            self._disk.fsync(handle)
            self._disk.fsync(self._folder)
        except BaseException:
            with self._state:
                self._emptied[sequence] = segment
            self._disk.close(handle)
            self._sweep()
            raise
        with self._state:
            self._current, self._handle, self._mark = segment, handle, sequence
        self._sweep()
        return segment

    def _abandon(self, current: Segment, length: int) -> None:
        """Seal the segment after a failed write, and truncate it to free the space."""
        size = current.end + length  # the write may have reached this size
        with suppress(OSError):
            self._disk.truncate(self._handle, current.end)
            size = current.end
        with self._state:
            self._size += size - current.size
            self._current = replace(current, size=size)
        self._seal()

    def _seal(self) -> None:
        current = self._current
        if current is None:
            return
        with suppress(OSError):  # its bytes are synced, or were not acknowledged
            self._disk.close(self._handle)
        with self._state:
            (self._sealed if current.records else self._emptied)[current.sequence] = current
            self._current = None

    def _sweep(self) -> None:
        """Unlink segments without acknowledged records. Not synced: one that reappears is swept or uploaded."""
        with self._state:
            empty = [segment for segment in self._emptied.values() if segment.sequence != self._mark]
        for segment in empty:
            with suppress(OSError):  # the next sweep tries again
                self._disk.unlink(segment.path)
                with self._state:
                    del self._emptied[segment.sequence]
                    self._size -= segment.size

    def _note_damage(self, segment: Segment, damage: Damage) -> None:
        if segment.sequence in self._damaged:
            return
        self._damaged.add(segment.sequence)
        self.problems.append(damage_message(segment, damage))
        logger.error("spool: %s", self.problems[-1])

    def _forget(self, segment: Segment, *, left: int) -> None:
        with self._state:
            sealed = self._sealed.pop(segment.sequence, None)
            if sealed is None:
                return
            self._size -= sealed.size - left
            if left and segment.sequence not in self._damaged:
                self._emptied[segment.sequence] = replace(sealed, size=left, end=left, records=0)

    def _unshipped(self) -> list[Segment]:
        with self._state:
            segments = [*self._sealed.values(), *([self._current] if self._current is not None else [])]
        return [segment for segment in segments if segment.records]

    def _require_room(self, needed: int) -> None:
        if self.size + needed > self._max_bytes:
            raise SpoolFull(
                f"the spool {self._directory} has {self.size} of at most {self._max_bytes} bytes and no space for "
                f"{needed} more: uploads to the archive are too slow or fail"
            )

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("the spool is closed")
