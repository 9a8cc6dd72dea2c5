"""Indexes on the local disk, shared by the processes and threads of one machine, within a limit of bytes.

    <root>/evicting                 locked by whoever removes
    <root>/<entry>/building         locked by whoever builds this session's index
    <root>/<entry>/<n>/             a generation: the files, manifest.json, used; unsynced, for a moment; damaged
    <root>/<entry>/new-<pid>-<x>/   a generation being built
    <root>/<entry>/old-<x>/         a generation being removed

Invariants:
* a numbered directory is complete: its files and manifest are written before it gets its number, by a rename. Syncing
  them takes longer than opening them, and goes on behind: until it is done there is a file `unsynced`, on which who
  syncs has a lock. Without that lock, after a crash, nobody knows what is on the disk: all is read before it is used;
* whoever finds that its files are not what was written leaves a file `damaged`: nobody opens it from then on. Those who
  have it open may go on, and the next one is made beside it;
* else it never changes, and it goes away whole, by a rename too, under the exclusive lock of `used`. Who has it open
  holds that lock shared, the builder from before the rename; the modification time of `used` says when that was last;
* only the holder of `building` makes `new-` directories. So whoever gets that lock may remove all it finds: their
  builders are dead. Locks are the kernel's (flock) and end with their process, however it ends;
* a lock counts only if its file still stands at its path once the lock is had: lock files may be removed by holders;
* nobody waits for a lock while holding one, except for `building`, whose holder waits for readers' locks only as long
  as a rename takes. The holder of `evicting` never waits;
* directories without a file `building` are not ours and never touched.

flock must mean what it means on a local disk: it is one lock per opened file, also among threads.
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
from typing import BinaryIO

from .manifest import MANIFEST, Damaged, Manifest, check, decode, encode

logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"[1-9][0-9]*")
_UNSYNCED, _DAMAGED = "unsynced", "damaged"
_SHARED, _ALONE, _AT_ONCE = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB


class CacheUnusable(Exception):
    """The disk is full, or the directory cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An index that stays on the disk until `close`."""

    directory: Path
    manifest: Manifest
    _lock: BinaryIO

    def is_sound(self) -> bool:
        """Read all of it: whether it is what was written. If not, nobody opens it again."""
        try:
            check(self.directory, self.manifest, deep=True)
        except Damaged as damage:
            logger.warning("an index in the cache is damaged: %s", damage)
            with _explained(self.directory.parent.parent), suppress(FileNotFoundError):  # it may be gone altogether
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
    """A directory of indexes. Removing any of it while nothing runs is safe."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root = root.absolute()
        self.max_bytes = max_bytes

    def entry(self, key: str) -> Entry:
        """The place of the session with this key (namespace/cluster/session)."""
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", key).strip("-")[:150]
        return Entry(self, self.root / f"{readable}-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}")

    def used_bytes(self) -> int:
        """What all generations take, those in use included; what is being built is not."""
        with _explained(self.root):
            return sum(_measure(generation)[1] for entry in self._entries() for generation in entry.generations())

    def evict(self) -> None:
        """Remove what is of no use, then the least recently used until the limit is kept; never what is open."""
        self._shrink(self.max_bytes)

    def clear(self) -> None:
        """Remove all that is not open."""
        self._shrink(-1)

    def _shrink(self, limit: int) -> None:
        with _explained(self.root):
            lock = _hold(self.root / "evicting", _ALONE)
            if lock is None:  # nothing was ever kept
                return
            with lock:
                entries = self._entries()
                total, removable = 0, []
                for entry in entries:
                    held = [superseded for superseded in entry.generations()[:-1] if not _remove(superseded)]
                    measured = [(*_measure(generation), generation) for generation in entry.generations()]
                    total += sum(size for _, size, _ in measured)
                    if not held:  # else the old one would become the newest again
                        removable += measured
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
        """The newest generation; None when there is none, or it was damaged and is removed."""
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
            raise Damaged("its files are not what was written")
        unsynced = _hold(generation / _UNSYNCED, _ALONE | _AT_ONCE, create=False)
        if unsynced is None:
            check(generation, manifest)
            return
        try:
            check(generation, manifest, deep=True)
        except BaseException:
            unsynced.close()
            raise
        self._settle_behind(generation, unsynced)

    def make(self, build: Callable[[Path], Manifest]) -> Opened:
        """Have `build` fill a new directory and open it as the newest generation; others wait meanwhile."""
        return self.make_unless(lambda _: False, build)

    def make_unless(self, ready: Callable[[Manifest], bool], build: Callable[[Path], Manifest]) -> Opened:
        """The same, unless the newest generation is `ready`, perhaps made by somebody else while we waited."""
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
        except CacheUnusable as error:  # what was made is good all the same
            logger.warning("%s", error)
        return opened

    def generations(self) -> list[Path]:
        """The numbered directories, oldest first."""
        with suppress(FileNotFoundError), os.scandir(self._directory) as found:
            numbers = [int(f.name) for f in found if _NUMBER.fullmatch(f.name) and f.is_dir(follow_symlinks=False)]
            return [self._directory / str(number) for number in sorted(numbers)]
        return []

    def tidy(self) -> None:
        """Remove what dead processes left, and the entry itself when it is empty, unless somebody builds here."""
        lock = _hold(self._directory / "building", _ALONE | _AT_ONCE)
        if lock is None:
            return
        with lock:
            self._remove_leftovers()
            if not self.generations():
                (self._directory / "building").unlink()
                with suppress(OSError):  # somebody came in meanwhile
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
            with _explained(self._cache.root, only=(errno.ENOSPC, errno.EDQUOT)):  # other errors are the builder's own
                manifest = build(new)
            with _explained(self._cache.root):
                return self._commit(new, manifest)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def _commit(self, new: Path, manifest: Manifest) -> Opened:
        body = encode(manifest)
        manifest = decode(body)  # what cannot be opened must not be kept
        check(new, manifest)
        with (new / MANIFEST).open("xb") as written:
            written.write(body)
        lock, unsynced = _hold(new / "used", _SHARED), _hold(new / _UNSYNCED, _ALONE)
        try:
            if lock is None or unsynced is None:
                raise FileNotFoundError(errno.ENOENT, "it was removed while an index was built in it", str(new))
            generation = self._directory / str(max((int(path.name) for path in self.generations()), default=0) + 1)
            new.rename(generation)
        except BaseException:
            for held in filter(None, (lock, unsynced)):
                held.close()
            raise
        self._settle_behind(generation, unsynced)
        return Opened(generation, manifest, lock)

    def _settle_behind(self, generation: Path, unsynced: BinaryIO) -> None:
        threading.Thread(target=self._settle, args=(generation, unsynced), name="sync").start()

    def _settle(self, generation: Path, unsynced: BinaryIO) -> None:
        mark = generation / _UNSYNCED
        with unsynced:
            try:
                for path in (*generation.iterdir(), generation, self._directory):
                    _sync(path)
                if os.path.samestat(os.fstat(unsynced.fileno()), mark.stat()):  # else another one has this number now
                    mark.unlink()
            except FileNotFoundError:
                return  # it was evicted meanwhile
            except OSError as error:  # it stays marked: who opens it next looks whether it is whole
                logger.warning("%s could not be written to the disk: %s", generation, error)

    def _remove_leftovers(self) -> None:
        """For holders of `building`."""
        for path in self._directory.iterdir():
            if path.name.startswith(("new-", "old-")):
                shutil.rmtree(path, ignore_errors=True)


def _hold(path: Path, how: int, *, create: bool = True) -> BinaryIO | None:
    """The file with a lock on it; None when its directory is gone, or the lock is not to be had at once, or there is no
    file and it shall not be made."""
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
        file.close()  # removed before we had the lock; there may be a new one


def _remove(generation: Path) -> bool:
    """Remove a generation unless somebody has it open; False then."""
    lock = _hold(generation / "used", _ALONE | _AT_ONCE)
    if lock is None:
        return False
    with lock:
        old = generation.with_name(f"old-{secrets.token_hex(8)}")
        generation.rename(old)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _measure(generation: Path) -> tuple[int, int]:
    """When a generation was last used, and its bytes; zeros for what is gone meanwhile."""
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
    """Say of the system's errors (all, or those) which directory it is about and what to do."""
    try:
        yield
    except OSError as error:
        if only and error.errno not in only:
            raise
        reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        raise CacheUnusable(
            f"the cache in {root} cannot be used: {reason}; make room or choose another with --cache-dir"
        ) from error
