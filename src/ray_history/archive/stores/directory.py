r"""The backend for local directories: a laptop's disk, an NFS share.

Invariants:
* an object is a regular file at `<directory>/<key>`; links are never followed;
* a put writes a temporary file below `.tmp/`, syncs it, then renames it into place and syncs the folder: after a
  crash or on a full disk there is the old object or the new one, never a part;
* `.tmp/` is not listed; files that a crashed process left there are removed by a later writer after a day;
* bytes of a file name that are not UTF-8, as copies from elsewhere may have, are `\xNN` in its key, as the collector
  writes them; such a key finds the file, unless there is one with this very name.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import SplitResult, unquote

from ray_history.archive.errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable
from ray_history.moments import LATEST

from .addresses import DEFAULT_BUCKET
from .interface import READ_CHUNK, Level, ObjectInfo, Store, chunks_of, require_key, require_prefix

_TEMPORARY = ".tmp"
_ABANDONED_AFTER = 24 * 3600
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """A local directory."""

    path: Path

    @property
    def url(self) -> str:
        return self.path.absolute().as_uri()

    @classmethod
    def from_url(cls, parts: SplitResult, _env: Mapping[str, str]) -> Self:
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise Misconfigured(f"{parts.geturl()!r} does not name a directory: write file:///absolute/path")
        return cls(Path(unquote(parts.path)))

    @classmethod
    def from_environment(cls, root: str, _env: Mapping[str, str], _config: Mapping[str, str]) -> Self:
        return cls(Path(root or DEFAULT_BUCKET))

    def open(self) -> Store:
        return DirectoryStore(self.path)


class DirectoryStore:
    """Objects as files below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._base = os.fsencode(self._directory)
        self.url = self._directory.as_uri()

    def check(self, *, create: bool = False) -> None:
        with self._translated("opening"):
            if create:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._sweep_abandoned()
            if not self._directory.exists():
                raise NotFound(f"{self.url}: there is no such directory; create it or correct --storage")
            if not self._directory.is_dir():
                raise Misconfigured(f"{self.url} is not a directory; correct --storage")
            os.scandir(self._base).close()
            if create and not os.access(self._base, os.W_OK):
                raise Denied(f"{self.url}: this user cannot write there")

    def put(self, key: str, data: bytes) -> None:
        self.put_stream(key, [data])

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        target = self._path(key)
        with self._translated(f"writing {key} to"), self._written(source) as (temporary, size):
            self._place(target, lambda: os.replace(temporary, target))
        return size

    def create(self, key: str, data: bytes) -> bool:
        target = self._path(key)
        with self._translated(f"creating {key} in"), self._written([data]) as (temporary, _):
            try:
                self._place(target, lambda: os.link(temporary, target))
            except FileExistsError:
                return False
        return True

    def get(self, key: str) -> bytes:
        return b"".join(self.stream(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._translated(f"reading {key} from"), self._opened(key) as file:
            left = max(os.fstat(file.fileno()).st_size - start, 0)
            file.seek(start)
            return file.read(min(length, left))  # memory for all of `length` is taken before anything is read

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        with self._translated(f"reading {key} from"), self._opened(key) as file:
            file.seek(start)
            while chunk := file.read(READ_CHUNK):
                yield chunk

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        pending = [require_prefix(prefix)]
        while pending:
            level = self.list_level(pending.pop())
            pending.extend(level.directories)
            yield from level.objects

    def list_level(self, prefix: str = "") -> Level:
        prefix = require_prefix(prefix)
        directories: list[str] = []
        objects: list[ObjectInfo] = []
        with self._translated(f"listing {prefix or '/'} of"):
            if not self._directory.is_dir():
                raise NotFound(f"{self.url}: there is no such directory; create it or correct --storage")
            try:
                entries = os.scandir(self._path(prefix) if prefix else self._base)
            except (FileNotFoundError, NotADirectoryError):
                return Level((), ())
            with entries:
                for entry in entries:
                    name = entry.name.decode("utf-8", "backslashreplace")
                    key = f"{prefix}/{name}" if prefix else name
                    if key == _TEMPORARY:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(key)
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # deleted since the scan
                            objects.append(_info(key, entry.stat(follow_symlinks=False)))
        return Level(tuple(sorted(directories)), tuple(sorted(objects, key=lambda o: o.key)))

    def head(self, key: str) -> ObjectInfo:
        with self._translated(f"reading {key} from"):
            status = os.lstat(self._path(key))
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{self.url}: no object {key!r}")
            return _info(key, status)

    def copy(self, source: str, target: str) -> None:
        self._path(target)  # an invalid key fails before anything is read
        with self._translated(f"copying {source} to {target} in"), self._opened(source) as file:
            self.put_stream(target, file)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._translated(f"deleting {key} from"), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
            self._prune(os.path.dirname(path))

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def _path(self, key: str) -> bytes:
        path = os.path.join(self._base, os.fsencode(require_key(key)))
        if "\\x" in key and not os.path.lexists(path):
            original = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), path)
            return original if os.path.lexists(original) else path
        return path

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        if os.path.realpath(os.path.dirname(path)) != os.path.join(
            os.path.realpath(self._base), os.path.relpath(os.path.dirname(path), self._base)
        ).removesuffix(b"/."):
            raise Denied(f"{self.url}: {key!r} is behind a link; links are not followed")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotFound(f"{self.url}: no object {key!r}")
            yield file

    @contextmanager
    def _written(self, source: BinaryIO | Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        folder = os.path.join(self._base, os.fsencode(_TEMPORARY))
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, secrets.token_hex(12).encode())
        try:
            size = 0
            with open(temporary, "xb") as file:
                for chunk in chunks_of(source):
                    size += file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            yield temporary, size
        finally:
            with suppress(FileNotFoundError):  # it was renamed into place
                os.unlink(temporary)

    def _place(self, target: bytes, move: Callable[[], None]) -> None:
        folder = os.path.dirname(target)
        for attempt in range(10):
            try:
                _make_folder(folder)
                move()
                break
            except FileNotFoundError:  # a delete pruned the folder in between
                if attempt == 9:
                    raise
        with suppress(FileNotFoundError):  # the object was deleted again, and its folder with it
            _sync_folder(folder)

    def _prune(self, folder: bytes) -> None:
        """Remove the folders that a delete left empty."""
        while folder != self._base:
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def _sweep_abandoned(self) -> None:
        with suppress(FileNotFoundError), os.scandir(self._directory / _TEMPORARY) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_AFTER:
                        os.unlink(entry.path)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except ArchiveError:
            raise
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(f"{doing} {self.url}: not found") from error
        except PermissionError as error:
            raise Denied(f"{doing} {self.url}: permission denied for this user") from error
        except OSError as error:
            raise Unreachable(f"{doing} {self.url}: {error.strerror}") from error


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    # A copy may set any time, even one that has no date.
    modified = datetime.fromtimestamp(min(max(status.st_mtime, 0), LATEST), UTC)
    return ObjectInfo(key, status.st_size, modified, f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")


def _make_folder(folder: bytes) -> None:
    """Create a folder and its parents, each synced into its own parent."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(parent)


def _sync_folder(folder: bytes) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
