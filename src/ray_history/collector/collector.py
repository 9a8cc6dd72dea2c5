"""The running collector: threads that upload events, upload logs and poll the dashboard, and the shutdown.

It listens from the start and never stops retrying: Ray may start late, restart or fail, the store may be unreachable.
On SIGTERM it keeps listening, because Ray gets the same signal and still flushes; the rest is uploaded within the grace
period (`final_uploads`). What is left stays on the volume for the next start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ray_history import __version__
from ray_history.archive.errors import ArchiveError
from ray_history.archive.ledger import REFUSED, Command
from ray_history.archive.stores import Store
from ray_history.connections import CLOSING_REASONS

from .destination import Destination
from .final_uploads import Ending, FinalUploads
from .ingest.foreign_sessions import ForeignSessions
from .ingest.http import GroupCommit, IngestApp
from .ingest.journal import Journal
from .ingest.shipper import EventShipper
from .ingest.silence import SilenceWatch, advice
from .ingest.spool import Spool
from .ingest.status_pages import pages
from .ledger import LedgerBook
from .ledger_publisher import LedgerPublisher
from .logs import SessionLogs
from .metrics import MetricsRecorder, Schedule
from .metrics.dashboards import SessionDashboards
from .metrics.keep import chosen
from .metrics.targets import Target, targets
from .metrics.workers import WorkerTargets
from .node.identity import RayNode
from .polling import Poller
from .polling.dashboard_client import Dashboard
from .settings import CollectorSettings

logger = logging.getLogger(__name__)

_TICK = 0.25
_FEW_EVENTS = 512 * 1024
"""Bytes of waiting events, some 60 KB in a journal, from which on an event file costs less than writing it again."""
_FIRST_POLL_INTERVAL = 2.0
"""Seconds between polls of a new session, growing to the interval: many clusters live for less than that."""


class Collector:
    """Everything between a Ray node and the archive, in one process."""

    def __init__(
        self,
        settings: CollectorSettings,
        store: Store,
        dashboard: Dashboard,
        lookup_node: Callable[[], str | None],
        node: RayNode | None = None,
    ) -> None:
        """`node` finds the sessions, if they are not those of Ray's temporary directory in the settings."""
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._store = store
        self._destination = Destination(store, settings.cluster)
        self.node = node or RayNode(
            settings.ray_root,
            head=settings.head,
            node_id=settings.node_id,
            session_dir=settings.session_dir,
            lookup=lookup_node,
        )
        self._foreign = ForeignSessions(self.node.has_session, settings.ray_root)
        self._ledgers = LedgerBook(settings.data_dir / "ledger.json")
        self._spool = Spool(
            settings.data_dir / "spool", segment_bytes=settings.segment_bytes, max_bytes=settings.spool_bytes
        )
        for problem in self._spool.problems:
            logger.warning("spool: %s", problem)
        self._journal = Journal(self._spool, self._destination, self, settings.journal_interval)
        self._commit = GroupCommit(self._spool, self._journal.event_acknowledged)
        self.ingest = IngestApp(self._commit, pages(self.status), body_bytes=settings.body_bytes)
        self._events = EventShipper(
            self._spool, self._destination, self._ledgers, self, self._journal, compress=settings.compress
        )
        self._logs = SessionLogs(self._destination, self.node, self._ledgers, settings)
        self._publisher = LedgerPublisher(
            self._destination, self.node, self._ledgers, self.ingest, role="head" if settings.head else "worker"
        )
        self._silence = SilenceWatch(self.node, self.ingest, self._ledgers, settings.port)
        self._metrics = MetricsRecorder(
            self._destination,
            self._ledgers,
            settings.data_dir / "metrics",
            self._metric_targets,
            Schedule(settings.metrics_interval),
            chosen(settings.metrics_keep),
            SessionDashboards(self._destination, self.node, is_head=settings.head),
        )
        self._workers = WorkerTargets(self._destination, self.node, dashboard) if settings.head else None
        self._poller = Poller(
            self._destination, dashboard, extra_endpoints=settings.endpoints, sends_events=self.node.exports_events
        )
        self._stop = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        # Not one of `_threads`, which end on SIGTERM: Ray still sends events then.
        self._journal_writer = threading.Thread(target=self._write_journals, name="write journals", daemon=True)
        self._connecting = threading.Lock()
        self._marked: set[str] = set()
        self._store_error = "not tried yet"
        self._store_failures = 0
        self._ever_reached = False

    # SessionObserver --------------------------------------------------------------------------------------------

    def own_node(self, session: str) -> str | None:
        return self.node.node_id_of(session)

    def session_seen(self, session: str, node: str) -> None:
        """Write the marker of a new session, so that it is listed from its first second."""
        if node:
            self.node.node_seen(session, node)
        if own := self.own_node(session):
            self._ledgers.node(session, own)
        if session not in self._marked:
            self._store.put(self._destination.marker(session), b"")
            self._marked.add(session)
            logger.info("wrote the marker of session %s to %s", session, self._store.url)

    @property
    def has_marker(self) -> bool:
        """Whether the archive lists a session."""
        return bool(self._marked)

    def current_session(self) -> str | None:
        current = self.node.current()
        return current.name if current else None

    def is_local(self, session: str) -> bool:
        return self._foreign.is_local(session)

    def admits(self, session: str) -> bool:
        return self._foreign.admits(session)

    # Start and shutdown ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        loops: dict[str, Callable[[], None]] = {"events": self._upload_events}
        if self._settings.metrics_interval:
            loops["metrics"] = self._record_metrics
        if self._settings.logs:
            loops["logs"] = self._upload_logs
            if self._settings.head:
                loops["dashboard"] = self._poll_dashboard
        for name, loop in loops.items():
            self._threads[name] = threading.Thread(target=loop, name=loop.__name__.strip("_"), daemon=True)
            self._threads[name].start()
        if self._journal.is_on:
            self._journal_writer.start()

    def note_command(self, session: str, command: Command) -> None:
        """Note in the ledger which command the session belongs to, and how it ended."""
        with self._ledgers.lock:
            self._ledgers.session(session).command = command

    def events_of(self, session: str) -> int:
        """How many events of a session have arrived and are counted."""
        with self._ledgers.lock:
            return self._ledgers.session(session).events.received

    def finish_earlier_sessions(self) -> None:
        """Store the logs of sessions before the current one, whose processes are known to be dead."""
        if self._settings.logs:
            self._logs.finish_earlier()

    def finish(self, ending: Ending = Ending()) -> bool:  # noqa: B008  # frozen
        """Upload the rest within the grace period; True if nothing is left."""
        final = FinalUploads(
            self._settings.shutdown_grace,
            self.node,
            self.ingest,
            self._spool,
            self._events,
            self._journal,
            self._logs if self._settings.logs else None,
            self._metrics if self._settings.metrics_interval else None,
            self._publisher,
            self._connect,
            self._logged,
            ending,
        )
        deadline = time.monotonic() + self._settings.shutdown_grace
        self._stop.set()
        final_poll = threading.Thread(target=self._final_poll, args=(deadline,), name="final poll", daemon=True)
        final_poll.start()
        others = [final_poll, *([self._journal_writer] if self._journal.is_on else [])]
        return final.run(self._threads, others)

    def _metric_targets(self) -> list[Target]:
        others = self._workers.find() if self._workers is not None else []
        return [*targets(self.node, head=self._settings.head), *others]

    # Loops ------------------------------------------------------------------------------------------------------------

    def _upload_events(self) -> None:
        backoff, due = 1.0, 0.0
        while not self._stop.wait(_TICK):
            if self._settings.head and self._settings.events:
                self._silence.check(time.monotonic())
            if time.monotonic() < due:
                continue
            with self._logged("uploading events") as outcome:
                self._connect()
                if self._is_event_file_due():
                    self._spool.seal()
                self._events.ship_all(self._stop.is_set)
                if not self._stop.is_set():
                    self._logs.count()
                    self._publisher.publish()
            backoff = 1.0 if outcome.succeeded else min(backoff * 2, 30.0)
            due = 0.0 if outcome.succeeded else time.monotonic() + backoff

    def _is_event_file_due(self) -> bool:
        """Whether waiting events should become event files.

        Journals have them already, and each event file is read for ever, so that few events may wait for more. The
        first ones of a session do not: its ledger counts what is in event files.
        """
        age, settings = self._oldest_age(), self._settings
        with self._ledgers.lock:
            ledger = self._ledgers.saved.sessions.get(self.current_session() or "")
            is_counted = ledger is not None and ledger.events.stored > 0
        if is_counted and self._spool.pending.bytes < _FEW_EVENTS:
            return age >= settings.few_events_interval
        return age >= settings.events_interval

    def _oldest_age(self) -> float:
        """Age of the oldest batch in seconds; 0 if there is none."""
        oldest = self._spool.oldest_ns
        return 0.0 if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)

    def _write_journals(self) -> None:
        while self._journal.wait_until_due():
            with self._logged("writing the journal"):
                self._connect()
                self._journal.write()

    def _upload_logs(self) -> None:
        has_backlog = False
        while not self._stop.wait(0.0 if has_backlog else 1.0 if self._ever_reached else _TICK):
            has_backlog = False
            if not self._ever_reached:
                continue
            with self._logged("uploading logs"):
                current = self.node.current()
                if current is not None:
                    self.session_seen(current.name, "")
                has_backlog = self._logs.tick()

    def _record_metrics(self) -> None:
        backoff = 1.0
        while not self._stop.wait(backoff):
            if not self._ever_reached:
                continue
            with self._logged("recording metrics") as outcome:
                self._metrics.tick()
            backoff = 1.0 if outcome.succeeded else min(backoff * 2, 30.0)

    def _poll_dashboard(self) -> None:
        due, session, answered = 0.0, "", 0.0
        while not self._stop.wait(_TICK):
            current = self.node.current()
            if current is None or not self._ever_reached or (time.monotonic() < due and current.name == session):
                continue
            if current.name != session:
                session, answered = current.name, 0.0
            due = time.monotonic() + _FIRST_POLL_INTERVAL
            with self._logged("polling the dashboard"):
                report = self._poller.poll(session, deadline=time.monotonic() + self._settings.poll_interval)
                self._ledgers.note_polls(session, self._poller.urls, report.outcomes)
                if report.stored or report.unchanged:
                    answered = answered or time.monotonic()
                    due += min(self._settings.poll_interval, (time.monotonic() - answered) / 4)

    def _final_poll(self, deadline: float) -> None:
        current = self.node.current()
        if current is not None and self._settings.head and self._settings.logs:
            budget = min(8.0, self._settings.shutdown_grace / 3)
            with self._logged("the final poll of the dashboard"):
                report = self._poller.final_poll(current.name, deadline=min(deadline, time.monotonic() + budget))
                self._ledgers.note_polls(current.name, self._poller.urls, report.outcomes)

    def _connect(self) -> None:
        with self._connecting:
            if not self._ever_reached:
                self._store.check(create=True)
                self._ever_reached = True
                logger.info("connected to %s", self._store.url)

    @contextmanager
    def _logged(self, doing: str) -> Iterator[_Outcome]:
        """Log a failure of the store or the volume when it changes; the caller's loop tries again."""
        outcome = _Outcome()
        try:
            yield outcome
        except (ArchiveError, OSError) as error:
            self._store_failures += 1
            if str(error) != self._store_error:
                logger.error("%s failed, will retry: %s", doing, error)
            self._store_error = str(error)
            return
        except Exception:
            logger.exception("%s failed with an unexpected error", doing)
            return
        outcome.succeeded = True
        if self._ever_reached and self._store_error:
            if self._store_failures:
                logger.info("%s works again", doing)
            self._store_error = ""

    def status(self) -> dict[str, Any]:
        """The content of `/v1/status`."""
        current = self.node.current()
        self._logs.count()
        with self._ledgers.lock:
            sessions = msgspec.to_builtins(self._ledgers.saved.sessions)
            warnings = self._warnings(current.name) if current else []
        return {
            "warnings": warnings,
            "version": __version__,
            "cluster": {"namespace": self._settings.cluster.namespace, "name": self._settings.cluster.name},
            "session": current.name if current else None,
            "node": self.node.node_id(current) if current else None,
            "intake": {
                "batches": self.ingest.batches,
                "bytes": self.ingest.bytes,
                "duplicated": self.ingest.duplicated,
                "refused": dict(self.ingest.refused),
                "connections": self.ingest.connections.open_count,
                "closed": {reason: self.ingest.connections.closed[reason] for reason in CLOSING_REASONS},
            },
            "spool": {
                "bytes": self._spool.size,
                "limit": self._settings.spool_bytes,
                "full": self.ingest.full,
                "lag_seconds": self._oldest_age(),
            },
            "store": {
                "url": self._store.url,
                "ever_reached": self._ever_reached,
                "reached": not self._store_error,
                "error": self._store_error,
                "failures": self._store_failures,
            },
            "sessions": sessions,
        }

    def _warnings(self, session: str) -> list[str]:
        """What will be missing in the history of the session, although the collector works."""
        ledger = self._ledgers.saved.sessions.get(session)
        if ledger is None:
            return []
        found = []
        if ledger.silent is not None:
            found.append(f"Ray sends no events: {advice(self._settings.port)}")
        if ledger.export_given_up is not None:
            found.append("Ray's GCS exports no events, because the head was slow to start: see its log gcs_server.out")
        refused = [each for each in ledger.polled.values() if each.newest == REFUSED]
        if refused:
            found.append(refused[0].detail)
        return found


class _Outcome:
    succeeded = False
