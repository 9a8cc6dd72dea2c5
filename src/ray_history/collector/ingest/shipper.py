"""Uploads spool segments: each sealed segment becomes one event file per session, node and job.

Invariants:
* a segment is removed only after everything in it is stored and counted;
* keys contain the creation time of the segment, so that uploading a segment again after a crash replaces the same
  objects;
* batches and events without recognisable session are stored under `history-quarantine/`, which no server reads.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ray_history.archive.event_files import encode_events
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import UNKNOWN_SESSION, LedgerBook

from .envelope import Place, SessionObserver, Unreadable, header_of, node_of, split
from .journal import Journal
from .spool import Segment, Spool

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _SortedEvents:
    """The events of one segment by place."""

    files: dict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[str, str] = field(default_factory=dict)
    types: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By session: the number of events of each type."""
    quarantine: list[bytes] = field(default_factory=list)


class EventShipper:
    """Uploads sealed segments, oldest first."""

    def __init__(
        self,
        spool: Spool,
        destination: Destination,
        ledgers: LedgerBook,
        sessions: SessionObserver,
        journal: Journal,
        *,
        compress: bool = True,
    ) -> None:
        self._spool = spool
        self._destination = destination
        self._ledgers = ledgers
        self._sessions = sessions
        self._journal = journal
        self._compress = compress

    def ship_all(self) -> int:
        """Upload every sealed segment; returns their number. An ArchiveError leaves the rest for the next call."""
        shipped = 0
        for segment in self._spool.sealed():
            if not self._is_counted(segment):
                self._ship(segment)
            self._spool.remove(segment)
            shipped += 1
        return shipped

    def _is_counted(self, segment: Segment) -> bool:
        """Whether an earlier process stored and counted the segment, but died before removing it."""
        saved = self._ledgers.saved
        return segment.sequence <= saved.shipped_sequence and segment.created_ns <= saved.shipped_created_ns

    def _ship(self, segment: Segment) -> None:
        found = self._sort(segment)
        stored_bytes: dict[str, int] = defaultdict(int)
        for place, events in found.files.items():
            self._sessions.session_seen(place.session, place.node)
            node = node_of(place, self._sessions)
            body = encode_events(events, compress=self._compress)
            key = self._destination.event_file(place.session, node, place.job, segment.created_ns)
            self._destination.store.put(key if self._compress else key.removesuffix(".gz"), body)
            stored_bytes[place.session] += len(body)
        if found.quarantine:
            key = self._destination.quarantine(f"{segment.created_ns}-{segment.sequence}.jsonl.gz")
            self._destination.store.put(key, encode_events(found.quarantine))
            logger.warning(
                "%d events or batches without recognisable session are stored in %s", len(found.quarantine), key
            )
        self._journal.discard(segment, found.files)
        self._count(segment, found, stored_bytes)

    def _sort(self, segment: Segment) -> _SortedEvents:
        found = _SortedEvents()
        for body in self._spool.read(segment):
            try:
                events = split(body)
            except Unreadable as error:
                logger.warning("cannot parse a batch of %d bytes: %s", len(body), error)
                found.quarantine.append(body)
                continue
            for event in events:
                try:
                    header = header_of(event)
                except Unreadable:
                    found.quarantine.append(event)
                    continue
                session = header.place.session
                found.files[header.place].append(event)
                found.types[session][header.type] += 1
                if header.timestamp > found.newest.get(session, ""):
                    found.newest[session] = header.timestamp
        return found

    def _count(self, segment: Segment, found: _SortedEvents, stored_bytes: dict[str, int]) -> None:
        with self._ledgers.lock:
            for place, events in found.files.items():
                counts = self._ledgers.session(place.session).events
                counts.received += len(events)
                counts.stored += len(events)
            for session, size in stored_bytes.items():
                counts = self._ledgers.session(session).events
                counts.bytes_stored += size
                counts.last_event = max(counts.last_event, found.newest[session])
                counts.add_types(found.types[session])
            if found.quarantine:
                session_name = next((place.session for place in found.files), None) or self._sessions.current_session()
                counts = self._ledgers.session(session_name or UNKNOWN_SESSION).events
                counts.received += len(found.quarantine)
                counts.quarantined += len(found.quarantine)
            self._ledgers.saved.shipped_sequence = segment.sequence
            self._ledgers.saved.shipped_created_ns = segment.created_ns
            self._ledgers.save()
