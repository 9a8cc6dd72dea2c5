"""The state of a session: live, ended, lost or unknown. Every list, page, bar and answer uses this one rule.

1. A session that a running cluster reports as its own is live.
2. A session is ended once the collector of its head shut down in order; without a head's ledger, once all collectors
   did. Collectors of workers may still report, or may have been killed.
3. Otherwise a session with ledgers is live until its heartbeat is overdue, and lost from then on.
4. Without ledgers (KubeRay's collector writes none) a session is live while objects are stored, and ended after a pause
   that is longer than any between uploads.
5. Without ledgers and objects the state is unknown.

A time that is more than a day ahead of this server's clock is that of a wrong clock: it is no sign of life.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ray_history.archive.ledger import Ledger
from ray_history.archive.session_files import SessionFiles

State: TypeAlias = Literal["live", "ended", "lost", "unknown"]

OVERDUE_AFTER = 120.0
"""Seconds between the time at which a heartbeat is due and the time at which its session counts as lost."""

MAX_AHEAD = 86400.0
"""Seconds by which a time may be in the future: the next heartbeat is due within minutes."""


@dataclass(frozen=True, slots=True)
class LifeSigns:
    """The facts from which the state of a session follows."""

    is_running: bool = False
    """The head of a running cluster reports this session as its own."""
    is_shut_down: bool = False
    """The collector of the head shut down in order."""
    alive_until: float = 0.0
    """When the next heartbeat is due, Unix seconds; 0 without ledgers."""
    newest_object: float = 0.0
    """When the newest object was stored, Unix seconds; 0 without any."""
    longest_silence: float = 0.0
    """Seconds that may pass between two uploads of a collector without ledgers."""

    @classmethod
    def from_archive(cls, ledgers: Collection[Ledger], files: SessionFiles, *, is_running: bool = False) -> LifeSigns:
        return cls(is_running, is_shut_down(ledgers), next_heartbeat(ledgers), files.newest, files.longest_silence)

    def state(self, now: float) -> State:
        if self.is_running:
            return "live"
        if self.is_shut_down:
            return "ended"
        if 0 < self.alive_until <= now + MAX_AHEAD:
            return "live" if now <= self.alive_until + OVERDUE_AFTER else "lost"
        if 0 < self.newest_object <= now + MAX_AHEAD:
            return "live" if now <= self.newest_object + self.longest_silence else "ended"
        return "unknown"

    def end_ns(self, now: float, *, started: float, last_event_ns: int | None) -> int | None:
        """When the session ended, in nanoseconds; None while it is live."""
        return None if self.state(now) == "live" else self.last_ns(started=started, last_event_ns=last_event_ns)

    def last_ns(self, *, started: float, last_event_ns: int | None) -> int:
        """When the session was last seen, in nanoseconds: at its last event.

        Without events it is the last heartbeat or upload, but never before the start that the session's name gives:
        modification times may come from a copy with a wrong clock.
        """
        return last_event_ns or round(max(self.alive_until or self.newest_object, started) * 1e9)


def start_ns(started: float, first_event_ns: int | None) -> int:
    """When a session started, in nanoseconds: at its first event, or without an index at the time in its name.

    The name has the local time of the head, which may not be UTC.
    """
    return first_event_ns or round(started * 1e9)


def is_shut_down(ledgers: Collection[Ledger]) -> bool:
    """Whether the collector of the head shut down in order: of several heads the one that started last.

    A head that restarts within its session, as with an external GCS store, leaves the ledger of its former node behind.
    """
    heads = [ledger for ledger in ledgers if ledger.role == "head"]
    newest = max((head.started for head in heads), default=0.0)
    deciding = [head for head in heads if head.started == newest] or ledgers
    return bool(deciding) and all(ledger.is_graceful for ledger in deciding)


def next_heartbeat(ledgers: Collection[Ledger]) -> float:
    """When the next heartbeat of any collector is due, Unix seconds; 0 without ledgers."""
    return max((ledger.alive_until for ledger in ledgers), default=0.0)


def node_is_over(ledger: Ledger, now: float) -> bool:
    """Whether nothing more comes from one node: its collector ended, or its heartbeat is overdue.

    A worker's collector may upload its last log lines after the session ended with the head.
    """
    return ledger.ended is not None or now > ledger.alive_until + OVERDUE_AFTER
