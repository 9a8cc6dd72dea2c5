"""Uploads spool segments: each sealed segment becomes one event file per session, node and job.

Invariants:
* a segment is removed only after everything in it is stored and counted;
* keys contain the creation time of the segment, so that uploading a segment again after a crash replaces the same
  objects;
* batches and events without recognisable session are stored under `history-quarantine/`, which no server reads; so are
  those of more foreign sessions than there may be (`foreign_sessions`);
* events of sessions of this machine are stored first, a few segments ahead. Segments are counted and removed in their
  order all the same, since one number says up to which they are counted;
* a segment becomes a bounded number of files, whatever its events name: those that would be too many share one.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ray_history.archive.event_files import encode_events
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import UNKNOWN_SESSION, LedgerBook

from .envelope import Header, Place, SessionObserver, Unreadable, header_of, node_of, split
from .journal import Journal
from .spool import Segment, Spool

logger = logging.getLogger(__name__)


_AHEAD = 8
"""Segments whose local events are stored before the other events of the first."""
_MOST_FILES = 100
"""Nodes and jobs of one segment that get event files of their own."""


@dataclass(slots=True)
class _SortedEvents:
    """The events of one segment by place."""

    local: dict[Place, list[bytes]] = field(default_factory=dict)
    """Of sessions with a directory on this machine."""
    foreign: dict[Place, list[bytes]] = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict)
    types: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By session: the number of events of each type."""
    quarantine: list[bytes] = field(default_factory=list)

    @property
    def files(self) -> dict[Place, list[bytes]]:
        return {**self.local, **self.foreign}

    def add(self, header: Header, event: bytes, is_local: bool | None) -> None:
        """Add an event; `is_local` is None if it must be quarantined."""
        if is_local is None:
            self.quarantine.append(event)
            return
        place, session = header.place, header.place.session
        files = self.local if is_local else self.foreign
        if (events := files.get(place)) is None:
            events = files.setdefault(place if len(files) < _MOST_FILES else Place(session, "", None), [])
        events.append(event)
        self.types[session][header.type] += 1
        if header.timestamp > self.newest.get(session, ""):
            self.newest[session] = header.timestamp


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
        self._stored: set[int] = set()
        """The segments whose local events are stored, by number."""
        self._stored_bytes: dict[int, dict[Place, int]] = defaultdict(dict)

    def ship_all(self, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Upload every sealed segment; returns their number. An ArchiveError leaves the rest for the next call."""
        shipped = 0
        while not is_stopping() and (waiting := self._spool.sealed()):
            shipped += self._ship_next(waiting)
        return shipped

    def _ship_next(self, waiting: Sequence[Segment]) -> bool:
        """Store the local events of one segment, or the rest of the first; True if that is done with."""
        first = waiting[0]
        if self._is_counted(first):
            self._remove(first)
            return True
        ahead = next((each for each in waiting[:_AHEAD] if each.sequence not in self._stored), None)
        found = self._sort(ahead or first)
        if ahead is not None:
            self._put_files(ahead, found.local)
            self._stored.add(ahead.sequence)
        if ahead not in (None, first):
            return False
        others_wait = any(each.sequence not in self._stored for each in waiting[:_AHEAD])
        if others_wait and (found.foreign or found.quarantine):
            return False
        self._complete(first, found)
        return True

    def _complete(self, segment: Segment, found: _SortedEvents) -> None:
        """Store the rest, count, and remove the segment."""
        self._put_files(segment, found.local)  # a session may have become local
        self._put_files(segment, found.foreign)
        if found.quarantine:
            key = self._destination.quarantine(f"{segment.created_ns}-{segment.sequence}.jsonl.gz")
            self._destination.store.put(key, encode_events(found.quarantine))
            logger.warning(
                "%d events or batches without recognisable session are stored in %s", len(found.quarantine), key
            )
        self._journal.discard(segment, found.files)
        self._count(segment, found)
        self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        self._spool.remove(segment)
        self._stored.discard(segment.sequence)
        self._stored_bytes.pop(segment.sequence, None)

    def _is_counted(self, segment: Segment) -> bool:
        """Whether an earlier process stored and counted the segment, but died before removing it."""
        saved = self._ledgers.saved
        return segment.sequence <= saved.shipped_sequence and segment.created_ns <= saved.shipped_created_ns

    def _put_files(self, segment: Segment, files: Mapping[Place, list[bytes]]) -> None:
        """Store what is not stored yet of these."""
        stored = self._stored_bytes[segment.sequence]
        by_node: dict[Place, list[bytes]] = defaultdict(list)
        for place, events in files.items():
            self._sessions.session_seen(place.session, place.node)
            by_node[replace(place, node=node_of(place, self._sessions))] += events
        for place in by_node.keys() - stored.keys():
            body = encode_events(by_node[place], compress=self._compress)
            key = self._destination.event_file(place.session, place.node, place.job, segment.created_ns)
            self._destination.store.put(key if self._compress else key.removesuffix(".gz"), body)
            stored[place] = len(body)

    def _is_local(self, session: str) -> bool | None:
        """None if events of the session must be quarantined."""
        return self._sessions.is_local(session) if self._sessions.admits(session) else None

    def _sort(self, segment: Segment) -> _SortedEvents:
        found = _SortedEvents()
        is_local = cache(self._is_local)  # for one segment, because it looks at the disk
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
                found.add(header, event, is_local(header.place.session))
        return found

    def _count(self, segment: Segment, found: _SortedEvents) -> None:
        with self._ledgers.lock:
            for place, events in found.files.items():
                counts = self._ledgers.session(place.session).events
                counts.received += len(events)
                counts.stored += len(events)
            for place, size in self._stored_bytes[segment.sequence].items():
                self._ledgers.session(place.session).events.bytes_stored += size
            for session, types in found.types.items():
                counts = self._ledgers.session(session).events
                counts.last_event = max(counts.last_event, found.newest.get(session, ""))
                counts.add_types(types)
            if found.quarantine:
                named = next((place.session for place in found.files), UNKNOWN_SESSION)
                counts = self._ledgers.session(self._sessions.current_session() or named).events
                counts.received += len(found.quarantine)
                counts.quarantined += len(found.quarantine)
            self._ledgers.saved.shipped_sequence = segment.sequence
            self._ledgers.saved.shipped_created_ns = segment.created_ns
            self._ledgers.save()
