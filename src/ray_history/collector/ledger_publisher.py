"""Uploads the ledgers: while they change, as a heartbeat while they do not, and at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ray_history import __version__
from ray_history.archive import ledger as ledger_object
from ray_history.archive.ledger import MAX_UNSENT, Ledger

from .destination import Destination
from .ingest.http import IngestApp
from .ingest.spool import Segment
from .ledger import UNKNOWN_SESSION, LedgerBook
from .node.identity import RayNode
from .polling import agent_metrics

LEDGER_INTERVAL = 30.0
"""Seconds between uploads while something changes."""
HEARTBEAT = 300.0
"""Seconds between uploads while nothing changes."""


class LedgerPublisher:
    """Uploads each session's ledger when it is due."""

    def __init__(
        self, destination: Destination, node: RayNode, book: LedgerBook, ingest: IngestApp, *, role: str
    ) -> None:
        self._destination = destination
        self._node = node
        self._book = book
        self._ingest = ingest
        self._role = role
        self._due = 0.0
        self._published: dict[str, tuple[float, bytes]] = {}
        """By key: time and content of the last upload."""
        self._counted_duplicates = 0
        self._counted_refused = 0

    def publish(self) -> None:
        """Upload changed ledgers and due heartbeats; does nothing until `LEDGER_INTERVAL` has passed."""
        if time.monotonic() < self._due:
            return
        self._count_ingest()
        self.read_agent_metrics()
        current = self._node.current()
        for name, ledger in self._publishable():
            live = current is not None and current.name == name
            self._upload(name, ledger, live=live)
            self._due = time.monotonic() + LEDGER_INTERVAL
        self._book.forget({current.name} if current else set())

    def publish_last(self, *, all_stored: bool, unsent: Sequence[Segment], end: str = "graceful") -> None:
        """Upload the final ledgers of this process, with the spool segments that could not be uploaded.

        `end` is how the session ended, if everything is stored.
        """
        self._count_ingest()
        current = self._node.current()
        for name, ledger in self._publishable():
            if current is not None and current.name == name:
                ledger.ended = end if all_stored else None
                _name_unsent(ledger, unsent)
            self._upload(name, ledger, live=False)

    def read_agent_metrics(self) -> None:
        """Take over how many events Ray's agent dropped.

        Each request leaves a line in the agent's log, so that the final upload, after the logs, does not send one.
        """
        session = self._node.current()
        node = self._node.node_id(session) if session else None
        port = self._node.metrics_port(session, node) if session and node else None
        found = agent_metrics.scrape(port, timeout=2.0) if port else None
        if session is not None and found is not None and found.lost is not None:
            self._book.session(session.name).events.dropped_by_ray = found.lost

    def _publishable(self) -> list[tuple[str, Ledger]]:
        with self._book.lock:
            return [(name, each) for name, each in self._book.saved.all() if name != UNKNOWN_SESSION and each.node]

    def _upload(self, name: str, ledger: Ledger, *, live: bool) -> None:
        ledger.role = self._role
        ledger.collector = __version__
        ledger.written = ledger.alive_until = 0.0
        if live:
            ledger.ended = None
            _name_unsent(ledger, ())
        key, content = self._destination.ledger(name, ledger.node), ledger_object.encode(ledger)
        uploaded_at, uploaded = self._published.get(key, (float("-inf"), b""))
        if content == uploaded and not (live and time.monotonic() - uploaded_at >= HEARTBEAT):
            return
        ledger.written = time.time()
        ledger.alive_until = ledger.written + (HEARTBEAT + 2 * LEDGER_INTERVAL if live else 0)
        self._destination.store.put(key, ledger_object.encode(ledger))
        self._published[key] = (time.monotonic(), content)
        self._book.save()

    def _count_ingest(self) -> None:
        """Add the intake's new duplicates and refusals to the current session; the intake does not know sessions."""
        duplicates, refused = self._ingest.duplicated, sum(self._ingest.refused.values())
        session = self._node.current()
        if (duplicates, refused) == (self._counted_duplicates, self._counted_refused) or session is None:
            return
        with self._book.lock:
            events = self._book.session(session.name).events
            events.received += duplicates - self._counted_duplicates
            events.duplicated += duplicates - self._counted_duplicates
            events.refused_batches += refused - self._counted_refused
        self._counted_duplicates, self._counted_refused = duplicates, refused


def _name_unsent(ledger: Ledger, segments: Sequence[Segment]) -> None:
    events = ledger.events
    events.unsent_batches = sum(segment.records for segment in segments)
    events.unsent_bytes = sum(segment.body_bytes for segment in segments)
    events.unsent_segments = [segment.path.name for segment in segments[:MAX_UNSENT]]
