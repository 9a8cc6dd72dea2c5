"""The spool: where a batch is kept from its acknowledgement until it is in the archive.

Invariants:
* One process owns the directory (a lock that dies with it). One thread appends; one thread seals, reads and removes.
* `append` returns after an fsync: from then on its bodies survive SIGKILL and power loss until `remove` is called.
  Records go only into a segment whose header and directory entry are durable, so a torn header means: no records.
* A segment is written once, front to back. After a failed write or fsync nothing more goes into it (the kernel may
  have dropped its pages and call the next fsync a success): it is cut back to its acknowledged end and sealed, and
  the next append opens another. So nothing acknowledged ever stands behind something torn.
* Opening seals every segment it finds and changes none of their bytes. What provably never was written whole (it runs
  past the end of the file, or is all zeros) is ignored. Any other bytes that do not match their checksum are never
  deleted: the bodies before them come out, then `remove` keeps the file aside as `<name>.corrupt`, for a human.
* Sequence and creation time grow from segment to segment, whatever the clock does, and never repeat. The newest
  segment with a durable header, the mark, carries both. `remove` empties the mark down to its header (which needs no
  space on a full disk) instead of deleting it; it goes when a newer header is durable. Opening counts on from the
  highest name and header, and first makes the mark durable: a killed process may have left it in the page cache only.
* What was not acknowledged may come out too. Ray sends it again, and history counts an event once.

Format of `<sequence, 20 digits>.spool`, integers little-endian:

    8  magic and version    b"RAYSPOL" 0x01
    8  creation time        nanoseconds since 1970
    4  crc32 of the above
       records              4 length, 4 crc32 of the body, 4 crc32 of these 8 bytes, then the body

The length has its own checksum: a damaged one must not look like a record that was torn off at the end of the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import NamedTuple

MAX_BODY = 1 << 30
"""Bytes of one body: what one read gives back in one piece."""

_MAGIC = b"RAYSPOL\x01"
_HEADER = struct.Struct("<8sQI")
_PREFIX = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_PREFIX_SIZE = _PREFIX.size + _CHECK.size
_NAME = re.compile(r"([0-9]{20})\.spool(\.corrupt)?")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MOST_BUFFERS = 1024  # of one writev on Linux
_READ_CHUNK = 1 << 20


class SpoolFull(Exception):
    """There is no room for these bodies; none of them counts as stored. Ray will send them again."""


class _NotWhole(Exception):
    """The record at `offset` is not as it was written; `torn` when it provably never was written whole."""

    def __init__(self, offset: int, *, torn: bool) -> None:
        super().__init__(offset)
        self.offset = offset
        self.torn = torn


class Disk:
    """All the spool asks of a file system; the tests have one that loses power."""

    def claim(self, directory: Path) -> int:
        """Make the directory, durably, and lock it until the handle is closed."""
        _make_directory(directory)
        if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, "This user may not write to the spool directory", str(directory))
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise BlockingIOError(error.errno, "Another process uses this spool directory", str(directory)) from None
        except OSError:
            pass  # NFS locks no directories; the lock guards against a mistake, nothing else rests on it
        return handle

    def listdir(self, directory: Path) -> dict[str, int]:
        """Names and sizes of the regular files."""
        with os.scandir(directory) as entries:
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
        return {name: status.st_size for name, status in found.items() if stat.S_ISREG(status.st_mode)}

    def open(self, path: Path, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)

    def read(self, handle: int, offset: int, length: int) -> bytes:
        return os.pread(handle, length, offset)

    def write(self, handle: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write behind what was written before; says how much, which may be less than given."""
        return os.writev(handle, buffers)

    def truncate(self, handle: int, length: int) -> None:
        os.ftruncate(handle, length)

    def fsync(self, handle: int) -> None:
        """Of a file: its bytes and length. Of the claimed directory: which files it has."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)


REAL_DISK = Disk()


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the spool."""

    sequence: int
    created_ns: int
    path: Path
    size: int
    """Bytes of the file."""
    end: int
    """Where its readable records end; less than `size` when something torn or damaged follows."""
    records: int

    @property
    def body_bytes(self) -> int:
        return self.end - _HEADER.size - self.records * _PREFIX_SIZE


class Pending(NamedTuple):
    """What is stored and not yet removed."""

    bodies: int
    bytes: int


class Spool:
    """Bodies in, durable; segments out, oldest first."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = 16 * 1024 * 1024,
        max_bytes: int = 1024 * 1024 * 1024,
        clock: Callable[[], int] = time.time_ns,
        disk: Disk = REAL_DISK,
    ) -> None:
        """Open the spool and find what an earlier process left; reads all of it once, to check it."""
        self.problems: list[str] = []
        """What was found damaged, torn or foreign, for people."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._clock = clock
        self._disk = disk
        self._writing = Lock()  # held during append, seal and close
        self._state = Lock()  # for the fields below; never held during I/O
        self._current: Segment | None = None  # has records, except inside append
        self._handle = -1  # of the current segment
        self._sealed: dict[int, Segment] = {}
        self._emptied: dict[int, Segment] = {}  # without acknowledged records; unlinked unless one is the mark
        self._damaged: set[int] = set()
        self._mark = -1
        self._next_sequence = 1
        self._last_created_ns = 0
        self._size = 0
        self._closed = False
        self._folder = disk.claim(directory)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    def append(self, bodies: Sequence[bytes]) -> None:
        """Store the bodies in one segment with one write and one fsync: all are durable on return.

        Raises SpoolFull or OSError, and then none counts as stored, though some may come out.
        """
        frames: list[bytes] = []
        for body in bodies:
            if len(body) > MAX_BODY:
                raise ValueError(f"a body of {len(body)} bytes is larger than the spool takes ({MAX_BODY})")
            prefix = _PREFIX.pack(len(body), zlib.crc32(body))
            frames += (prefix + _CHECK.pack(zlib.crc32(prefix)), body)
        length = sum(map(len, frames))
        with self._writing:
            self._require_open()
            if not bodies:
                return
            if self._current is not None and self._current.end + length > self._segment_bytes:
                self._seal()
            self._require_room(length if self._current is not None else _HEADER.size + length)
            try:
                self._store(frames, length, len(bodies))
            except OSError as error:
                if error.errno in _FULL:
                    raise SpoolFull(f"the disk of the spool {self._directory} is full: {error.strerror}") from error
                raise

    def seal(self) -> None:
        """Offer what was appended so far for shipping; waits for an append under way."""
        with self._writing:
            self._seal()

    def sealed(self) -> list[Segment]:
        """The segments that can be read and removed, oldest first."""
        with self._state:
            return list(self._sealed.values())

    def read(self, segment: Segment) -> Iterator[bytes]:
        """The bodies of a sealed segment in order, one in memory at a time; ends before damage, which is noted."""
        with self._opened(segment.path) as handle:
            try:
                yield from self._bodies(handle, segment.end)
            except _NotWhole as damage:
                self._note_damage(segment, damage)

    def remove(self, segment: Segment) -> None:
        """Delete a sealed segment durably, after it was shipped; again is harmless. A damaged one is kept aside."""
        self._require_open()
        with self._state:
            damaged, is_mark = segment.sequence in self._damaged, segment.sequence == self._mark
        if is_mark and not damaged:
            try:
                with self._opened(segment.path) as handle:
                    self._disk.truncate(handle, _HEADER.size)
                    self._forget(segment, left=_HEADER.size)
                    self._disk.fsync(handle)
            except FileNotFoundError:  # someone else deleted it
                self._forget(segment, left=0)
            return
        if damaged:
            with suppress(FileNotFoundError):
                self._disk.rename(segment.path, _aside(segment.path))
        else:
            self._disk.unlink(segment.path)
        self._forget(segment, left=segment.size if damaged else 0)
        self._disk.fsync(self._folder)

    @property
    def size(self) -> int:
        """Bytes of all files in the directory, those kept aside and foreign ones too; `max_bytes` limits it."""
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
        """Let go of the directory; what is stored stays for the next process."""
        with self._writing:
            if self._closed:
                return
            self._seal()
            self._closed = True
            self._disk.close(self._folder)

    def _store(self, frames: Sequence[bytes], length: int, records: int) -> None:
        current = self._current or self._create()
        try:
            self._write(self._handle, frames)
            self._disk.fsync(self._handle)
        except BaseException:
            self._abandon(current, length)
            raise
        end = current.end + length
        with self._state:
            self._current = replace(current, size=end, end=end, records=current.records + records)
            self._size += length

    def _create(self) -> Segment:
        """Open a new segment; its header and name are durable before anything is written to it."""
        sequence = self._next_sequence
        created_ns = max(self._clock(), self._last_created_ns + 1)
        self._next_sequence, self._last_created_ns = sequence + 1, created_ns
        path = self._directory / f"{sequence:020d}.spool"
        segment = Segment(sequence, created_ns, path, _HEADER.size, _HEADER.size, 0)
        handle = self._disk.open(path, create=True)
        with self._state:
            self._size += segment.size
        try:
            self._write(handle, [_header(created_ns)])
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
        """Let nothing follow a failed write; cut off what it left, to free the space."""
        size = current.end + length  # it may have come that far
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
        with suppress(OSError):  # its bytes were synced, or not acknowledged
            self._disk.close(self._handle)
        with self._state:
            (self._sealed if current.records else self._emptied)[current.sequence] = current
            self._current = None

    def _sweep(self) -> None:
        """Unlink segments without acknowledged records. Not synced: should one come back, it is swept or shipped."""
        with self._state:
            useless = [segment for segment in self._emptied.values() if segment.sequence != self._mark]
        for segment in useless:
            with suppress(OSError):  # the next sweep tries again
                self._disk.unlink(segment.path)
                with self._state:
                    del self._emptied[segment.sequence]
                    self._size -= segment.size

    def _write(self, handle: int, buffers: Sequence[bytes]) -> None:
        waiting = deque[bytes | memoryview](buffers)
        while waiting:
            written = self._disk.write(handle, [waiting[i] for i in range(min(len(waiting), _MOST_BUFFERS))])
            while waiting and written >= len(waiting[0]):
                written -= len(waiting.popleft())
            if written:
                waiting[0] = memoryview(waiting[0])[written:]

    def _recover(self) -> None:
        for name, size in sorted(self._disk.listdir(self._directory).items()):
            self._size += size
            path = self._directory / name
            match = _NAME.fullmatch(name)
            if match is None:
                self.problems.append(f"{path} is not a file of the spool; it is left alone, and counts as used space")
                continue
            self._next_sequence = max(self._next_sequence, int(match[1]) + 1)
            if match[2]:
                self.problems.append(f"{path} was kept aside earlier ({size} bytes); delete it when it is of no use")
                with self._opened(path) as handle:
                    self._take_header(handle)
            else:
                self._recover_segment(int(match[1]), path, size)
        if self._mark >= 0:
            mark = self._sealed.get(self._mark) or self._emptied[self._mark]
            with self._opened(mark.path) as handle:
                self._disk.fsync(handle)
            self._disk.fsync(self._folder)
        self._sweep()

    def _recover_segment(self, sequence: int, path: Path, size: int) -> None:
        end, records, damage = _HEADER.size, 0, None
        with self._opened(path) as handle:
            created_ns = self._take_header(handle)
            try:
                if created_ns is None:
                    raise _NotWhole(0, torn=size < _HEADER.size or self._is_zero(handle, 0))
                for body in self._bodies(handle, size):
                    end += _PREFIX_SIZE + len(body)
                    records += 1
            except _NotWhole as found:
                damage = found
        segment = Segment(sequence, created_ns or 0, path, size, end, records)
        if damage is not None and not damage.torn:
            self._note_damage(segment, damage)
            if not records:
                self._disk.rename(path, _aside(path))
                return
        elif damage is not None:
            self.problems.append(f"{path}: an unfinished write at byte {damage.offset} of {size} is ignored")
        (self._sealed if records else self._emptied)[sequence] = segment
        if created_ns is not None:
            self._mark = sequence

    def _bodies(self, handle: int, end: int) -> Iterator[bytes]:
        """The bodies of the records up to `end`; raises at the first that is not whole."""
        offset = _HEADER.size
        while offset < end:
            prefix = self._disk.read(handle, offset, min(_PREFIX_SIZE, end - offset))
            if len(prefix) < _PREFIX_SIZE:
                raise _NotWhole(offset, torn=True)
            length, checksum = _PREFIX.unpack_from(prefix)
            if _CHECK.unpack_from(prefix, _PREFIX.size)[0] != zlib.crc32(prefix[: _PREFIX.size]):
                raise _NotWhole(offset, torn=self._is_zero(handle, offset))
            if offset + _PREFIX_SIZE + length > end:
                raise _NotWhole(offset, torn=True)
            body = self._disk.read(handle, offset + _PREFIX_SIZE, length)
            if len(body) != length or zlib.crc32(body) != checksum:
                raise _NotWhole(offset, torn=False)
            yield body
            offset += _PREFIX_SIZE + length

    def _take_header(self, handle: int) -> int | None:
        """The creation time of a segment, later ones will be later; None when its header is not readable."""
        header = self._disk.read(handle, 0, _HEADER.size)
        if len(header) < _HEADER.size or header != _header(created_ns := _HEADER.unpack(header)[1]):
            return None
        self._last_created_ns = max(self._last_created_ns, created_ns)
        return int(created_ns)

    def _is_zero(self, handle: int, offset: int) -> bool:
        """Whether only zeros follow: a length that reached the disk before its bytes."""
        while chunk := self._disk.read(handle, offset, _READ_CHUNK):
            if chunk.count(0) != len(chunk):
                return False
            offset += len(chunk)
        return True

    def _note_damage(self, segment: Segment, damage: _NotWhole) -> None:
        if segment.sequence in self._damaged:
            return
        self._damaged.add(segment.sequence)
        self.problems.append(
            f"{segment.path} is damaged at byte {damage.offset} of {segment.size}: the bodies before it are shipped, "
            f"the file is kept aside as {_aside(segment.path).name}"
        )

    def _forget(self, segment: Segment, *, left: int) -> None:
        with self._state:
            known = self._sealed.pop(segment.sequence, None)
            if known is None:
                return
            self._size -= known.size - left
            if left and segment.sequence not in self._damaged:
                self._emptied[segment.sequence] = replace(known, size=left, end=left, records=0)

    def _unshipped(self) -> list[Segment]:
        with self._state:
            segments = [*self._sealed.values(), *([self._current] if self._current is not None else [])]
        return [segment for segment in segments if segment.records]

    def _require_room(self, needed: int) -> None:
        if self.size + needed > self._max_bytes:
            raise SpoolFull(
                f"the spool {self._directory} holds {self.size} of at most {self._max_bytes} bytes, {needed} more do "
                "not fit: the archive takes segments slower than Ray sends, or not at all"
            )

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("the spool is closed")

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        handle = self._disk.open(path)
        try:
            yield handle
        finally:
            self._disk.close(handle)


def _header(created_ns: int) -> bytes:
    start = _HEADER.pack(_MAGIC, created_ns, 0)[: -_CHECK.size]
    return start + _CHECK.pack(zlib.crc32(start))


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".corrupt")


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
    # Each time: whoever made it may have been killed before this.
    with suppress(PermissionError):
        parent = os.open(directory.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
