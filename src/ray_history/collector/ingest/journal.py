"""Journals: copies in the bucket of events that are still in the spool, for the case that the spool is lost.

A spool survives its process, but not its pod. So while acknowledged events wait in it, they are written to
`history-journal/<cluster path>/<session>/<node>/<creation time of the segment>`, where only our server looks for them.

Invariants:
* a journal has the events of one session from one spool segment, up to the last write, which replaces it as a whole;
* it is deleted after the events are stored as event files, and before they are counted and their segment is removed. So
  an event is in one or the other at any moment, and after a crash in between in both: tables made from both are the
  same, because rows are merged by attempt and rare events are stored without duplicates (`history/build/`);
* that of a damaged segment stays as it is: it may have the only copy of some events;
* only the process that stored a segment, or its successor on the same spool, deletes the segment's journals. What the
  collector of a lost pod left stays for ever, whoever uses its node id later;
* there is one thread and one PUT at a time, and nothing waits for it: a slow store delays journals, not uploads.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.collector.destination import Destination

from .envelope import Place, SessionObserver, Unreadable, header_of, node_of, split
from .spool import Segment, Spool

_BACKLOG = 3
"""Segments from which on the store is slower than Ray: journals would only delay the uploads further."""


@dataclass(slots=True)
class _Copy:
    """What was written of a segment."""

    end: int = 0
    """Bytes of the segment that are copied."""
    keys: dict[str, str] = field(default_factory=dict)
    """By session: the key of its journal."""
    parts: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """By session: compressed events, which together are its journal."""
    changed: set[str] = field(default_factory=set)
    """Sessions whose journal lacks the last parts."""


class Journal:
    """Copies waiting events to the bucket, at most `interval` seconds after they were acknowledged."""

    def __init__(self, spool: Spool, destination: Destination, sessions: SessionObserver, interval: float) -> None:
        self._spool = spool
        self._destination = destination
        self._interval = interval
        self._sessions = sessions
        self._inherited = {segment.sequence for segment in spool.waiting()}
        """Segments of an earlier process, which may have written journals for them."""
        self._copies: dict[int, _Copy] = {}
        self._stored = -1
        """The number of the newest segment whose events are in event files."""
        self._lock = threading.Lock()  # for the three above; never held during I/O
        self._changed = threading.Condition()
        self._since: float | None = None
        """When the oldest event that is not copied was acknowledged; monotonic."""
        self._stopped = False

    @property
    def is_on(self) -> bool:
        return self._interval > 0

    def event_acknowledged(self) -> None:
        with self._changed:
            if self._since is None:
                self._since = time.monotonic()
                self._changed.notify()

    def wait_until_due(self) -> bool:
        """Wait until events have waited for the interval; False when the journal is stopped."""
        with self._changed:
            while not self._stopped:
                left = None if self._since is None else self._since + self._interval - time.monotonic()
                if left is not None and left <= 0:
                    return True
                self._changed.wait(left)
        return False

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def write(self) -> None:
        """Copy what is not copied yet. After an ArchiveError, the next call does it again."""
        with self._changed:
            self._since = None
        try:
            waiting = self._spool.waiting()
            for segment in waiting if len(waiting) <= _BACKLOG else ():
                self._write(segment)
        except BaseException:
            self.event_acknowledged()
            raise

    def discard(self, segment: Segment, places: Collection[Place]) -> None:
        """Delete the journals of a segment whose events are in event files."""
        with self._lock:
            self._stored = max(self._stored, segment.sequence)
            written = self._copies.pop(segment.sequence, None)
        if self._spool.is_damaged(segment):
            return
        for key in written.keys.values() if written else ():
            self._destination.store.delete(key)
        if segment.sequence in self._inherited:
            self._discard_inherited(segment, {place.session for place in places})

    def _discard_inherited(self, segment: Segment, sessions: Collection[str]) -> None:
        for session in sessions:
            prefix = self._destination.journals(session)
            for found in list(self._destination.store.list(prefix)):
                key = layout.parse_journal_key(found.key.removeprefix(prefix + "/"))
                if key is not None and key.created_ns == segment.created_ns:
                    self._destination.store.delete(found.key)

    def _write(self, segment: Segment) -> None:
        if self._spool.is_damaged(segment):  # what an earlier process wrote may have more
            return
        with self._lock:
            if segment.sequence <= self._stored:
                return
            copy = self._copies.setdefault(segment.sequence, _Copy())
        for place, events in self._new_events(segment, copy.end).items():
            if place.session not in copy.keys:
                self._sessions.session_seen(place.session, place.node)
                node = node_of(place, self._sessions)
                with self._lock:
                    copy.keys[place.session] = self._destination.journal(place.session, node, segment.created_ns)
            copy.parts[place.session].append(encode_events(events))
            copy.changed.add(place.session)
        copy.end = segment.end
        for session in sorted(copy.changed, key=lambda each: (not self._sessions.is_local(each), each)):
            self._put(segment, copy.keys[session], b"".join(copy.parts[session]))
            copy.changed.discard(session)

    def _new_events(self, segment: Segment, start: int) -> dict[Place, list[bytes]]:
        """The events from the offset on; without those that will be quarantined."""
        found: dict[Place, list[bytes]] = defaultdict(list)
        for body in self._spool.peek(segment, start):
            with suppress(Unreadable):
                for event in split(body):
                    with suppress(Unreadable):
                        found[header_of(event).place].append(event)
        admitted = [place for place in found if self._sessions.admits(place.session)]
        return {place: found[place] for place in admitted}

    def _put(self, segment: Segment, key: str, body: bytes) -> None:
        self._destination.store.put(key, body)
        with self._lock:
            too_late = segment.sequence <= self._stored
        if too_late:  # it was stored as event files meanwhile, and nobody else would delete this
            self._destination.store.delete(key)
