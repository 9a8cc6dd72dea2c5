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
from pathlib import Path

from ray_history.archive.errors import ArchiveError
from ray_history.archive.ledger import MAX_DIRECTORIES
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.node.identity import RayNode, RaySession
from ray_history.collector.settings import CollectorSettings

from .scanner import Identity
from .shipper import LogShipper

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
        self._finishing: threading.Thread | None = None
        self._finished: set[str] = {path.stem for path in self._state.glob("*.finished")}

    def tick(self) -> None:
        """Scan, upload if it is time, switch to Ray's next session. Called every second."""
        session = self._node.current()
        if session is not None:
            self._follow(session)
        self._ship()
        self._finish_ended()

    def ship_now(self) -> None:
        """Upload what was written so far, without waiting for the interval."""
        self._due = 0.0
        session = self._node.current()
        if session is not None:
            self._follow(session)
        self._ship()

    def finish(self, deadline: float) -> bool:
        """At exit: finish the current session within the deadline; True if nothing is left."""
        session = self._node.current()
        if session is not None:
            self._follow(session)
        complete = True
        for shipper in reversed(self._current):
            outcome = shipper.finish(deadline, final=True)
            self._count(self._current_name, shipper, left=outcome.files_left)
            complete &= outcome.complete
        return complete

    def _follow(self, session: RaySession) -> None:
        node = self._node.node_id(session)
        if node is None or not session.logs.is_dir():
            return  # Ray is still starting
        if session.name != self._current_name:
            for shipper in self._current:
                shipper.close()  # the session is over; it is finished in the background
            self._current, self._current_name = self._shippers(session, node), session.name
        elif node not in {shipper.node for shipper in self._current}:
            self._current.append(self._shipper(session, node, self._current))
        else:
            return
        self._ledgers.node(session.name, node)
        self._due = 0.0
        logger.info("uploading the logs of %s as node %s", session.name, node)

    def _ship(self) -> None:
        lines = sum(shipper.scan().pending_lines for shipper in self._current)
        batch = self._settings.log_batching
        if time.monotonic() >= self._due or (batch and lines >= batch):
            self._due = time.monotonic() + self._settings.push_interval
            for shipper in self._current:
                shipper.ship_tails()
                shipper.ship_renamed()
                self._count(self._current_name, shipper)

    def _finish_ended(self) -> None:
        if self._settings.session_dir is not None or (self._finishing is not None and self._finishing.is_alive()):
            return
        ended = next(self._ended(), None)
        if ended is not None:
            self._finishing = threading.Thread(target=self._finish_one, args=ended, name="finish session", daemon=True)
            self._finishing.start()

    def _ended(self) -> Iterator[tuple[RaySession, str]]:
        current = self._node.current()
        for session in self._node.ended_sessions():
            # If nothing shows the node id in an ended session, the current one is used.
            node = self._node.node_id(session) or (self._node.node_id(current) if current else None)
            if session.name not in self._finished and node is not None and session.logs.is_dir() and _is_quiet(session):
                yield session, node

    def _finish_one(self, session: RaySession, node: str) -> None:
        shippers = self._shippers(session, node)
        failures: list[str] = []
        complete = True
        try:
            self._destination.store.put(self._destination.marker(session.name), b"")
            for shipper in shippers:
                outcome = shipper.finish(time.monotonic() + _FINISH_TIMEOUT, final=True)
                self._count(session.name, shipper, left=outcome.files_left)
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
            logger.info("the logs of %s are stored", session.name)
        else:
            for failure in failures[:3]:
                logger.error("cannot store the logs of %s, will retry: %s", session.name, failure)
            time.sleep(_PAUSE)

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
        state = self._state / f"{session.name}.{node}.json"
        return LogShipper(self._destination, session.name, node, session.logs, state, own_files=own_files)

    def _count(self, session: str, shipper: LogShipper, *, left: int = 0) -> None:
        with self._ledgers.lock:
            ledger = self._ledgers.node(session, shipper.node)
            if shipper.export_given_up and ledger.export_given_up is None:
                ledger.export_given_up = time.time()
                logger.warning(
                    "Ray's GCS gave up exporting events of %s, because the head was slow to start: events about "
                    "actors, nodes, jobs and workers will be missing; only what is polled is recorded of them",
                    session,
                )
            logs, counted = ledger.logs, shipper.counters
            logs.files = counted.files_seen
            logs.bytes_seen = counted.bytes_written
            logs.bytes_stored = counted.bytes_stored
            logs.bytes_uploaded = counted.bytes_uploaded
            logs.bytes_lost = counted.bytes_lost
            logs.left = left
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
