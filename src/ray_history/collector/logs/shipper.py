"""Uploads the log files of one node in one session: new bytes as log tails, whole files when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from os.path import basename
from pathlib import Path

from ray_history.archive.errors import ArchiveError
from ray_history.collector.destination import Destination

from .bundles import BUNDLE_BYTES, Bundles
from .full_uploads import FullUploads, Outcome
from .objects import Interrupted, Objects
from .recovery import Recovery
from .scanner import Descriptors, Identity, Vanished, read_at
from .state import Counters, Fingerprint, LogState, Stream, TrackedFile
from .tracker import NewFileFilter, ScanResult, Tracker
from .turns import LEAST_SHARE, Turns, pending_bytes

OPEN_FILES = 64
"""Number of growing files kept open, so that one deleted between two scans is still read to its end."""

COUNT_BYTES = 4 * 1024 * 1024
"""Bytes read per scan to count lines: 2 ms."""

PARALLEL_EMPTY = 32
"""Concurrent uploads of empty files: Ray has a few for each worker, and they take no memory."""

EXPORT_GIVEN_UP = b"Failed to establish connection to the event+metrics exporter agent"
"""Ray's GCS (2.52 to 2.60) writes this if the agent of the head did not start within 30 s. Then it exports no events,
for as long as it runs."""

FOREVER = float("inf")

_LARGE = 8 * 1024 * 1024
_ROUNDS = 3  # of a final `finish` while files still grow


@dataclass(frozen=True, slots=True)
class FinishResult:
    """The result of `finish`."""

    complete: bool
    """Every readable file is stored as a whole object and no bundle is left."""
    files_left: int
    bytes_left: int
    """Bytes that are not in the archive, neither in whole objects nor in tails."""
    bundles_left: int
    failures: tuple[str, ...]


class LogShipper:
    """The log files of one node in one session. Not thread-safe.

    Calls raise ArchiveError if the store fails; nothing is lost, and the next call continues.
    """

    def __init__(
        self,
        destination: Destination,
        session: str,
        node: str,
        logs: Path,
        state_file: Path,
        *,
        own_files: NewFileFilter = lambda strangers: strangers,
        bundle_bytes: int = BUNDLE_BYTES,
        open_files: int = OPEN_FILES,
        count_bytes: int = COUNT_BYTES,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`logs` is the directory; `state_file` must survive a restart, or work is repeated.

        When `is_stopping`, calls return after the bundle or file that they are uploading.
        """
        self._is_stopping = is_stopping
        self._state = LogState(state_file, session, node)
        self._descriptors = Descriptors(logs, open_files)
        self._bundles = Bundles(destination, session, node, self._state, bundle_bytes)
        self._objects = Objects(destination, session, node, self._state)
        self._tracker = Tracker(logs, self._state, self._objects, self._descriptors, count_bytes, own_files)
        self._uploads = FullUploads(self._state, self._bundles, self._objects, self._descriptors, self._tracker)
        self._uploads.is_stopping = is_stopping
        self._uploads.meanwhile = self._ship_meanwhile
        self._tracker.busy = self._uploads.busy
        self._turns = Turns()
        self._is_meanwhile = False
        self._recovered = False
        self.export_given_up = False
        """Whether this process found `EXPORT_GIVEN_UP` in a log of the GCS."""

    @property
    def session(self) -> str:
        return self._state.session

    @property
    def node(self) -> str:
        return self._state.node

    @property
    def identities(self) -> AbstractSet[Identity]:
        """The files of this node."""
        return self._state.identities

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def problems(self) -> Sequence[str]:
        """Messages about unreadable files, each once."""
        return self._tracker.problems

    @property
    def empty_directories(self) -> Sequence[str]:
        """Directories without files, as of the last scan."""
        return self._tracker.empty_directories

    @property
    def state_problem(self) -> str:
        """Why there is no state of an earlier process; empty if there is."""
        return self._state.lost

    def close(self) -> None:
        """Close all files; positions are saved already."""
        self._descriptors.close_all()

    def ignore_new_files(self) -> None:
        """Continue with the tracked files; new ones belong to another node."""
        self._tracker.own_files = lambda _: frozenset()

    def scan(self) -> ScanResult:
        """Look what happened to the files, without requests to the store."""
        return self._tracker.scan()

    def ship_tails(self, deadline: float = FOREVER) -> None:
        """Upload all scanned bytes that are not in the archive, until the deadline (monotonic)."""
        while self.ship_round(deadline) and not self._is_over(deadline):
            pass

    def ship_round(self, deadline: float = FOREVER, most_pending: float = FOREVER) -> bool:
        """Upload scanned bytes of each file in its turn, at most a bundle; True if there are more.

        Files with more than `most_pending` bytes have no turn.
        """
        self._recover()
        self._uploads.deadline = deadline
        unsent = self._tracker.unsent
        this = self._turns.begin({each for each in unsent - self._busy_files() if pending_bytes(each) <= most_pending})
        try:
            self._bundles.note_newest_generations()
            writers = {s.path: f for f in this.files for s in f.streams[-1:] if self._bundles.is_current(s)}
            for file in this.turns():
                if self._is_over(deadline):
                    this.is_cut = True
                    break
                if self._ship(file, writers, min(self._bundles.room(LEAST_SHARE), this.share)):
                    this.backlog.add(file.identity)
            self._bundles.put()
            self._tracker.unsent -= {file for file in this.files if file.size <= file.stored}
        finally:
            self._bundles.discard()
        self._turns.end(this, self._tracker.unsent)
        self._state.save()
        return this.is_cut or bool(this.backlog)

    def _busy_files(self) -> set[TrackedFile]:
        """Files that another upload works on, or whose name is being taken by one."""
        busy, reserved = self._uploads.busy, self._objects.reserved
        return {file for file in self._tracker.unsent if file.identity in busy or file.name in reserved}

    def _is_over(self, deadline: float) -> bool:
        return time.monotonic() >= deadline or (self._is_stopping() and not self._is_meanwhile)

    def _ship_meanwhile(self) -> None:
        """Upload new lines while whole files are uploaded, which may take hours."""
        self._is_meanwhile = True
        try:
            with suppress(ArchiveError):  # the next round after these uploads reports it, if it fails again
                self.scan()
                self.ship_round(self._uploads.deadline)
        finally:
            self._is_meanwhile = False

    def ship_renamed(self, deadline: float = FOREVER) -> None:
        """Store rotated, moved and deleted files as whole objects: they will not change any more."""
        self._recover()
        outcomes = self._store_renamed(deadline)
        failures = [failure for outcome in outcomes for failure in outcome.failures]
        self._clean_up()
        if failures:
            raise failures[0]

    def finish(self, deadline: float, *, final: bool) -> FinishResult:
        """Upload the last tails, store every file as a whole object, delete the bundles.

        Stops at the deadline (monotonic) and raises no ArchiveError: the result says what is left, and a later call or
        process continues there. `final`: files should not grow any more, so scan again at the end for late writes.
        """
        failures: list[str] = []
        for _ in range(_ROUNDS if final else 1):
            self.scan()
            self._tracker.unreadable.clear()
            failures += self._finish_round(deadline)
            if failures or time.monotonic() >= deadline:
                break
            if final:
                self.scan()
                if self._summary(()).complete:
                    break
        return self._summary(tuple(failures))

    def _finish_round(self, deadline: float) -> list[str]:
        failures: list[str] = []
        try:
            self._recover()
        except ArchiveError as error:
            return [str(error)]
        try:
            # Half of the time for a backlog: small files can still be stored as whole objects.
            self.ship_tails(deadline if deadline == FOREVER else (time.monotonic() + deadline) / 2)
        except ArchiveError as error:
            failures.append(str(error))
        outcomes = self._store_renamed(deadline)
        files = sorted(self._state.files.values(), key=_priority)
        outcomes.append(self._uploads.store(file for file in files if file.size and not file.is_whole))
        if time.monotonic() >= deadline:
            self._state.save()  # superseded objects are harmless, a late exit is not
            return failures + [str(failure) for outcome in outcomes for failure in outcome.failures]
        try:
            self._clean_up()
            empty = [file for file in files if not file.size and not file.is_whole]
            outcomes.append(self._uploads.store(empty, parallel=PARALLEL_EMPTY))
            self._clean_up()
        except ArchiveError as error:
            failures.append(str(error))
        return failures + [str(failure) for outcome in outcomes for failure in outcome.failures]

    def _summary(self, failures: tuple[str, ...]) -> FinishResult:
        files = [*self._state.files.values(), *self._state.gone.values()]
        left = [f for f in files if not f.is_whole and f.identity not in self._tracker.unreadable]
        bytes_left = sum(map(pending_bytes, left))
        complete = not left and not self._state.deleted_files and not self._bundles.count
        return FinishResult(
            complete and not failures,
            len(left) + len(self._state.deleted_files),
            bytes_left,
            self._bundles.count,
            tuple(dict.fromkeys(failures)),
        )

    def unsent_bytes(self) -> dict[str, int]:
        """By name, the largest first: bytes that are not in the archive. For any thread."""
        files = [*list(self._state.files.values()), *list(self._state.gone.values())]
        found = sorted(((pending_bytes(file), file.name) for file in files), reverse=True)
        return {name: size for size, name in found if size}

    def _recover(self) -> None:
        if self._recovered:
            return
        if not self._tracker.scanned:
            self.scan()
        recovery = Recovery(self._state, self._bundles, self._objects, self._descriptors, self._tracker.reset)
        for problem in recovery.run():
            self._tracker.report(problem)
        self._recovered = True

    def _store_renamed(self, deadline: float) -> list[Outcome]:
        self._uploads.deadline = deadline
        gone = list(self._state.gone.values())
        renamed = [file for file in self._state.files.values() if file.is_renamed]
        return [self._uploads.store([*gone, *sorted(renamed, key=_priority)]), self._uploads.preserve_deleted_files()]

    def _clean_up(self) -> None:
        """Delete what is superseded, after saving where the content is stored."""
        self._objects.refresh_etags()
        self._state.save()
        self._objects.delete_stale()
        self._tracker.unsent.update(self._bundles.delete_superseded())
        self._bundles.merge_small()
        self._state.save()

    # Tails

    def _ship(self, file: TrackedFile, writers: dict[str, TrackedFile], share: int) -> bool:
        """Add new bytes of a file to the bundle, at most its share; True if it has more."""
        if not (file.size or file.streams or file.whole) and file.identity in self._state.files:
            self._bundles.add_empty(file)
            return False
        try:
            self._descriptors.get(file.identity, file.name)  # stays open while the file grows
            with self._descriptors.borrowed(file.identity, file.name) as descriptor:
                return self._ship_open(file, descriptor, writers, share)
        except (Vanished, Interrupted):
            return False
        except OSError as error:
            self._tracker.report_unreadable(file, error)
            return False

    def _ship_open(self, file: TrackedFile, descriptor: int, writers: dict[str, TrackedFile], share: int) -> bool:
        if not file.fingerprint.matches(descriptor):
            self._tracker.reset(file, file.size)
        stream = self._stream_for(file, descriptor, writers, share)
        if stream is None:
            return False
        start = stream.sent
        if file.whole is not None and file.whole.name == stream.path:
            start = max(start, file.whole.size)
        stop = min(file.size, start + share)
        while start < stop:
            end = min(stop, start + self._bundles.room())
            data = read_at(descriptor, start, end)
            if len(data) < end - start:
                return False  # it became shorter since the scan; the next scan handles that
            if not stream.generation:
                stream.generation = self._bundles.next_generation()
                file.streams.append(stream)
            self._bundles.add(file, stream, start, data, Fingerprint.of(descriptor, end, data))
            self._search_gcs_log(file, descriptor, start, data)
            start = end
            if not self._bundles.room():
                self._bundles.put()
                if self._is_over(self._uploads.deadline):
                    break
        return start < file.size

    def _search_gcs_log(self, file: TrackedFile, descriptor: int, start: int, data: bytes) -> None:
        """Look for `EXPORT_GIVEN_UP` in new bytes that are being uploaded anyway."""
        if basename(file.name).startswith("gcs_server."):
            before = read_at(descriptor, max(0, start - len(EXPORT_GIVEN_UP)), start)
            self.export_given_up |= EXPORT_GIVEN_UP in before + data

    def _stream_for(
        self, file: TrackedFile, descriptor: int, writers: dict[str, TrackedFile], share: int
    ) -> Stream | None:
        """The stream for the next tails of a file, by its whole object and its newest stream:

        | whole object                | newest stream             | tails continue                     |
        |-----------------------------|---------------------------|------------------------------------|
        | has the file's name         | has the file's name       | in that stream                     |
        | has the file's name         | another name, or none     | in a new stream                    |
        | none, or the stream's name  | has the file's name       | in that stream, with the name free |
        | none, or the stream's name  | another name, still free  | in that stream                     |
        | otherwise, if the file is empty, renamed or deleted     | not: it is stored whole soon       |
        | otherwise                   |                           | in a new stream, with the name free |
        """
        stream = file.streams[-1] if file.streams and self._bundles.is_current(file.streams[-1]) else None
        if file.whole is not None and file.whole.name == file.name:
            return stream if stream is not None and stream.path == file.name else Stream(file.name, 0)
        if stream is not None and self._continues(file, stream):
            if stream.path == file.name:
                self._free_name(file, descriptor)
            return stream
        if not file.size or file.is_renamed or file.identity in self._state.gone:
            return None
        previous = writers.pop(file.name, None)
        if previous is not None and previous is not file:
            # Afterwards, its bytes can be uploaded under this name no more. What exceeds its share waits until it is
            # stored as a whole object, as a renamed file is.
            self._ship(previous, writers, share)
        self._free_name(file, descriptor)
        return Stream(file.name, 0)

    def _continues(self, file: TrackedFile, stream: Stream) -> bool:
        if file.whole is not None and file.whole.name != stream.path:
            return False
        # Under another name, the tails would hide the object of the file that has it now.
        return stream.path == file.name or not self._uploads.is_occupied(stream.path, file)

    def _free_name(self, file: TrackedFile, descriptor: int) -> None:
        """Preserve an object of another file: tails would hide it, or it would be read as their start."""
        existing = self._objects.at(file.name)
        if existing is not None and existing.owner is not file:
            if self._is_meanwhile:
                raise Interrupted("names are freed between uploads only")
            self._bundles.put()
            self._uploads.free_name(file.name, file, descriptor)
            self._state.save()
            self._objects.delete_stale()


def _priority(file: TrackedFile) -> tuple[bool, int, int, str]:
    """Sort key: what users look for first, and small files, as the time is limited."""
    name = basename(file.name)
    matches = name.startswith("job-driver-"), name.endswith(".err") or "error" in name
    return file.size > _LARGE, matches.index(True) if any(matches) else 2, file.size, file.name
