"""The ledger: one node's counters for one session, written by its collector and read by the index and the server.

Invariants:
* one collector writes `history-ledger/<cluster path>/<session>/<node>.json`, and always replaces the whole object;
* fields are only ever added, and all have defaults: old readers ignore new fields, new readers miss none;
* the object doubles as heartbeat: `alive_until` says when the next one is due at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

MAX_TYPES = 64
"""Event types that are counted; Ray 2.60 has 19."""

MAX_DIRECTORIES = 100
"""Empty directories that are named; Ray 2.60 makes four."""

T = TypeVar("T", bound=msgspec.Struct)


class EventCounts(msgspec.Struct):
    """Counters of a session's events."""

    received: int = 0
    """Accepted from Ray, duplicates included."""
    stored: int = 0
    """In the archive."""
    bytes_stored: int = 0
    duplicated: int = 0
    """Sent again by Ray and left out, as far as the collector's memory of recent batches reaches."""
    quarantined: int = 0
    """Set aside because no session could be found in them; a batch that is not JSON counts as one."""
    refused_batches: int = 0
    """Answered with 503 or 413: Ray keeps these and sends them again, so they are not lost yet."""
    dropped_by_ray: int | None = None
    """Dropped by Ray before they reached the collector, from Ray's own metrics; None if those cannot be read."""
    last_event: str = ""
    """Timestamp of the newest event."""
    types: dict[str, int] = msgspec.field(default_factory=dict)
    """Received events by type, so that a type that Ray did not export can be named; empty in older ledgers."""

    def add_types(self, numbers: Mapping[str, int]) -> None:
        """Count received events by type."""
        for event_type, number in numbers.items():
            # The types come from outside, and the ledger must stay small.
            if event_type in self.types or (len(self.types) < MAX_TYPES and len(event_type) < 100):
                self.types[event_type] = self.types.get(event_type, 0) + number


class LogCounts(msgspec.Struct):
    """Counters of a session's log files."""

    files: int = 0
    bytes_seen: int = 0
    bytes_stored: int = 0
    bytes_uploaded: int = 0
    bytes_lost: int = 0
    left: int = 0
    """Files that were not yet stored as whole objects when the collector ended."""
    problems: list[str] = msgspec.field(default_factory=list)
    empty_directories: list[str] = msgspec.field(default_factory=list)
    """Directories below the logs directory without files, which no object key names; each ends with a slash."""


ANSWERED, REFUSED, TIMED_OUT, UNREACHABLE, FAILED, NEVER_ASKED = (
    "answered",
    "refused",
    "timed out",
    "unreachable",
    "failed",
    "never asked",
)
"""Outcomes of requests to the dashboard. Refused is 401 or 403; failed is every other answer without usable content."""


class PolledEndpoint(msgspec.Struct):
    """How the dashboard answered the requests for one endpoint."""

    newest: str = NEVER_ASKED
    """The outcome of the newest request."""
    detail: str = ""
    """The error of the newest request without usable answer."""
    since: dict[str, float] = msgspec.field(default_factory=dict)
    """By outcome: when it occurred first, Unix seconds."""
    answered: float = 0.0
    """When the newest answer arrived, Unix seconds. One that is like the one before is not stored again."""

    @property
    def outcome(self) -> str:
        """`answered` if there was an answer at any time, otherwise the newest outcome."""
        # The last requests often find a dashboard that has ended already.
        return ANSWERED if ANSWERED in self.since else self.newest

    def note(self, outcome: str, detail: str, now: float) -> None:
        """Add the outcome of a request."""
        self.newest = outcome
        self.since.setdefault(outcome, now)
        if outcome == ANSWERED:
            self.answered = now
        else:
            self.detail = detail


class Ledger(msgspec.Struct):
    """One node's counters for one session. Fields are encoded in this order."""

    node: str = ""
    role: str = ""
    """`head` or `worker`."""
    hostname: str = ""
    started: float = 0.0
    """When this collector first saw the session, Unix seconds."""
    written: float = 0.0
    alive_until: float = 0.0
    """When the next ledger is due at the latest; a session whose ledgers are overdue counts as lost."""
    ended: str | None = None
    """`graceful` after a shutdown in which everything was stored."""
    collector: str = ""
    """The collector's version."""
    events: EventCounts = msgspec.field(default_factory=EventCounts)
    logs: LogCounts = msgspec.field(default_factory=LogCounts)
    polled: dict[str, PolledEndpoint] = msgspec.field(default_factory=dict)
    """By URL, with `{}` for the id of a job or node; empty if this collector does not poll, or is an older one."""
    silent: float | None = None
    """Head only: when Ray had run for a minute without sending any event, Unix seconds; None once an event arrived."""
    export_given_up: float | None = None
    """Head only: when the log of Ray's GCS was found to say that it exports no events, Unix seconds. Then events about
    actors, nodes, jobs, workers and placement groups are missing, and those about tasks are not."""

    @property
    def is_graceful(self) -> bool:
        """Whether the collector shut down with everything stored."""
        return self.ended == "graceful"


_DECODER = msgspec.json.Decoder(Ledger)


def encode(ledger: Ledger) -> bytes:
    return msgspec.json.encode(ledger)


def decode(body: bytes | str) -> Ledger | None:
    """The ledger in `body`, or None if that is not a JSON object.

    Unknown fields are ignored; a field with a value of the wrong type keeps its default.
    """
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        try:
            return _DECODER.decode(body)
        except msgspec.ValidationError:
            value = msgspec.json.decode(body)
            return _valid_fields(value, Ledger) if isinstance(value, dict) else None
    return None


def _valid_fields(value: dict[str, Any], kind: type[T]) -> T:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in value:
            continue
        item = value[field.name]
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            if isinstance(item, dict):
                fields[field.name] = _valid_fields(item, field.type)
        else:
            with suppress(msgspec.ValidationError):
                fields[field.name] = msgspec.convert(item, field.type)
    return kind(**fields)
