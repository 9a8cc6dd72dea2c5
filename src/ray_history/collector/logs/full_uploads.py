"""Stores log files as whole objects under their names, without destroying existing objects.

The object of a name is preserved before the content of another file replaces it, or newer tails hide it:
* if its file was renamed, it is stored under its new name first, by a copy within the store if the object is complete;
* if its file was deleted or truncated, see `preservation`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import fstat
from typing import Protocol

from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores.cloud import PART_SIZE

from .bundles import Bundles
from .objects import SAMPLE, Interrupted, Objects, StoredObject, chunks
from .preservation import Preservation
from .scanner import Descriptors, Identity, Vanished, read_at
from .state import EDGE, HEAD, DeletedFile, Fingerprint, LogState, Stream, TrackedFile, WholeObject

PARALLEL = 4
"""Concurrent uploads of small files by default. Large files are uploaded one at a time, in concurrent parts."""

_MEANWHILE = 1.0
"""Seconds between the calls of `meanwhile`."""

_MAX_FAILURES = 5  # more are due to the store, not to the files


class FileObserver(Protocol):
    """Is notified about files while they are stored."""

    def reset(self, file: TrackedFile, size: int) -> None:
        """The inode has other content, of this size."""

    def report_unreadable(self, file: TrackedFile, error: OSError) -> None:
        """The file exists, but cannot be read."""

    def report(self, problem: str) -> None:
        """There was another problem."""


@dataclass(slots=True)
class Outcome:
    """The result of storing files."""

    left: int = 0
    failures: list[ArchiveError] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Job:
    file: TrackedFile
    target: str
    descriptor: int
    size: int
    mtime_ns: int
    source: str | None
    """The name of an object to copy instead of uploading the file."""
    resources: ExitStack


class FullUploads:
    """Stores files as whole objects. Not thread-safe; uploads run in threads of its own."""

    def __init__(
        self, state: LogState, bundles: Bundles, objects: Objects, descriptors: Descriptors, observer: FileObserver
    ) -> None:
        self._state = state
        self._bundles = bundles
        self._objects = objects
        self._descriptors = descriptors
        self._observer = observer
        self._preservation = Preservation(state, bundles, objects, observer.report, self._check)
        self._moving: set[TrackedFile] = set()
        self._running: dict[Future[Fingerprint | None], _Job] = {}
        self._outcome = Outcome()
        self.deadline = float("inf")
        """Monotonic time after which uploads are given up."""
        self.is_stopping: Callable[[], bool] = lambda: False
        """Whether uploads are given up now."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Is called every second while uploads run; must not touch the files of `busy`, nor free names."""
        self.busy: set[Identity] = set()
        """The files being stored."""

    def store(self, files: Iterable[TrackedFile], parallel: int = PARALLEL) -> Outcome:
        """Store files, as far as possible in this order; a failure does not stop the others."""
        outcome = self._outcome = Outcome()
        with ThreadPoolExecutor(parallel, thread_name_prefix="log-upload") as threads:
            for file in files:
                if self._is_over or len(outcome.failures) >= _MAX_FAILURES:
                    outcome.left += 1
                    continue
                with self._counted():
                    job = self._prepare(file)
                    if job is None:
                        continue
                    while len(self._running) >= (1 if job.size > PART_SIZE else parallel):
                        self._finish_one()
                    self._running[threads.submit(self._run, job)] = job
                    if job.size > PART_SIZE:
                        self._drain()
            self._drain()
        return outcome

    def preserve_deleted_files(self) -> Outcome:
        """Store what is left of deleted files."""
        outcome = self._outcome = Outcome()
        for deleted in list(self._state.deleted_files):
            if self._is_over or len(outcome.failures) >= _MAX_FAILURES:
                outcome.left += 1
                continue
            with self._counted():
                self._preservation.preserve_deleted(deleted)
        return outcome

    # Names

    def is_occupied(self, name: str, file: TrackedFile) -> bool:
        """Whether the name has an object of another file."""
        existing = self._objects.at(name)
        return existing is not None and not existing.stale and existing.owner is not file

    def free_name(self, name: str, file: TrackedFile, descriptor: int) -> None:
        """Preserve the object of a name that now belongs to this file."""
        if not self.is_occupied(name, file):
            return
        self._drain()
        existing = self._objects.by_name[name]
        if not existing.is_identified and existing.owner is None and self._is_start_of(name, file, descriptor):
            self._adopt(name, existing, file, descriptor)
            return
        owner = existing.owner
        if isinstance(owner, DeletedFile):
            self._preservation.preserve_deleted(owner)
        elif owner is not None and owner not in self._moving:
            self._upload_now(owner)
        if self.is_occupied(name, file):
            self._preservation.preserve_object(name)
        self._state.save_soon()

    def _adopt(self, name: str, existing: StoredObject, file: TrackedFile, descriptor: int) -> None:
        """After a start: an object without owner turned out to be of this file."""
        if file.stored > existing.size:
            self._objects.mark_stale(name)  # more of the file is stored elsewhere
            return
        existing.is_identified, existing.owner = True, file
        if file.whole is not None and self.is_owned(file.whole.name, file):
            self._objects.mark_stale(file.whole.name)
        current = existing.size == file.size
        file.covered_by(WholeObject(name, existing.size, file.mtime_ns if current else 0, existing.etag))
        if existing.size > file.fingerprint.edge_end:
            file.fingerprint = Fingerprint.of(descriptor, existing.size)

    def is_owned(self, name: str, file: TrackedFile) -> bool:
        existing = self._objects.by_name.get(name)
        return existing is not None and existing.owner is file

    def _is_start_of(self, name: str, file: TrackedFile, descriptor: int) -> bool:
        return self._objects.is_prefix(name, file.size, lambda start, end: read_at(descriptor, start, end))

    # One file

    def _upload_now(self, file: TrackedFile) -> None:
        job = self._prepare(file)
        if job is not None:
            with job.resources:
                self._commit(job, self._run(job))

    def _prepare(self, file: TrackedFile) -> _Job | None:
        """Everything before the upload; None if there is nothing to upload, or the file cannot be read."""
        with ExitStack() as resources:
            try:
                descriptor = resources.enter_context(self._descriptors.borrowed(file.identity, file.name))
                status = fstat(descriptor)
                same = file.fingerprint.matches(descriptor)
            except Vanished:
                self._outcome.left += 1
                return None
            except OSError as error:
                self._outcome.left += 1
                self._observer.report_unreadable(file, error)
                return None
            if not same or status.st_size < file.reach:
                self._observer.reset(file, status.st_size)
            self._state.counters.bytes_written += max(0, status.st_size - file.size)
            file.size, file.mtime_ns = status.st_size, status.st_mtime_ns
            gone = file.identity in self._state.gone
            if gone and self._drop_if_stored(file):
                return None
            target, done = file.name, False
            if gone:
                target, done = self._preservation.target(
                    file, file.size, lambda start, end: read_at(descriptor, start, end)
                )
            else:
                self._moving.add(file)
                try:
                    self.free_name(target, file, descriptor)
                finally:
                    self._moving.discard(file)
                if file.is_whole:
                    return None
            if not self._upload_evidence(file, target, descriptor):
                self._outcome.left += 1
                return None
            source = target if done else self._complete_object(file)
            self._objects.reserved.add(target)
            resources.callback(self._objects.reserved.discard, target)
            self.busy.add(file.identity)
            resources.callback(self.busy.discard, file.identity)
            return _Job(file, target, descriptor, file.size, file.mtime_ns, source, resources.pop_all())

    def _drop_if_stored(self, file: TrackedFile) -> bool:
        """Forget a deleted file that is empty or stored as a whole object."""
        whole = file.whole
        if file.size and (whole is None or whole.size != file.size):
            return False
        if whole is not None:
            self._objects.disown(whole.name, file.mtime_ns)
        self._drop(file)
        return True

    def _drop(self, file: TrackedFile) -> None:
        del self._state.gone[file.identity]
        self._descriptors.close(file.identity)
        self._state.save_soon()

    def _complete_object(self, file: TrackedFile) -> str | None:
        whole = file.whole
        if whole is None or (whole.size, whole.mtime_ns) != (file.size, file.mtime_ns):
            return None
        return whole.name if self.is_owned(whole.name, file) else None

    def _upload_evidence(self, file: TrackedFile, name: str, descriptor: int) -> bool:
        """Upload some bytes as tail before a whole object, if tails of another file have the name."""
        newest = self._bundles.newest(name)
        if not newest or any((s.path, s.generation) == (name, newest) and s.sent for s in file.streams):
            return True
        data = read_at(descriptor, 0, min(SAMPLE, file.size))
        if not data:
            return False  # an empty file has no bytes for it, and waits until those tails are deleted
        stream = Stream(name, self._bundles.next_generation())
        file.streams.append(stream)
        fingerprint = file.fingerprint if file.fingerprint.edge_end else Fingerprint.of(descriptor, len(data), data)
        self._bundles.put()
        self._bundles.add(file, stream, 0, data, fingerprint)
        self._bundles.put()
        return True

    def _run(self, job: _Job) -> Fingerprint | None:
        """The transfer itself. Runs in a thread of its own, so it changes no state."""
        if job.source == job.target:
            return None
        if job.source is not None:
            try:
                self._objects.copy(job.source, job.target)
                return None
            except ArchiveError:
                self._check()  # upload the file instead
        head, last = b"", b""

        def watched() -> Iterator[bytes]:
            nonlocal head, last
            for chunk in chunks(job.descriptor, job.size, self._check):
                head = head if len(head) >= HEAD else (head + chunk)[:HEAD]
                last = (last + chunk)[-EDGE:]
                yield chunk

        self._objects.upload(job.target, watched())
        return Fingerprint(len(head), zlib.crc32(head), job.size, zlib.crc32(last))

    def _commit(self, job: _Job, fingerprint: Fingerprint | None) -> None:
        file, previous, stored = job.file, job.file.whole, job.file.stored
        if fingerprint is not None:
            file.fingerprint = fingerprint
            self._state.counters.bytes_uploaded += job.size
            self._state.counters.whole_uploads += 1
        file.covered_by(WholeObject(job.target, job.size, job.mtime_ns))
        self._state.counters.bytes_stored += max(0, file.stored - stored)
        if file.streams and file.streams[-1].path == job.target:
            file.streams[-1].sent = job.size
        self._objects.record(job.target, StoredObject(job.size, None, file))
        if previous is not None and previous.name != job.target and self.is_owned(previous.name, file):
            self._objects.mark_stale(previous.name)
        if file.identity in self._state.gone:
            self._objects.disown(job.target, file.mtime_ns)
            self._drop(file)
        self._state.save_soon()

    # Many files

    def _finish_one(self) -> None:
        future = next(iter(self._running))
        while not self._moving and not wait([future], _MEANWHILE).done:
            self.meanwhile()
        job = self._running.pop(future)
        with job.resources, self._counted():
            self._commit(job, future.result())

    def _drain(self) -> None:
        while self._running:
            self._finish_one()

    def _counted(self) -> _Counted:
        return _Counted(self._outcome)

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self.deadline or self.is_stopping()

    def _check(self) -> None:
        if self._is_over:
            raise Interrupted("the deadline has passed, or the collector stops")


class _Counted:
    """A block in which the failure of one file is counted and suppressed."""

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
