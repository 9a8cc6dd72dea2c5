"""The ledger: one node's counters for one session, written by its collector and read by the index and the server.

Invariants:
* one collector writes `history-ledger/<cluster path>/<session>/<node>.json`, and always replaces the whole object;
* fields are only ever added, and all have defaults: old readers ignore new fields, new readers miss none;
* the object doubles as heartbeat: `alive_until` says when the next one is due at the latest;
* nothing in it is trusted: what is outside of its range counts as absent, and the reader says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ray_history.bounds import Count, Key, MomentOrZero, Name, Text, check, reason, valid_fields
from ray_history.decoding import DECODING_ERRORS

MAX_SIZE = 1 << 20
"""Bytes of the largest ledger that is read; those of real collectors have some 10 KB."""

MAX_TYPES = 64
"""Event types that are counted; Ray 2.60 has 19."""

MAX_DIRECTORIES = 100
"""Empty directories that are named; Ray 2.60 makes four."""

MAX_UNSENT = 100
"""Log files, and spool segments, that are named if they were not stored before the collector ended."""

_List = Annotated[list[Text], msgspec.Meta(max_length=1000)]


class EventCounts(msgspec.Struct):
    """Counters of a session's events."""

    received: Count = 0
    """Accepted from Ray, duplicates included."""
    stored: Count = 0
    """In the archive."""
    bytes_stored: Count = 0
    duplicated: Count = 0
    """Sent again by Ray and left out, as far as the collector's memory of recent batches reaches."""
    quarantined: Count = 0
    """Set aside because no session could be found in them; a batch that is not JSON counts as one."""
    refused_batches: Count = 0
    """Answered with 503 or 413: Ray keeps these and sends them again, so they are not lost yet."""
    dropped_by_ray: Count | None = None
    """Dropped by Ray before they reached the collector, from Ray's own metrics; None if those cannot be read."""
    last_event: Name = ""
    """Timestamp of the newest event."""
    types: dict[Name, Count] = msgspec.field(default_factory=dict)
    """Received events by type, so that a type that Ray did not export can be named; empty in older ledgers."""

    unsent_batches: Count = 0
    """Batches that were in the spool when the collector ended: lost if its volume is lost, else uploaded later."""
    unsent_bytes: Count = 0
    unsent_segments: _List = msgspec.field(default_factory=list)
    """The spool segments with these batches, by file name."""

    def add_types(self, numbers: Mapping[str, int]) -> None:
        """Count received events by type."""
        for event_type, number in numbers.items():
            # The types come from outside, and the ledger must stay small.
            if event_type in self.types or (len(self.types) < MAX_TYPES and len(event_type) < 100):
                self.types[event_type] = self.types.get(event_type, 0) + number


class LogCounts(msgspec.Struct):
    """Counters of a session's log files."""

    files: Count = 0
    bytes_seen: Count = 0
    bytes_stored: Count = 0
    bytes_uploaded: Count = 0
    bytes_lost: Count = 0
    left: Count = 0
    """Files that were not yet stored as whole objects when the collector ended."""
    bytes_unsent: Count = 0
    """Bytes that were not in the archive when the collector ended, neither in whole objects nor in log tails."""
    unsent: dict[Key, Count] = msgspec.field(default_factory=dict)
    """These bytes by log file, the largest first."""
    problems: _List = msgspec.field(default_factory=list)
    empty_directories: _List = msgspec.field(default_factory=list)
    """Directories below the logs directory without files, which no object key names; each ends with a slash."""


class MetricCounts(msgspec.Struct):
    """Counters of a session's metrics."""

    scrapes: Count = 0
    failures: Count = 0
    """Scrapes of an endpoint that had answered before."""
    blocks_stored: Count = 0
    bytes_stored: Count = 0
    blocks_lost: Count = 0
    """Deleted from a full volume before the bucket took them."""
    series_left_out: Count = 0
    """The largest number of series in one scrape for which there was no room."""

    def add(self, other: MetricCounts) -> None:
        self.scrapes += other.scrapes
        self.failures += other.failures
        self.blocks_stored += other.blocks_stored
        self.bytes_stored += other.bytes_stored
        self.blocks_lost += other.blocks_lost
        self.series_left_out = max(self.series_left_out, other.series_left_out)


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

    newest: Name = NEVER_ASKED
    """The outcome of the newest request."""
    detail: Text = ""
    """The error of the newest request without usable answer."""
    since: dict[Name, MomentOrZero] = msgspec.field(default_factory=dict)
    """By outcome: when it occurred first, Unix seconds."""
    answered: MomentOrZero = 0.0
    """When the newest answer arrived, Unix seconds. One that is like the one before is not stored again."""

    @property
    def outcome(self) -> str:
        """`answered` if there was an answer at any time, otherwise the newest outcome."""
        # The last requests often find a dashboard that has ended already.
        return ANSWERED if ANSWERED in self.since else self.newest

    def note(self, outcome: str, detail: Text, now: float) -> None:
        """Add the outcome of a request."""
        self.newest = outcome
        self.since.setdefault(outcome, now)
        if outcome == ANSWERED:
            self.answered = now
        else:
            self.detail = detail


class Command(msgspec.Struct):
    """The command that `ray-history run` ran: only it knows how a script ended, Ray calls every driver a success."""

    arguments: _List = msgspec.field(default_factory=list)
    """As given; they may contain secrets, like the entrypoint of a job."""
    directory: Text = ""
    pid: Count = 0
    started: MomentOrZero = 0.0
    ended: MomentOrZero = 0.0
    """0 while it runs, in sessions before its last one, and if the session outlives it."""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    """None if a signal ended it, or its end is not known."""
    signal: Name = ""
    """The signal that ended it, such as SIGKILL."""
    stopped_by: Name = ""
    """The signal that its user sent to it before, such as SIGINT."""


class Ledger(msgspec.Struct):
    """One node's counters for one session. Fields are encoded in this order."""

    node: Name = ""
    role: Name = ""
    """`head` or `worker`."""
    hostname: Name = ""
    started: MomentOrZero = 0.0
    """When this collector first saw the session, Unix seconds."""
    written: MomentOrZero = 0.0
    alive_until: MomentOrZero = 0.0
    """When the next ledger is due at the latest; a session whose ledgers are overdue counts as lost."""
    ended: Name | None = None
    """`graceful` after a shutdown in which everything was stored; `left` if Ray still ran then."""
    collector: Name = ""
    """The collector's version."""
    events: EventCounts = msgspec.field(default_factory=EventCounts)
    logs: LogCounts = msgspec.field(default_factory=LogCounts)
    metrics: MetricCounts = msgspec.field(default_factory=MetricCounts)
    polled: dict[Name, PolledEndpoint] = msgspec.field(default_factory=dict)
    """By URL, with `{}` for the id of a job or node; empty if this collector does not poll, or is an older one."""
    silent: MomentOrZero | None = None
    """Head only: when Ray had run for a minute without sending any event, Unix seconds; None once an event arrived."""
    export_given_up: MomentOrZero | None = None
    """Head only: when the log of Ray's GCS was found to say that it exports no events, Unix seconds. Then events about
    actors, nodes, jobs, workers and placement groups are missing, and those about tasks are not."""
    command: Command | None = None
    """Head only: the command that started this Ray or was its driver, if `ray-history run` recorded it."""
    imported: MomentOrZero = 0.0
    """When `ray-history import` made this ledger from a session directory that no collector recorded, Unix seconds."""

    @property
    def is_graceful(self) -> bool:
        """Whether the collector shut down with everything stored."""
        return self.ended == "graceful"


_decode = msgspec.json.Decoder(Ledger).decode


def encode(ledger: Ledger) -> bytes:
    return msgspec.json.encode(ledger)


def decode(body: bytes | str) -> Ledger | None:
    """The ledger in `body`, or None if that is not a JSON object."""
    return read(body)[0]


def read(body: bytes | str) -> tuple[Ledger | None, list[str]]:
    """The ledger in `body`, or None if that is not a JSON object; and what is wrong with it.

    Unknown fields are ignored; a field with an invalid value keeps its default.
    """
    try:
        try:
            return check(_decode(body)), []
        except msgspec.ValidationError:
            return valid_fields(msgspec.json.decode(body, type=dict[str, Any]), Ledger)
    except DECODING_ERRORS as error:
        return None, [reason(error)]
