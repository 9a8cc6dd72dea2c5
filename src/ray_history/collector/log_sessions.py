"""The logs of whatever session runs, and those of sessions that ended.

One `LogShipper` per session and node. The current one ships new bytes every push interval; when Ray starts a new
session, or the collector finds sessions of earlier lives, those are finished in the background, one at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ..archive.errors import ArchiveError
from .destination import Destination
from .ledger import Ledger
from .log_shipping import LogShipper
from .ray_node import RayNode, RaySession
from .settings import CollectorSettings

journal = logging.getLogger(__name__)

_UNHURRIED = 3600.0
"""Seconds for finishing a session that is over while the collector lives on; what is left is tried again."""
_PAUSE = 5.0
_QUIET = 10.0
"""Seconds without a written byte after which the processes of an ended session are taken for dead."""


class SessionLogs:
    """All log files of this node, whatever session they are of."""

    def __init__(self, destination: Destination, node: RayNode, ledger: Ledger, settings: CollectorSettings) -> None:
        self._destination = destination
        self._node = node
        self._ledger = ledger
        self._settings = settings
        self._state = settings.data_dir / "logs"
        self._state.mkdir(parents=True, exist_ok=True)
        self._current: LogShipper | None = None
        self._current_name = ""
        self._due = 0.0
        self._finishing: threading.Thread | None = None
        self._finished: set[str] = {path.stem for path in self._state.glob("*.finished")}

    def tick(self) -> None:
        """Called every second: look, ship when it is time, follow Ray to its next session."""
        session = self._node.current()
        if session is not None:
            self._follow(session)
        if self._current is not None:
            self._ship(self._current)
        self._finish_ended()

    def ship_now(self) -> None:
        """What was written up to now, without waiting for the interval."""
        self._due = 0.0
        session = self._node.current()
        if session is not None:
            self._follow(session)
        if self._current is not None:
            self._ship(self._current)

    def finish(self, deadline: float) -> bool:
        """At exit: everything that is left of the current session, within the deadline; True when nothing is left."""
        session = self._node.current()
        if session is not None:
            self._follow(session)
        if self._current is None:
            return True
        outcome = self._current.finish(deadline, final=True)
        self._account(self._current_name, self._current, left=outcome.files_left)
        return outcome.complete

    def _follow(self, session: RaySession) -> None:
        if session.name == self._current_name:
            return
        node = self._node.node_id(session)
        if node is None or not session.logs.is_dir():
            return  # Ray is still starting; its files stay where they are
        if self._current is not None:
            self._current.close()  # the session is over; it is finished in the background
        self._current, self._current_name = self._shipper(session, node), session.name
        account = self._ledger.session(session.name)
        account.node = account.node or node
        self._due = 0.0
        journal.info("following the logs of %s as node %s", session.name, node)

    def _ship(self, shipper: LogShipper) -> None:
        found = shipper.scan()
        batch = self._settings.log_batching
        if time.monotonic() >= self._due or (batch and found.pending_lines >= batch):
            self._due = time.monotonic() + self._settings.push_interval
            shipper.ship_tails()
            shipper.ship_settled()
            self._account(self._current_name, shipper)

    def _finish_ended(self) -> None:
        if self._settings.session_dir is not None or (self._finishing is not None and self._finishing.is_alive()):
            return
        ended = next(self._ended(), None)
        if ended is not None:
            self._finishing = threading.Thread(target=self._finish_one, args=ended, name="finish session", daemon=True)
            self._finishing.start()

    def _ended(self) -> Iterator[tuple[RaySession, str]]:
        current = self._node.current()
        for session in self._node.others():
            # An earlier session of a machine whose node id nothing tells is filed under the present one.
            node = self._node.node_id(session) or (self._node.node_id(current) if current else None)
            if session.name not in self._finished and node is not None and session.logs.is_dir() and _is_quiet(session):
                yield session, node

    def _finish_one(self, session: RaySession, node: str) -> None:
        shipper = self._shipper(session, node)
        try:
            self._destination.store.put(self._destination.marker(session.name), b"")
            shipper.scan()
            outcome = shipper.finish(time.monotonic() + _UNHURRIED, final=True)
        except (ArchiveError, OSError) as error:
            journal.error("storing the logs of %s failed and will be tried again: %s", session.name, error)
            time.sleep(_PAUSE)
            return
        finally:
            shipper.close()
        self._account(session.name, shipper, left=outcome.files_left)
        if outcome.complete:
            self._ledger.session(session.name).ended = "graceful"
            (self._state / f"{session.name}.finished").touch()
            self._finished.add(session.name)
            journal.info("the logs of %s are stored", session.name)
        else:
            for failure in outcome.failures[:3]:
                journal.error("storing the logs of %s failed and will be tried again: %s", session.name, failure)
            time.sleep(_PAUSE)

    def _shipper(self, session: RaySession, node: str) -> LogShipper:
        state = self._state / f"{session.name}.{node}.json"
        return LogShipper(self._destination, session.name, node, session.logs, state)

    def _account(self, session: str, shipper: LogShipper, *, left: int = 0) -> None:
        with self._ledger.lock:
            logs, counted = self._ledger.session(session).logs, shipper.counters
            logs.files = counted.files_seen
            logs.bytes_seen = counted.bytes_written
            logs.bytes_stored = counted.bytes_stored
            logs.bytes_uploaded = counted.bytes_uploaded
            logs.bytes_lost = counted.bytes_lost
            logs.left = left
            logs.problems = list(shipper.problems)[-20:]


def _is_quiet(session: RaySession) -> bool:
    newest = max((_modified(path) for path in session.logs.rglob("*")), default=0.0)
    return time.time() - newest > _QUIET


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
