"""From the spool to the archive: each sealed segment becomes one event file per session, node and job.

Invariants:
* a segment is removed only after everything in it is stored and counted;
* keys are made of the segment's own creation time, so that shipping a segment again after a crash writes the same
  objects again and no others;
* what cannot be filed is kept: whole batches and single events whose session cannot be told go to
  `history-quarantine/`, which no server reads as events.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

from ray_history.archive.event_files import encode_events
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import UNKNOWN_SESSION, LedgerBook

from .envelope import Place, Unreadable, place_of, split
from .spool import Segment, Spool

logger = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What the shipper asks the collector around it."""

    def own_node(self, session: str) -> str | None:
        """This node's id in the session, for events that do not say theirs."""

    def saw(self, session: str, node: str) -> None:
        """A session was seen in events, from this node: time to mark it."""

    def current_session(self) -> str | None:
        """The session that runs now, to account for what cannot be filed."""


@dataclass(slots=True)
class _Sorted:
    """The events of one segment, by where they belong."""

    files: dict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[str, str] = field(default_factory=dict)
    quarantine: list[bytes] = field(default_factory=list)


class EventShipper:
    """Brings sealed segments to the archive, oldest first."""

    def __init__(
        self,
        spool: Spool,
        destination: Destination,
        ledgers: LedgerBook,
        surroundings: Surroundings,
        *,
        compress: bool = True,
    ) -> None:
        self._spool = spool
        self._destination = destination
        self._ledgers = ledgers
        self._surroundings = surroundings
        self._compress = compress

    def ship_all(self) -> int:
        """Ship every sealed segment; returns how many. An ArchiveError leaves the rest for the next call."""
        shipped = 0
        for segment in self._spool.sealed():
            if not self._is_counted(segment):
                self._ship(segment)
            self._spool.remove(segment)
            shipped += 1
        return shipped

    def _is_counted(self, segment: Segment) -> bool:
        """It was stored and counted, and the process died before it removed it."""
        saved = self._ledgers.saved
        return segment.sequence <= saved.shipped_sequence and segment.created_ns <= saved.shipped_created_ns

    def _ship(self, segment: Segment) -> None:
        found = self._sort(segment)
        stored_bytes: dict[str, int] = defaultdict(int)
        for place, events in found.files.items():
            self._surroundings.saw(place.session, place.node)
            node = place.node or self._surroundings.own_node(place.session) or "unknown"
            body = encode_events(events, compress=self._compress)
            key = self._destination.event_file(place.session, node, place.job, segment.created_ns)
            self._destination.store.put(key if self._compress else key.removesuffix(".gz"), body)
            stored_bytes[place.session] += len(body)
        if found.quarantine:
            key = self._destination.quarantine(f"{segment.created_ns}-{segment.sequence}.jsonl.gz")
            self._destination.store.put(key, encode_events(found.quarantine))
            logger.warning("%d events or batches could not be filed; they are kept in %s", len(found.quarantine), key)
        self._count(segment, found, stored_bytes)

    def _sort(self, segment: Segment) -> _Sorted:
        found = _Sorted()
        for body in self._spool.read(segment):
            try:
                events = split(body)
            except Unreadable as error:
                logger.warning("a batch of %d bytes was not understood: %s", len(body), error)
                found.quarantine.append(body)
                continue
            for event in events:
                try:
                    place, timestamp = place_of(event)
                except Unreadable:
                    found.quarantine.append(event)
                    continue
                found.files[place].append(event)
                if timestamp > found.newest.get(place.session, ""):
                    found.newest[place.session] = timestamp
        return found

    def _count(self, segment: Segment, found: _Sorted, stored_bytes: dict[str, int]) -> None:
        with self._ledgers.lock:
            for place, events in found.files.items():
                account = self._ledgers.session(place.session).events
                account.received += len(events)
                account.stored += len(events)
            for session, size in stored_bytes.items():
                account = self._ledgers.session(session).events
                account.bytes_stored += size
                account.last_event = max(account.last_event, found.newest[session])
            if found.quarantine:
                known = next((place.session for place in found.files), None) or self._surroundings.current_session()
                account = self._ledgers.session(known or UNKNOWN_SESSION).events
                account.received += len(found.quarantine)
                account.quarantined += len(found.quarantine)
            self._ledgers.saved.shipped_sequence = segment.sequence
            self._ledgers.saved.shipped_created_ns = segment.created_ns
            self._ledgers.save()
