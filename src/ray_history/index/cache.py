"""Indexes on the local disk, shared by the processes and threads of one machine, within a limit of bytes.

    <root>/evicting                 locked by the thread that evicts
    <root>/<entry>/building         locked by the thread that builds this session's index
    <root>/<entry>/<n>/             a generation: the files, manifest.json, used; unsynced, for a moment; damaged
    <root>/<entry>/new-<pid>-<x>/   a generation being built
    <root>/<entry>/old-<x>/         a generation being removed

Invariants:
* a numbered directory is complete: its files and manifest are written before it gets its number, by a rename. Syncing
  them takes longer than opening them, so it happens in the background. Until it is done there is a locked file
  `unsynced`. If the file is not locked, after a crash, the disk may have lost data: everything is read before use;
* a directory whose files are not what was written gets a file `damaged`, and is not opened any more. Threads that have
  it open may continue to use it; the next generation is built beside it;
* otherwise it never changes, and it is removed as a whole, also by a rename, under the exclusive lock of `used`. Users
  hold that lock shared, the builder from before the rename; the modification time of `used` is the time of last use;
* only the holder of `building` makes `new-` directories. So the next holder may remove those that it finds: their
  builders are dead. Locks are the kernel's (flock) and end with their process, however it ends;
* a lock is valid only if its file still exists at its path after locking: holders may remove lock files;
* no thread waits for a lock while it holds another, except for the holder of `building`, which waits for the locks of
  readers only as long as a rename takes. The holder of `evicting` never waits;
* directories without a file `building` do not belong to the cache and are never touched.

flock must work as on a local disk: one lock per opened file, between threads too.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from .manifest import MANIFEST, Damaged, Manifest, check, decode, encode

logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"[1-9][0-9]*")
_PROBE_BYTES = 64 << 10
_UNSYNCED, _DAMAGED = "unsynced", "damaged"
_SHARED, _ALONE, _AT_ONCE = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB


class CacheUnusable(Exception):
    """The disk is full, or the directory cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An index that stays on disk until `close`."""

    directory: Path
    manifest: Manifest
    _lock: BinaryIO

    def is_intact(self) -> bool:
        """Read all files and compare them with their digests. A damaged index is not opened again."""
        try:
            check(self.directory, self.manifest, deep=True)
        except Damaged as damage:
            logger.warning("an index in the cache is damaged: %s", damage)
            with _explained(self.directory.parent.parent), suppress(FileNotFoundError):  # it may be removed already
                (self.directory / _DAMAGED).touch()
            return False
        return True

    def close(self) -> None:
        if not self._lock.closed:
            with suppress(OSError):  # only the order of eviction suffers
                os.utime(self._lock.fileno())
            self._lock.close()

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cache:
    """A directory of indexes. While no process uses it, any of its files may be removed."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root = root.absolute()
        self.max_bytes = max_bytes

    def check(self) -> None:
        """Raise `CacheUnusable` unless files can be written and locked."""
        with _explained(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.root) as probe:
                probe.write(bytes(_PROBE_BYTES))
                probe.flush()
                fcntl.flock(probe, _ALONE | _AT_ONCE)

    def entry(self, key: str) -> Entry:
        """The entry of the session with this key (namespace/cluster/session)."""
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", key).strip("-")[:150]
        return Entry(self, self.root / f"{readable}-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}")

    def used_bytes(self) -> int:
        """The size of all generations, without those being built."""
        with _explained(self.root):
            return sum(_measure(generation)[1] for entry in self._entries() for generation in entry.generations())

    def evict(self) -> None:
        """Remove superseded generations, then the least recently used ones down to the limit; never open ones."""
        self._shrink(self.max_bytes)

    def clear(self) -> None:
        """Remove all generations that are not open."""
        self._shrink(-1)

    def _shrink(self, limit: int) -> None:
        with _explained(self.root):
            lock = _hold(self.root / "evicting", _ALONE)
            if lock is None:  # the cache is empty
                return
            with lock:
                entries = self._entries()
                total, removable = _measure_entries(entries)
                for _, size, generation in sorted(removable):
                    if total <= limit:
                        break
                    if _remove(generation):
                        total -= size
                for entry in entries:
                    entry.tidy()

    def _entries(self) -> list[Entry]:
        with suppress(FileNotFoundError):
            return [Entry(self, path) for path in self.root.iterdir() if (path / "building").is_file()]
        return []


class Entry:
    """The generations of one session's index."""

    def __init__(self, cache: Cache, directory: Path) -> None:
        self._cache = cache
        self._directory = directory

    def open(self) -> Opened | None:
        """The newest generation; None if there is none, or if it was damaged and therefore removed."""
        with _explained(self._cache.root):
            while generations := self.generations():
                newest = generations[-1]
                lock = _hold(newest / "used", _SHARED)
                if lock is None:  # evicted since the listing
                    continue
                try:
                    manifest = decode((newest / MANIFEST).read_bytes())
                    self._check(newest, manifest)
                except (Damaged, FileNotFoundError) as error:
                    lock.close()
                    logger.warning("removing %s: %s", newest, error)
                    _remove(newest)
                    return None
                except BaseException:
                    lock.close()
                    raise
                os.utime(lock.fileno())
                return Opened(newest, manifest, lock)
        return None

    def _check(self, generation: Path, manifest: Manifest) -> None:
        if (generation / _DAMAGED).exists():
            raise Damaged("its files have changed")
        unsynced = _hold(generation / _UNSYNCED, _ALONE | _AT_ONCE, create=False)
        if unsynced is None:
            check(generation, manifest)
            return
        try:
            check(generation, manifest, deep=True)
        except BaseException:
            unsynced.close()
            raise
        self._sync_later(generation, unsynced)

    def make(self, build: Callable[[Path], Manifest]) -> Opened:
        """Let `build` fill a new directory, and open it as the newest generation. Other builders wait meanwhile."""
        return self.make_unless(lambda _: False, build)

    def make_unless(self, ready: Callable[[Manifest], bool], build: Callable[[Path], Manifest]) -> Opened:
        """The same, unless the newest generation is `ready`: another process may have built it meanwhile."""
        with self._lock_building():
            opened = self.open()
            if opened is not None:
                is_ready = False
                try:
                    is_ready = ready(opened.manifest)
                finally:
                    if not is_ready:
                        opened.close()
                if is_ready:
                    return opened
            opened = self._make(build)
        try:
            self._cache.evict()
        except CacheUnusable as error:  # the new index can be used all the same
            logger.warning("%s", error)
        return opened

    def generations(self) -> list[Path]:
        """The numbered directories, oldest first."""
        with suppress(FileNotFoundError), os.scandir(self._directory) as found:
            numbers = [int(f.name) for f in found if _NUMBER.fullmatch(f.name) and f.is_dir(follow_symlinks=False)]
            return [self._directory / str(number) for number in sorted(numbers)]
        return []

    def tidy(self) -> None:
        """Remove what dead processes left, and an empty entry, unless an index is being built in it."""
        lock = _hold(self._directory / "building", _ALONE | _AT_ONCE)
        if lock is None:
            return
        with lock:
            self._remove_leftovers()
            if not self.generations():
                (self._directory / "building").unlink()
                with suppress(OSError):  # another process uses it again
                    self._directory.rmdir()

    def _lock_building(self) -> BinaryIO:
        with _explained(self._cache.root):
            while True:
                self._directory.mkdir(parents=True, exist_ok=True)
                lock = _hold(self._directory / "building", _ALONE)
                if lock is not None:
                    return lock

    def _make(self, build: Callable[[Path], Manifest]) -> Opened:
        new = self._directory / f"new-{os.getpid()}-{secrets.token_hex(4)}"
        with _explained(self._cache.root):
            self._remove_leftovers()
            new.mkdir()
        try:
            with _explained(self._cache.root, only=(errno.ENOSPC, errno.EDQUOT)):  # other errors are not the cache's
                manifest = build(new)
            with _explained(self._cache.root):
                return self._commit(new, manifest)
        except Exception as error:
            if not new.is_dir():  # whatever the build then failed with
                with _explained(self._cache.root):
                    raise FileNotFoundError(errno.ENOENT, "removed while an index was built in it", str(new)) from error
            raise
        finally:
            shutil.rmtree(new, ignore_errors=True)  # unless it was renamed

    def _commit(self, new: Path, manifest: Manifest) -> Opened:
        body = encode(manifest)
        manifest = decode(body)  # an index that cannot be opened must not be committed
        check(new, manifest)
        with (new / MANIFEST).open("xb") as written:
            written.write(body)
        lock, unsynced = _hold(new / "used", _SHARED), _hold(new / _UNSYNCED, _ALONE)
        try:
            if lock is None or unsynced is None:
                raise FileNotFoundError(errno.ENOENT, "removed while an index was built in it", str(new))
            generation = self._directory / str(max((int(path.name) for path in self.generations()), default=0) + 1)
            new.rename(generation)
        except BaseException:
            for held in filter(None, (lock, unsynced)):
                held.close()
            raise
        self._sync_later(generation, unsynced)
        return Opened(generation, manifest, lock)

    def _sync_later(self, generation: Path, unsynced: BinaryIO) -> None:
        threading.Thread(target=self._sync, args=(generation, unsynced), name="sync").start()

    def _sync(self, generation: Path, unsynced: BinaryIO) -> None:
        mark = generation / _UNSYNCED
        with unsynced:
            try:
                for path in (*generation.iterdir(), generation, self._directory):
                    _sync(path)
                # Unless another generation has this number now.
                if os.path.samestat(os.fstat(unsynced.fileno()), mark.stat()):
                    mark.unlink()
            except FileNotFoundError:
                return  # evicted meanwhile
            except OSError as error:  # it stays marked, so the next process that opens it compares its digests
                logger.warning("%s could not be synced: %s", generation, error)

    def _remove_leftovers(self) -> None:
        """Remove what dead builders left. For holders of `building`."""
        for path in self._directory.iterdir():
            if path.name.startswith(("new-", "old-")):
                shutil.rmtree(path, ignore_errors=True)


def _measure_entries(entries: list[Entry]) -> tuple[int, list[tuple[int, int, Path]]]:
    """Remove superseded generations; returns the size of the others, and those that may be removed, with the time of
    last use and the size of each."""
    total, removable = 0, []
    for entry in entries:
        in_use = [superseded for superseded in entry.generations()[:-1] if not _remove(superseded)]
        measured = [(*_measure(generation), generation) for generation in entry.generations()]
        total += sum(size for _, size, _ in measured)
        if not in_use:  # otherwise a superseded generation would become the newest again
            removable += measured
    return total, removable


def _hold(path: Path, how: int, *, create: bool = True) -> BinaryIO | None:
    """The locked file; None if its directory does not exist, if the lock is not available at once, or if the file does
    not exist and must not be created."""
    while True:
        try:
            file = path.open("ab" if create else "r+b")
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, how)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # removed before it was locked; there may be a new one


def _remove(generation: Path) -> bool:
    """Remove a generation; False if it is open."""
    lock = _hold(generation / "used", _ALONE | _AT_ONCE)
    if lock is None:
        return False
    with lock:
        old = generation.with_name(f"old-{secrets.token_hex(8)}")
        generation.rename(old)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _measure(generation: Path) -> tuple[int, int]:
    """The time of last use of a generation and its size; zeros if it was removed meanwhile."""
    used = size = 0
    with suppress(FileNotFoundError):
        used = (generation / "used").stat().st_mtime_ns
        for folder, _, names in os.walk(generation):
            size += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    return used, size


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _explained(root: Path, only: tuple[int, ...] = ()) -> Iterator[None]:
    """Turn errors of the system (all, or `only` some) into `CacheUnusable`, with the directory and a remedy."""
    try:
        yield
    except OSError as error:
        if only and error.errno not in only:
            raise
        reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        raise CacheUnusable(
            f"the cache in {root} cannot be used: {reason}; free some space, or choose another one with --cache-dir"
        ) from error
