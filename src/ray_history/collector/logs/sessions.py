"""The logs of the current session and of ended ones.

There is one `LogShipper` per session and node. The current one uploads new bytes every push interval. When Ray starts a
new session, or the collector finds ended ones, those are finished in the background, one at a time.

A raylet that restarts in the same session is another node, which writes into the same directory, mostly new files. A
file belongs to the node that ran when it was first seen, for ever: the shippers of former nodes continue with their
files and track no others. After a start, the state files show which those are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path

from ray_history.archive.errors import ArchiveError
from ray_history.archive.ledger import MAX_DIRECTORIES, MAX_UNSENT
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.node.identity import RayNode, RaySession
from ray_history.collector.settings import CollectorSettings

from .bundles import BUNDLE_BYTES
from .claims import Claims
from .scanner import Identity
from .shipper import FOREVER, LogShipper

logger = logging.getLogger(__name__)

_FINISH_TIMEOUT = 3600.0
"""Seconds for finishing an ended session; then it is tried again."""
_PAUSE = 5.0
_QUIET = 10.0
"""Seconds without a written byte after which the processes of an ended session count as dead."""


class SessionLogs:
    """The log files of this machine, in all sessions."""

    def __init__(
        self, destination: Destination, node: RayNode, ledgers: LedgerBook, settings: CollectorSettings
    ) -> None:
        self._destination = destination
        self._node = node
        self._ledgers = ledgers
        self._settings = settings
        self._state = settings.data_dir / "logs"
        self._state.mkdir(parents=True, exist_ok=True)
        self._current: list[LogShipper] = []
        """Shippers of the current session: those of former nodes, then that of the current node."""
        self._current_name = ""
        self._due = 0.0
        self._has_backlog = False
        self._attempted: dict[str, float] = {}
        """By ended session: when it was last tried to finish it; monotonic."""
        self._stopping = threading.Event()
        self._is_ending = False
        """Whether the current session is stored for the last time, after a stop."""
        self._claims = Claims()
        self._finishing: threading.Thread | None = None
        self._finish_turn = threading.Lock()
        self._finished: set[str] = {path.stem for path in self._state.glob("*.finished")}

    def tick(self) -> bool:
        """Scan, upload if it is time, switch to Ray's next session. Called every second, at once if True."""
        session = self._node.current()
        if session is not None:
            self._follow(session)
        self._ship()
        self._finish_ended()
        return self._has_backlog

    def stop(self) -> None:
        """Make calls that are running in other threads return after the bundle or file that they upload."""
        self._stopping.set()

    def ship_last_lines(self, deadline: float, *, backlog: bool) -> bool:
        """After a stop: upload what was written so far; True if there is more.

        Without `backlog`, files whose new bytes take more than a bundle have no turn.
        """
        self._is_ending = True
        session = self._node.current()
        if session is not None:
            self._follow(session)
        more = False
        for shipper in self._current:
            shipper.scan()
            more |= shipper.ship_round(deadline, FOREVER if backlog else BUNDLE_BYTES)
        self.count()
        return more

    def finish(self, deadline: float) -> bool:
        """After a stop: finish the current session within the deadline; True if nothing is left."""
        self._is_ending = True
        session = self._node.current()
        if session is not None:
            self._follow(session)
        complete = True
        for shipper in reversed(self._current):
            outcome = shipper.finish(deadline, final=True)
            self._count(shipper)
            self._count_left(shipper, outcome.files_left)
            complete &= outcome.complete
        return complete

    def count(self) -> None:
        """Bring the ledgers of the current session up to date. For any thread."""
        for shipper in list(self._current):
            self._count(shipper)

    def count_unsent(self) -> None:
        """Name in the ledgers what is not in the archive. For any thread."""
        for shipper in list(self._current):
            self._count(shipper)
            self._count_left(shipper)

    def finish_earlier(self) -> None:
        """Store the sessions before the current one now: their processes are known to be dead."""
        for session, node in list(self._ended(is_dead=True)):
            self._finish_one(session, node)

    def close(self) -> None:
        """Close all files, and let another collector continue."""
        for shipper in self._current:
            shipper.close()
        self._claims.release_all()

    def _follow(self, session: RaySession) -> None:
        node = self._node.node_id(session)
        if node is None or not session.logs.is_dir():
            return  # Ray is still starting
        if session.name != self._current_name:
            for shipper in self._current:
                shipper.close()  # the session is over; it is finished in the background
            self._current, self._current_name = [], ""
        if not self._claims.take(session.logs, node):
            return
        if session.name != self._current_name:
            self._current, self._current_name = self._shippers(session, node), session.name
        elif node not in {shipper.node for shipper in self._current}:
            self._current.append(self._shipper(session, node, self._current))
        else:
            return
        logs = self._ledgers.node(session.name, node).logs
        logs.left, logs.bytes_unsent, logs.unsent = 0, 0, {}
        self._due = 0.0
        logger.info("uploading the logs of %s as node %s", session.name, node)

    def _ship(self) -> None:
        lines = sum(shipper.scan().pending_lines for shipper in self._current)
        batch = self._settings.log_batching
        is_due = time.monotonic() >= self._due or bool(batch and lines >= batch)
        if is_due:
            self._due = time.monotonic() + self._settings.push_interval
        elif not self._has_backlog:
            return
        try:
            self._has_backlog = False
            for shipper in self._current:
                self._has_backlog |= shipper.ship_round()
            if is_due:
                for shipper in self._current:
                    shipper.ship_renamed()
        finally:
            self.count()

    def _finish_ended(self) -> None:
        if self._settings.session_dir is not None or (self._finishing is not None and self._finishing.is_alive()):
            return
        # One that cannot be finished must not keep the others waiting.
        ended = min(self._ended(), key=lambda each: self._attempted.get(each[0].name, 0.0), default=None)
        if ended is not None and not self._stopping.is_set():
            self._attempted[ended[0].name] = time.monotonic()
            self._finishing = threading.Thread(target=self._finish_one, args=ended, name="finish session", daemon=True)
            self._finishing.start()

    def _ended(self, *, is_dead: bool = False) -> Iterator[tuple[RaySession, str]]:
        current = self._node.current()
        for session in self._node.ended_sessions():
            # If nothing shows the node id in an ended session, the current one is used.
            node = self._node.node_id(session) or (self._node.node_id(current) if current else None)
            if session.name in self._finished or node is None or not session.logs.is_dir():
                continue
            if not is_dead and not _is_quiet(session):
                continue
            if self._claims.take(session.logs, node):
                yield session, node

    def _finish_one(self, session: RaySession, node: str) -> None:
        with self._finish_turn:
            if session.name not in self._finished:
                self._finish_now(session, node)

    def _finish_now(self, session: RaySession, node: str) -> None:
        shippers = self._shippers(session, node)
        failures: list[str] = []
        complete = True
        try:
            self._destination.store.put(self._destination.marker(session.name), b"")
            for shipper in shippers:
                outcome = shipper.finish(time.monotonic() + _FINISH_TIMEOUT, final=True)
                self._count(shipper)
                self._count_left(shipper, outcome.files_left)
                complete &= outcome.complete
                failures += outcome.failures
        except (ArchiveError, OSError) as error:
            complete, failures = False, [str(error)]
        finally:
            for shipper in shippers:
                shipper.close()
        if complete:
            for shipper in shippers:
                self._ledgers.node(session.name, shipper.node).ended = "graceful"
            (self._state / f"{session.name}.finished").touch()
            self._finished.add(session.name)
            self._claims.release(session.logs)
            logger.info("the logs of %s are stored", session.name)
        else:
            for failure in failures[:3]:
                logger.error("cannot store the logs of %s, will retry: %s", session.name, failure)
            self._stopping.wait(_PAUSE)

    def _shippers(self, session: RaySession, node: str) -> list[LogShipper]:
        """The shippers of former nodes, then that of the current node."""
        states = self._state.glob(f"{session.name}.*.json")
        nodes = {path.name.removeprefix(f"{session.name}.").removesuffix(".json") for path in states}
        shippers: list[LogShipper] = []
        for each in [*sorted(nodes - {node}), node]:
            shippers.append(self._shipper(session, each, shippers))
        return shippers

    def _shipper(self, session: RaySession, node: str, former: Sequence[LogShipper]) -> LogShipper:
        """A shipper for new files, until there is another node."""
        before = list(former)
        nodes = {node, None, *(shipper.node for shipper in before)}

        def own_files(new: AbstractSet[Identity]) -> AbstractSet[Identity]:
            if self._node.node_id(session) not in nodes or self._node.is_starting(session):
                return frozenset()  # they may belong to the next node
            return new - set().union(*(shipper.identities for shipper in before))

        for shipper in before:
            shipper.ignore_new_files()

        def is_stopping() -> bool:
            is_current = session.name == self._current_name
            if self._stopping.is_set():
                return not (self._is_ending and is_current)
            return is_current and self._is_followed_by_another(session)

        state = self._state / f"{session.name}.{node}.json"
        return LogShipper(
            self._destination,
            session.name,
            node,
            session.logs,
            state,
            own_files=own_files,
            is_stopping=is_stopping,
        )

    def _is_followed_by_another(self, session: RaySession) -> bool:
        """Whether Ray has started another session, whose logs must not wait for this one's."""
        current = self._node.current()
        return current is not None and current.name != session.name

    def _count_left(self, shipper: LogShipper, files_left: int | None = None) -> None:
        """Note what is left when uploads end: files without whole object, and bytes that are not in the archive."""
        unsent = shipper.unsent_bytes()
        with self._ledgers.lock:
            logs = self._ledgers.node(shipper.session, shipper.node).logs
            logs.left = max(logs.left if files_left is None else files_left, len(unsent))
            logs.unsent = dict(islice(unsent.items(), MAX_UNSENT))
            logs.bytes_unsent = sum(unsent.values())

    def _count(self, shipper: LogShipper) -> None:
        with self._ledgers.lock:
            ledger = self._ledgers.node(shipper.session, shipper.node)
            if shipper.export_given_up and ledger.export_given_up is None:
                ledger.export_given_up = time.time()
                logger.warning(
                    "Ray's GCS gave up exporting events of %s, because the head was slow to start: events about "
                    "actors, nodes, jobs and workers will be missing; only what is polled is recorded of them",
                    shipper.session,
                )
            logs, counted = ledger.logs, shipper.counters
            logs.files = counted.files_seen
            logs.bytes_seen = counted.bytes_written
            logs.bytes_stored = counted.bytes_stored
            logs.bytes_uploaded = counted.bytes_uploaded
            logs.bytes_lost = counted.bytes_lost
            logs.problems = list(shipper.problems)[-20:]
            logs.empty_directories = sorted(shipper.empty_directories)[:MAX_DIRECTORIES]


def _is_quiet(session: RaySession) -> bool:
    newest = max((_modified(path) for path in session.logs.rglob("*")), default=0.0)
    return time.time() - newest > _QUIET


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
