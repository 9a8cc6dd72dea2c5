"""The file system calls of the spool."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)


class Disk:
    """All file system calls of the spool; the tests replace it by one that loses power."""

    def claim(self, directory: Path) -> int:
        """Create the directory durably, and lock it until the handle is closed."""
        _make_directory(directory)
        if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, "This user cannot write to the spool directory", str(directory))
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise BlockingIOError(error.errno, "Another process uses this spool directory", str(directory)) from None
        except OSError as error:
            # NFS cannot lock directories. The lock only guards against a mistake.
            logger.debug("the spool directory %s is not locked: %s", directory, error)
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

    def write(self, handle: int, offset: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Returns the number of bytes written, which may be less than given."""
        return os.pwritev(handle, buffers, offset)

    def truncate(self, handle: int, length: int) -> None:
        os.ftruncate(handle, length)

    def fsync(self, handle: int) -> None:
        """Sync the bytes and length of a file, or the entries of the claimed directory.

        After a failure, the next fsync of the same file may succeed without making anything durable: the kernel marks
        the lost pages as clean. Only bytes that are written again are durable then.
        """
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)


REAL_DISK = Disk()
_MOST_BUFFERS = 1024  # of one pwritev on Linux


def write_all(disk: Disk, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
    waiting = deque[bytes | memoryview](buffers)
    while waiting:
        written = disk.write(handle, offset, [waiting[i] for i in range(min(len(waiting), _MOST_BUFFERS))])
        offset += written
        while waiting and written >= len(waiting[0]):
            written -= len(waiting.popleft())
        if written:
            waiting[0] = memoryview(waiting[0])[written:]


@contextmanager
def opened(disk: Disk, path: Path) -> Iterator[int]:
    handle = disk.open(path)
    try:
        yield handle
    finally:
        disk.close(handle)


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
    # Each time: a process that created it may have been killed before this.
    with suppress(PermissionError):
        parent = os.open(directory.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
