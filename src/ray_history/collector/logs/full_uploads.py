"""Storing log files whole under their names, without destroying what stands there.

What a name's object holds is brought to safety before another file's content replaces it, or hides it by newer tails:
* its file was renamed: it is stored under its new name first, by a copy inside the store when the object is complete;
* its file is gone, or was truncated: see `keeping`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import fstat
from typing import Protocol

from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores.cloud import PART_SIZE

from .bundles import Bundles
from .objects import SAMPLE, Interrupted, Objects, Standing, chunks
from .preservation import Keeping
from .scanner import Descriptors, Vanished, read_at
from .state import EDGE, HEAD, Followed, Former, Mark, Positions, Stream, Whole

PARALLEL = 4
"""Small files on their way at a time; of large ones there is one, which goes up in parts at a time."""

_ENOUGH_FAILURES = 5  # then the store is the problem, not the file


class Following(Protocol):
    """What is told about a file while it is stored."""

    def renew(self, file: Followed, size: int) -> None:
        """Another content, of this size, stands behind this inode."""

    def cannot_read(self, file: Followed, error: OSError) -> None:
        """The file is there and cannot be read."""

    def report(self, problem: str) -> None:
        """Something could not be read."""


@dataclass(slots=True)
class Outcome:
    """What became of files that were to be stored."""

    left: int = 0
    failures: list[ArchiveError] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Job:
    file: Followed
    target: str
    descriptor: int
    size: int
    mtime_ns: int
    source: str | None
    """The name of an object to copy instead of an upload."""
    resources: ExitStack


class Wholes:
    """Stores files whole; all calls from one thread, uploads in a few."""

    def __init__(
        self, positions: Positions, bundles: Bundles, objects: Objects, descriptors: Descriptors, following: Following
    ) -> None:
        self._positions = positions
        self._bundles = bundles
        self._objects = objects
        self._descriptors = descriptors
        self._following = following
        self._keeping = Keeping(positions, bundles, objects, following.report, self._check)
        self._moving: set[Followed] = set()
        self._running: dict[Future[Mark | None], _Job] = {}
        self._outcome = Outcome()
        self.deadline = float("inf")
        """Monotonic; uploads are given up after it."""

    def store(self, files: Iterable[Followed]) -> Outcome:
        """Store files whole, in this order as far as possible; one that cannot be stored does not stop the others."""
        outcome = self._outcome = Outcome()
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="log-upload") as threads:
            for file in files:
                if time.monotonic() >= self.deadline or len(outcome.failures) >= _ENOUGH_FAILURES:
                    outcome.left += 1
                    continue
                with self._counted():
                    job = self._prepare(file)
                    if job is None:
                        continue
                    while len(self._running) >= (1 if job.size > PART_SIZE else PARALLEL):
                        self._finish_one()
                    self._running[threads.submit(self._run, job)] = job
                    if job.size > PART_SIZE:
                        self._drain()
            self._drain()
        return outcome

    def keep_formers(self) -> Outcome:
        """Put together what is left of files that are no more."""
        outcome = self._outcome = Outcome()
        for former in list(self._positions.formers):
            if time.monotonic() >= self.deadline or len(outcome.failures) >= _ENOUGH_FAILURES:
                outcome.left += 1
                continue
            with self._counted():
                self._keeping.keep_former(former)
        return outcome

    # Names

    def is_occupied(self, name: str, file: Followed) -> bool:
        """Whether an object stands there that is not this file's."""
        there = self._objects.at(name)
        return there is not None and not there.stale and there.owner is not file

    def vacate(self, name: str, file: Followed, descriptor: int) -> None:
        """Bring to safety what stands under a name that is this file's now."""
        if not self.is_occupied(name, file):
            return
        self._drain()
        there = self._objects.standing[name]
        if not there.known and there.owner is None and self._is_begin_of(name, file, descriptor):
            self._adopt(name, there, file, descriptor)
            return
        owner = there.owner
        if isinstance(owner, Former):
            self._keeping.keep_former(owner)
        elif owner is not None and owner not in self._moving:
            self._settle(owner)
        if self.is_occupied(name, file):
            self._keeping.keep_object(name)
        self._positions.save_soon()

    def _adopt(self, name: str, there: Standing, file: Followed, descriptor: int) -> None:
        """After a start: an object nobody remembered turned out to be this file's."""
        if file.stored > there.size:
            self._objects.forsake(name)  # and more of it stands elsewhere
            return
        there.known, there.owner = True, file
        if file.whole is not None and self.is_owned(file.whole.name, file):
            self._objects.forsake(file.whole.name)
        current = there.size == file.size
        file.covered_by(Whole(name, there.size, file.mtime_ns if current else 0, there.etag))
        if there.size > file.mark.edge_end:
            file.mark = Mark.at(descriptor, there.size)

    def is_owned(self, name: str, file: Followed) -> bool:
        there = self._objects.standing.get(name)
        return there is not None and there.owner is file

    def _is_begin_of(self, name: str, file: Followed, descriptor: int) -> bool:
        return self._objects.begins(name, file.size, lambda start, end: read_at(descriptor, start, end))

    # One file

    def _settle(self, file: Followed) -> None:
        job = self._prepare(file)
        if job is not None:
            with job.resources:
                self._commit(job, self._run(job))

    def _prepare(self, file: Followed) -> _Job | None:
        """All that must be done before the upload; None when there is nothing to upload, or nothing to read."""
        with ExitStack() as resources:
            try:
                descriptor = resources.enter_context(self._descriptors.borrowed(file.identity, file.name))
                status = fstat(descriptor)
                same = file.mark.is_on(descriptor)
            except Vanished:
                self._outcome.left += 1
                return None
            except OSError as error:
                self._outcome.left += 1
                self._following.cannot_read(file, error)
                return None
            if not same or status.st_size < file.reach:
                self._following.renew(file, status.st_size)
            self._positions.counters.bytes_written += max(0, status.st_size - file.size)
            file.size, file.mtime_ns = status.st_size, status.st_mtime_ns
            gone = file.identity in self._positions.gone
            if gone and self._drop_if_stored(file):
                return None
            target, done = file.name, False
            if gone:
                target, done = self._keeping.target(file, file.size, lambda start, end: read_at(descriptor, start, end))
            else:
                self._moving.add(file)
                try:
                    self.vacate(target, file, descriptor)
                finally:
                    self._moving.discard(file)
                if file.is_whole:
                    return None
            if not self._prove(file, target, descriptor):
                self._outcome.left += 1
                return None
            source = target if done else self._complete_object(file)
            self._objects.reserved.add(target)
            resources.callback(self._objects.reserved.discard, target)
            return _Job(file, target, descriptor, file.size, file.mtime_ns, source, resources.pop_all())

    def _drop_if_stored(self, file: Followed) -> bool:
        """A deleted file that has no bytes, or stands whole somewhere, needs nothing more."""
        whole = file.whole
        if file.size and (whole is None or whole.size != file.size):
            return False
        if whole is not None:
            self._objects.release(whole.name, file.mtime_ns)
        self._drop(file)
        return True

    def _drop(self, file: Followed) -> None:
        del self._positions.gone[file.identity]
        self._descriptors.close(file.identity)
        self._positions.save_soon()

    def _complete_object(self, file: Followed) -> str | None:
        whole = file.whole
        if whole is None or (whole.size, whole.mtime_ns) != (file.size, file.mtime_ns):
            return None
        return whole.name if self.is_owned(whole.name, file) else None

    def _prove(self, file: Followed, name: str, descriptor: int) -> bool:
        """Ship some bytes before a whole object, where tails of another file would speak against it."""
        newest = self._bundles.newest(name)
        if not newest or any((s.path, s.generation) == (name, newest) and s.sent for s in file.streams):
            return True
        data = read_at(descriptor, 0, min(SAMPLE, file.size))
        if not data:
            return False  # an empty file has nothing to prove it with; it waits until those tails are deleted
        stream = Stream(name, self._bundles.next_generation())
        file.streams.append(stream)
        mark = file.mark if file.mark.edge_end else Mark.at(descriptor, len(data), data)
        self._bundles.put()
        self._bundles.add(file, stream, 0, data, mark)
        self._bundles.put()
        return True

    def _run(self, job: _Job) -> Mark | None:
        """The transfer itself; in a thread of its own, so it changes nothing."""
        if job.source == job.target:
            return None
        if job.source is not None:
            try:
                self._objects.copy(job.source, job.target)
                return None
            except ArchiveError:
                self._check()  # the file is on this disk: upload it instead
        head, last = b"", b""

        def watched() -> Iterator[bytes]:
            nonlocal head, last
            for chunk in chunks(job.descriptor, job.size, self._check):
                head = head if len(head) >= HEAD else (head + chunk)[:HEAD]
                last = (last + chunk)[-EDGE:]
                yield chunk

        self._objects.upload(job.target, watched())
        return Mark(len(head), zlib.crc32(head), job.size, zlib.crc32(last))

    def _commit(self, job: _Job, mark: Mark | None) -> None:
        file, previous, stored = job.file, job.file.whole, job.file.stored
        if mark is not None:
            file.mark = mark
            self._positions.counters.bytes_uploaded += job.size
            self._positions.counters.whole_uploads += 1
        file.covered_by(Whole(job.target, job.size, job.mtime_ns))
        self._positions.counters.bytes_stored += max(0, file.stored - stored)
        if file.streams and file.streams[-1].path == job.target:
            file.streams[-1].sent = job.size
        self._objects.take(job.target, Standing(job.size, None, file))
        if previous is not None and previous.name != job.target and self.is_owned(previous.name, file):
            self._objects.forsake(previous.name)
        if file.identity in self._positions.gone:
            self._objects.release(job.target, file.mtime_ns)
            self._drop(file)
        self._positions.save_soon()

    # Many files

    def _finish_one(self) -> None:
        future = next(iter(self._running))
        job = self._running.pop(future)
        with job.resources, self._counted():
            self._commit(job, future.result())

    def _drain(self) -> None:
        while self._running:
            self._finish_one()

    def _counted(self) -> _Counted:
        return _Counted(self._outcome)

    def _check(self) -> None:
        if time.monotonic() >= self.deadline:
            raise Interrupted("the time is over")


class _Counted:
    """A block in which one file may fail."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if isinstance(error, ArchiveError):
            self._outcome.failures.append(error)
        elif not isinstance(error, Interrupted):
            return False
        self._outcome.left += 1
        return True
