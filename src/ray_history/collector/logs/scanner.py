"""The log files of a node on its disk, and open descriptors of those that grow.

* Links are never followed: each directory is opened relative to its parent, and a file is read only if the opened inode
  is the one that the walk saw. So writing below `logs/` cannot make the collector read other files.
* A directory that cannot be listed is distinguished from a missing one: its files do not count as deleted.
* A descriptor that is kept open keeps a deleted file readable to its end, and its inode number in use.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ray_history.archive.log_tails import portable_path

MAX_DEPTH = 64
"""Directories below `logs/`; Ray has two."""

Identity = tuple[int, int]
"""Device and inode, independent of the name."""

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Vanished(Exception):
    """The file has been deleted or replaced since it was seen; the next walk shows it."""


class ScannedFile(NamedTuple):
    """A regular file as seen by a walk."""

    identity: Identity
    name: str
    """Path below the logs directory, as `portable_path` writes it."""
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Tree:
    """All files of one walk."""

    files: list[ScannedFile]
    unlisted: tuple[str, ...]
    """Directories (`a/b/`) that could not be listed."""
    empty: tuple[str, ...] = ()
    """Directories (`a/b/`) without files and directories."""


def walk(root: Path) -> Tree:
    """Every regular file below `root`; none if there is no such directory."""
    walker = _Walker([], [], [])
    walker.enter(os.fspath(root), None, "", 0)
    return Tree(walker.files, tuple(walker.unlisted), tuple(walker.empty))


class _Walker(NamedTuple):
    files: list[ScannedFile]
    unlisted: list[str]
    empty: list[str]

    def enter(self, path: str, parent: int | None, prefix: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.unlisted.append(prefix)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if parent is not None else 0)
        try:
            folder = os.open(path, flags, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            self.unlisted.append(prefix)
            return
        try:
            self._visit(folder, prefix, depth)
        except OSError:
            self.unlisted.append(prefix)
        finally:
            os.close(folder)

    def _visit(self, folder: int, prefix: str, depth: int) -> None:
        directories: list[tuple[str, str]] = []
        files_before = len(self.files)
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if not name.isprintable() or "\\" in name:
                    name = portable_path(name)
                if entry.is_dir(follow_symlinks=False):
                    directories.append((entry.name, f"{prefix}{name}/"))
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # deleted since it was listed
                        status = entry.stat(follow_symlinks=False)
                        identity = status.st_dev, status.st_ino
                        self.files.append(ScannedFile(identity, prefix + name, status.st_size, status.st_mtime_ns))
        if prefix and not directories and len(self.files) == files_before:
            self.empty.append(prefix)
        for path, below in directories:
            self.enter(path, folder, below, depth + 1)


def disk_path(name: str) -> str:
    """The path on disk of a name that `portable_path` made."""
    if "\\" not in name:
        return name
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), name.encode()))


def read_at(descriptor: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`; fewer if the file ends before."""
    pieces = []
    while start < end and (piece := os.pread(descriptor, min(end - start, 1 << 30), start)):
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Descriptors:
    """Open files: the most recently used ones, and deleted ones that are not yet stored."""

    def __init__(self, root: Path, limit: int) -> None:
        self._root = os.fspath(root)
        self._limit = limit
        self._recent: OrderedDict[Identity, int] = OrderedDict()
        self._held: dict[Identity, int] = {}

    def get(self, identity: Identity, name: str) -> int:
        """A descriptor of exactly this file, valid until the next call. Raises Vanished or OSError."""
        if (descriptor := self.already_open(identity)) is not None:
            return descriptor
        descriptor = self._open(identity, name)
        while len(self._recent) >= self._limit:
            os.close(self._recent.popitem(last=False)[1])
        self._recent[identity] = descriptor
        return descriptor

    def already_open(self, identity: Identity) -> int | None:
        """The descriptor if the file is open."""
        if identity in self._held:
            return self._held[identity]
        if identity in self._recent:
            self._recent.move_to_end(identity)
            return self._recent[identity]
        return None

    @contextmanager
    def borrowed(self, identity: Identity, name: str) -> Iterator[int]:
        """A descriptor that is valid within the block, in other threads too."""
        opened = self.already_open(identity)
        descriptor = os.dup(opened) if opened is not None else self._open(identity, name)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def hold(self, identity: Identity) -> bool:
        """Keep a deleted file open until `close`; False if it was not open."""
        if identity in self._recent:
            self._held[identity] = self._recent.pop(identity)
        return identity in self._held

    def close(self, identity: Identity) -> None:
        for among in (self._recent, self._held):
            if identity in among:
                os.close(among.pop(identity))

    def close_all(self) -> None:
        for identity in [*self._recent, *self._held]:
            self.close(identity)

    def _open(self, identity: Identity, name: str) -> int:
        try:
            descriptor = os.open(os.path.join(self._root, disk_path(name)), _OPEN)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # ELOOP: it is a link now
                raise Vanished(name) from error
            raise
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != identity or not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise Vanished(name)
        return descriptor
