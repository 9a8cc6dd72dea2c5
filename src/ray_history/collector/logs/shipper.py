"""Brings the log files of one node in one session to the archive: new bytes as tails, whole files when they end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from os.path import basename
from pathlib import Path

from ray_history.archive.errors import ArchiveError
from ray_history.collector.destination import Destination

from .bundles import Bundles
from .full_uploads import Outcome, Wholes
from .objects import Interrupted, Objects
from .recovery import Recovery
from .scanner import Descriptors, Identity, Vanished, read_at
from .state import Counters, Followed, Mark, Positions, Stream
from .tracker import Follower, ScanResult, Strangers

BUNDLE_BYTES = 8 * 1024 * 1024
"""Log bytes in one bundle: all that is held in memory of them."""

OPEN_FILES = 64
"""Growing files kept open, so that one deleted between two scans is still read to its end."""

COUNT_BYTES = 4 * 1024 * 1024
"""Read at most this much per scan to count lines: 2 ms."""

FOREVER = float("inf")

_LARGE = 8 * 1024 * 1024
_ROUNDS = 3  # of a final finish, while somebody still writes


@dataclass(frozen=True, slots=True)
class Finish:
    """What a finish brought to an end."""

    complete: bool
    """Every file that can be read stands whole in the archive and no bundle is left."""
    files_left: int
    bytes_left: int
    """That are not in the archive at all, neither whole nor in tails."""
    bundles_left: int
    failures: tuple[str, ...]


class LogShipper:
    """The log files of one node in one session. For one thread.

    Calls raise ArchiveError when the store fails; nothing is lost by it, the next call goes on.
    """

    def __init__(
        self,
        destination: Destination,
        session: str,
        node: str,
        logs: Path,
        state_file: Path,
        *,
        ours_of: Strangers = lambda strangers: strangers,
        bundle_bytes: int = BUNDLE_BYTES,
        open_files: int = OPEN_FILES,
        count_bytes: int = COUNT_BYTES,
    ) -> None:
        """`logs` is the directory to follow; `state_file` must survive a restart for work not to be done again."""
        self._bundle_bytes = bundle_bytes
        self._positions = Positions(state_file, session, node)
        self._descriptors = Descriptors(logs, open_files)
        self._bundles = Bundles(destination, session, node, self._positions)
        self._objects = Objects(destination, session, node, self._positions)
        self._following = Follower(logs, self._positions, self._objects, self._descriptors, count_bytes, ours_of)
        self._wholes = Wholes(self._positions, self._bundles, self._objects, self._descriptors, self._following)
        self._recovered = False

    @property
    def node(self) -> str:
        return self._positions.node

    @property
    def identities(self) -> AbstractSet[Identity]:
        """The files that are this node's."""
        return self._positions.identities

    @property
    def counters(self) -> Counters:
        return self._positions.counters

    @property
    def problems(self) -> Sequence[str]:
        """What could not be read, in words for people, each once."""
        return self._following.problems

    @property
    def resumes_without(self) -> str:
        """Why nothing of an earlier run was remembered; empty when something was."""
        return self._positions.lost

    def close(self) -> None:
        """Close all files; positions are saved already."""
        self._descriptors.close_all()

    def take_no_more(self) -> None:
        """Go on with the files that are known; new ones are another node's."""
        self._following.ours_of = lambda _: frozenset()

    def scan(self) -> ScanResult:
        """Look what happened to the files; nothing is asked of the store."""
        return self._following.scan()

    def ship_tails(self, deadline: float = FOREVER) -> None:
        """Put all bytes that were seen and are not in the archive, until the deadline (monotonic)."""
        self._recover()
        self._wholes.deadline = deadline
        try:
            self._bundles.look_over()
            waiting = sorted(self._following.unsent, key=lambda file: file.size - file.stored)
            writers = {s.path: f for f in waiting for s in f.streams[-1:] if self._bundles.goes_on(s)}
            for file in waiting:
                if time.monotonic() >= deadline:
                    break
                self._ship(file, writers)
            self._bundles.put()
            self._following.unsent -= {file for file in waiting if file.size <= file.stored}
        finally:
            self._bundles.discard()
        self._positions.save()

    def ship_settled(self, deadline: float = FOREVER) -> None:
        """Store whole what will not change any more: rotated and moved files, and what is left of those that ended."""
        self._recover()
        outcomes = self._store_settled(deadline)
        failures = [failure for outcome in outcomes for failure in outcome.failures]
        self._clean_up()
        if failures:
            raise failures[0]

    def finish(self, deadline: float, *, final: bool) -> Finish:
        """Ship the last tails, store every file whole, the telling and the small ones first, delete the bundles.

        Does what can be done until the deadline (monotonic) and raises no ArchiveError: the result tells what is left,
        and a later call, or a later start, goes on there. `final`: nobody should write any more, so look again at the
        end and take what was written meanwhile.
        """
        failures: list[str] = []
        for _ in range(_ROUNDS if final else 1):
            self.scan()
            self._following.unreadable.clear()
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
            self.ship_tails(deadline)
        except ArchiveError as error:
            failures.append(str(error))
        outcomes = self._store_settled(deadline)
        files = sorted(self._positions.files.values(), key=_priority)
        outcomes.append(self._wholes.store(file for file in files if file.size and not file.is_whole))
        if time.monotonic() >= deadline:
            self._positions.save()  # what is superseded does no harm; whoever waits for our exit does
            return failures + [str(failure) for outcome in outcomes for failure in outcome.failures]
        try:
            self._clean_up()
            outcomes.append(self._wholes.store(file for file in files if not file.size and _is_wanted(file)))
            self._clean_up()
        except ArchiveError as error:
            failures.append(str(error))
        return failures + [str(failure) for outcome in outcomes for failure in outcome.failures]

    def _summary(self, failures: tuple[str, ...]) -> Finish:
        files = [*self._positions.files.values(), *self._positions.gone.values()]
        left = [f for f in files if _is_wanted(f) and f.identity not in self._following.unreadable]
        bytes_left = sum(max(0, file.size - file.stored) for file in left)
        complete = not left and not self._positions.formers and not self._bundles.count
        return Finish(
            complete and not failures,
            len(left) + len(self._positions.formers),
            bytes_left,
            self._bundles.count,
            tuple(dict.fromkeys(failures)),
        )

    def _recover(self) -> None:
        if self._recovered:
            return
        if not self._following.scanned:
            self.scan()
        recovery = Recovery(self._positions, self._bundles, self._objects, self._descriptors, self._following.renew)
        for problem in recovery.run():
            self._following.report(problem)
        self._recovered = True

    def _store_settled(self, deadline: float) -> list[Outcome]:
        self._wholes.deadline = deadline
        gone = list(self._positions.gone.values())
        settled = [file for file in self._positions.files.values() if file.is_settled]
        return [self._wholes.store([*gone, *sorted(settled, key=_priority)]), self._wholes.keep_formers()]

    def _clean_up(self) -> None:
        """Save before anything is deleted: what is deleted stands where the state file says."""
        self._objects.note_etags()
        self._positions.save()
        self._objects.delete_stale()
        self._bundles.delete_superseded()
        self._bundles.merge_small()
        self._positions.save()

    # Tails

    def _ship(self, file: Followed, writers: dict[str, Followed]) -> None:
        try:
            self._descriptors.get(file.identity, file.name)  # stays open while the file grows
            with self._descriptors.borrowed(file.identity, file.name) as descriptor:
                self._ship_open(file, descriptor, writers)
        except (Vanished, Interrupted):
            return
        except OSError as error:
            self._following.cannot_read(file, error)

    def _ship_open(self, file: Followed, descriptor: int, writers: dict[str, Followed]) -> None:
        if not file.mark.is_on(descriptor):
            self._following.renew(file, file.size)
        stream = self._stream(file, descriptor, writers)
        if stream is None:
            return
        start = stream.sent
        if file.whole is not None and file.whole.name == stream.path:
            start = max(start, file.whole.size)
        while start < file.size:
            end = min(file.size, start + self._bundle_bytes - self._bundles.raw_size)
            data = read_at(descriptor, start, end)
            if len(data) < end - start:
                return  # it became shorter since the scan; the next one takes that up
            if not stream.generation:
                stream.generation = self._bundles.next_generation()
                file.streams.append(stream)
            self._bundles.add(file, stream, start, data, Mark.at(descriptor, end, data))
            start = end
            if self._bundles.raw_size >= self._bundle_bytes:
                self._bundles.put()
                if time.monotonic() >= self._wholes.deadline:
                    return

    def _stream(self, file: Followed, descriptor: int, writers: dict[str, Followed]) -> Stream | None:
        """Under which name and generation bytes of this file are shipped; None when they are not, as tails."""
        whole = file.whole
        stream = file.streams[-1] if file.streams and self._bundles.goes_on(file.streams[-1]) else None
        if whole is not None and whole.name == file.name:
            return stream if stream is not None and stream.path == file.name else Stream(file.name, 0)
        if stream is not None and (whole is None or whole.name == stream.path):
            if stream.path == file.name:
                self._make_room(file, descriptor)
                return stream
            if not self._wholes.is_occupied(stream.path, file):  # else it would hide that file's object
                return stream
        if not file.size or file.is_settled or file.identity in self._positions.gone:
            return None  # it is stored whole soon
        former = writers.pop(file.name, None)
        if former is not None and former is not file:
            self._ship(former, writers)  # the file that had this name: its bytes go before ours
        self._make_room(file, descriptor)
        return Stream(file.name, 0)

    def _make_room(self, file: Followed, descriptor: int) -> None:
        """An object of another file under its name would be hidden, or be taken for the begin of what is shipped."""
        there = self._objects.at(file.name)
        if there is not None and there.owner is not file:
            self._bundles.put()
            self._wholes.vacate(file.name, file, descriptor)
            self._positions.save()
            self._objects.delete_stale()


def _is_wanted(file: Followed) -> bool:
    """Whether the archive should have the file whole and has not; Ray makes an empty event log per worker."""
    empty_event_log = not file.size and basename(file.name).startswith("event_CORE_WORKER_")
    return not file.is_whole and not empty_event_log


def _priority(file: Followed) -> tuple[bool, int, int, str]:
    """What people look for first, and much of it before the time is over."""
    name = basename(file.name)
    telling = name.startswith("job-driver-"), name.endswith(".err") or "error" in name
    return file.size > _LARGE, telling.index(True) if any(telling) else 2, file.size, file.name
