"""The last uploads of a collector, after SIGTERM and within the grace period, the most important first.

1. the last lines of all log files, but of those with a backlog;
2. events;
3. metrics, backlogs of log files, then whole files, those of drivers and errors first;
4. the ledger, which names what could not be stored.

A busy loop comes back after the bundle, file or segment that it is uploading; a request that hangs holds up its own
loop, and nothing else. Ray gets SIGTERM at the same time: lines and events are uploaded again until it has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from .ingest.http import IngestApp
from .ingest.journal import Journal
from .ingest.shipper import EventShipper
from .ingest.spool import Spool
from .ledger_publisher import LedgerPublisher
from .logs import SessionLogs
from .metrics.recorder import MetricsRecorder
from .node.identity import RayNode

QUIET_SECONDS = 2.0
"""Seconds without a batch after which Ray has flushed; its agents send at least every second."""
_TICK = 0.25
_PAUSE = 1.0
_MARGIN = 1.5
"""Seconds for the ledger and the end of the process."""
_SHARE_FOR_RAY = 1 / 3
"""Part of the grace period in which Ray may end. If it does not, only the collector is being restarted."""
_SHARE_FOR_LINES = 1 / 4
"""Part of the grace period in which nothing but the last lines is uploaded, if they take so long."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of the end of Ray when its collector ends."""

    quiet_seconds: float = QUIET_SECONDS
    is_left_running: bool = False
    """Whether Ray runs on, without a collector; then there is nothing to wait for."""

    @property
    def word(self) -> str:
        """`ended` in the ledger, if everything is stored."""
        return "left" if self.is_left_running else "graceful"


class Outcome(Protocol):
    """How a logged attempt ended."""

    succeeded: bool


@dataclass
class FinalUploads:
    """What a collector does after SIGTERM."""

    grace: float
    node: RayNode
    ingest: IngestApp
    spool: Spool
    events: EventShipper
    journal: Journal
    logs: SessionLogs | None
    metrics: MetricsRecorder | None
    publisher: LedgerPublisher
    connect: Callable[[], None]
    logged: Callable[[str], AbstractContextManager[Outcome]]
    ending: Ending
    _first_lines: threading.Event = field(default_factory=threading.Event)
    """Set when the lines that were written before the stop are stored, or cannot be."""
    _events_tried: threading.Event = field(default_factory=threading.Event)
    """Set when the events that arrived before are stored, or cannot be."""
    _ray_ended: threading.Event = field(default_factory=threading.Event)
    _lines_ended: threading.Event = field(default_factory=threading.Event)
    _is_complete: bool = False
    """Whether logs and metrics are stored."""

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + self.grace - min(_MARGIN, self.grace / 4)

    def run(self, loops: Mapping[str, threading.Thread], others: list[threading.Thread]) -> bool:
        """Upload the rest; True if nothing is left. `others` use the dashboard and the journal."""
        self._loops = loops
        if self.logs is not None:
            self.logs.stop()
        lines = threading.Thread(target=self._store_lines, name="last lines", daemon=True)
        events = threading.Thread(target=self._store_events, name="last events", daemon=True)
        lines.start()
        events.start()
        with self.logged("reading the agent's metrics"):
            self.publisher.read_agent_metrics()
        self._wait_for_ray()
        self.journal.stop()
        for thread in others:
            thread.join(max(0.0, self._left - 3))
        self._ray_ended.set()
        lines.join(max(0.0, self._left))
        self._lines_ended.set()
        events.join(max(0.0, self._left))
        return self._publish()

    @property
    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def _wait_for_ray(self) -> None:
        """Wait for the last events and log lines of Ray, which is usually stopped at the same time."""
        if self.ending.is_left_running:
            return
        latest = self._deadline - self.grace * (1 - _SHARE_FOR_RAY)
        quiet = self.ending.quiet_seconds
        earliest = time.monotonic() + quiet
        while time.monotonic() < latest:
            if time.monotonic() > max(earliest, self.ingest.last_post + quiet) and not self.node.is_alive():
                return
            time.sleep(_TICK)

    def _has_ended(self, loop: str) -> bool:
        """Wait for a loop: two threads must not upload the same."""
        self._loops[loop].join(max(0.0, self._left))
        return not self._loops[loop].is_alive()

    def _store_lines(self) -> None:
        if self.logs is not None and not self._store_last_lines(self.logs):
            return
        self._first_lines.set()
        self._ray_ended.wait(max(0.0, self._left))
        self._events_tried.wait(max(0.0, self._left))
        is_complete = self._store_metrics()
        if self.logs is not None:
            with self.logged("uploading the logs") as outcome:
                is_complete &= self.logs.finish(self._deadline)
            is_complete &= outcome.succeeded
        self._is_complete = is_complete

    def _store_metrics(self) -> bool:
        if self.metrics is None:
            return True
        if not self._has_ended("metrics"):
            return False
        with self.logged("uploading the metrics"):
            return self.metrics.finish(self._deadline)
        return False

    def _store_last_lines(self, logs: SessionLogs) -> bool:
        """Upload new lines until Ray has ended; False if the loop of log files still does."""
        if not self._has_ended("logs"):
            return False
        while self._left > 0:
            is_last, backlog, more = self._ray_ended.is_set(), self._events_tried.is_set(), False
            with self.logged("uploading the last log lines") as outcome:
                more = logs.ship_last_lines(self._deadline, backlog=backlog)
            self._first_lines.set()
            if is_last and outcome.succeeded and (backlog or not more):
                break
            if is_last and not outcome.succeeded:
                time.sleep(_PAUSE)
            elif not more:
                self._ray_ended.wait(_PAUSE)
        return True

    def _store_events(self) -> None:
        if not self._has_ended("events"):
            self._events_tried.set()
            return
        self._first_lines.wait(
            max(0.0, min(self._left, self._began + self.grace * _SHARE_FOR_LINES - time.monotonic()))
        )
        while self._left > 0:
            is_last = self._lines_ended.is_set()
            with self.logged("uploading the last events") as outcome:
                self.connect()
                self.spool.seal()
                self.events.ship_all(lambda: self._left <= 0)
            self._events_tried.set()
            if is_last and outcome.succeeded:
                return
            if not outcome.succeeded:
                time.sleep(_PAUSE)
            elif not is_last:
                self._lines_ended.wait(_TICK)

    def _publish(self) -> bool:
        """Upload the ledger, which names what is left; True if nothing is."""
        if self.logs is not None:
            self.logs.count_unsent()
        waiting = self.spool.waiting()
        all_stored = self._is_complete and not waiting
        stored = threading.Event()

        def publish() -> None:
            with self.logged("uploading the ledger") as outcome:
                self.publisher.publish_last(all_stored=all_stored, unsent=waiting, end=self.ending.word)
            if outcome.succeeded:
                stored.set()

        thread = threading.Thread(target=publish, name="last ledger", daemon=True)
        thread.start()
        thread.join(max(0.0, self._left) + _MARGIN)
        return all_stored and stored.is_set()
