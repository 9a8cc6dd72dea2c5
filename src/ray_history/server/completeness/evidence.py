"""The facts from which the completeness of a session is judged, summed over its nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ray_history.archive.ledger import Ledger
from ray_history.history.facts import Facts
from ray_history.index.summary import Summary
from ray_history.server.sessions.ending import ending, ending_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.liveness import State
from ray_history.server.sessions.overview import SessionOverview


@dataclass(frozen=True, slots=True)
class Nodes:
    """A number of nodes, with their names if those are known."""

    count: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: Iterable[str]) -> Nodes:
        listed = tuple(names)
        return cls(len(listed), listed)

    def __str__(self) -> str:
        if not self.names:
            return f"{self.count:,} node{'s' * (self.count > 1)}"
        if self.count > 3:
            return f"{', '.join(self.names[:3])} and {self.count - 3} more nodes"
        return f"Node{'s' * (self.count > 1)} {', '.join(self.names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Sums over the nodes of a session."""

    collectors: int = 0
    """Collectors that wrote a ledger."""
    received: int = 0
    """Events, each counted once."""
    stored: int = 0
    quarantined: int = 0
    """Events whose session could not be found, so that they were set aside."""
    dropped: int = 0
    """Events that Ray dropped before it sent them."""
    export_given_up: bool = False
    """Ray's GCS stopped exporting events: only those about tasks arrived."""
    head_silent: bool = False
    """Ray had run on the head for a minute or longer without sending an event."""
    has_event_files: bool | None = None
    """Whether the archive has events of the session, in journals too; None if that is not known yet."""
    is_live: bool = False
    """Uploads continue: events that are not stored yet may still be, and no collector was cut off."""
    lost_contact: bool = False
    """Heartbeats stopped without a shutdown."""
    is_killed: bool = False
    """The processes of Ray were killed while collectors still ran."""
    cut_off: Nodes = Nodes()
    """Nodes whose collectors did not shut down in order."""
    event_bytes_unsent: int = 0
    """Of events that were still on the volume of a node when its collector ended."""
    log_bytes_unsent: int = 0
    series_left_out: int = 0
    """The largest number of series of metrics in one scrape for which there was no room."""
    metric_blocks_lost: int = 0
    """Blocks that a full volume cost."""
    without_files: Nodes = Nodes()
    log_bytes_lost: int = 0
    problem_count: int = 0
    problem: str = ""
    """The first problem found while reading."""
    invalid: str = ""
    """Why its ledgers or its summary cannot be used."""

    @property
    def events(self) -> int:
        """Events that are known of: received by collectors, or dropped by Ray before."""
        return self.received + self.dropped

    @property
    def is_counted(self) -> bool:
        """Whether there are counts to compute a share from."""
        return bool(self.collectors and self.events)

    @property
    def is_without_events(self) -> bool:
        """Whether no event of the session is known of, whatever the source."""
        if self.events or self.has_event_files or self.invalid:
            return False
        return self.has_event_files is not None or self.collectors > 0

    @property
    def missing(self) -> int:
        """Events that were received and not stored."""
        return 0 if self.is_live else max(self.received - self.stored - self.quarantined, 0)

    @classmethod
    def from_tables(cls, request: SessionRequest, *, cut_off: Nodes, without_files: Nodes) -> Evidence:
        """The evidence of an open session."""
        manifest = request.open.opened.manifest
        return replace(
            cls.from_ledgers(request.open.ledgers.values()),
            has_event_files=any(manifest.events.values()),
            is_live=request.open.ended_ns is None,
            is_killed=ending(request).word == "killed",
            cut_off=cut_off,
            without_files=without_files,
            log_bytes_lost=manifest.facts.log_bytes_lost or 0,
            problem_count=manifest.problem_count,
            problem=next(iter(manifest.problems), ""),
        )

    @classmethod
    def from_summary(cls, overview: SessionOverview, state: State) -> Evidence:
        """The evidence for a list: ledgers if they were read, otherwise the sums that the summary has of them."""
        summary = overview.summary
        if summary is None:
            sums, facts = cls.from_ledgers(overview.ledgers), Facts()
        else:
            sums, facts = cls._from_accounts(summary), summary.facts
            if overview.ledgers:
                sums = cls.from_ledgers(overview.ledgers)
        return replace(
            sums,
            has_event_files=None if summary is None else summary.event_files + summary.journals > 0,
            is_live=state == "live",
            lost_contact=state == "lost",
            is_killed=ending_of(overview, state, redact=True).word == "killed",
            without_files=Nodes(facts.nodes_without_files or 0),
            log_bytes_lost=facts.log_bytes_lost or 0,
            problem_count=summary.problem_count if summary else 0,
            problem=summary.problem if summary else "",
            invalid="; ".join(overview.problems),
        )

    @classmethod
    def from_ledgers(cls, ledgers: Collection[Ledger]) -> Evidence:
        """The part of the evidence that ledgers have."""
        events = [ledger.events for ledger in ledgers]
        return cls(
            collectors=len(ledgers),
            received=sum(counts.received - counts.duplicated for counts in events),
            stored=sum(counts.stored for counts in events),
            quarantined=sum(counts.quarantined for counts in events),
            dropped=sum(counts.dropped_by_ray or 0 for counts in events),
            export_given_up=any(ledger.export_given_up is not None for ledger in ledgers),
            head_silent=any(ledger.silent is not None for ledger in ledgers),
            cut_off=Nodes(sum(not ledger.is_graceful for ledger in ledgers)),
            event_bytes_unsent=sum(counts.unsent_bytes for counts in events),
            log_bytes_unsent=sum(ledger.logs.bytes_unsent for ledger in ledgers),
            series_left_out=max((ledger.metrics.series_left_out for ledger in ledgers), default=0),
            metric_blocks_lost=sum(ledger.metrics.blocks_lost for ledger in ledgers),
        )

    @classmethod
    def _from_accounts(cls, summary: Summary) -> Evidence:
        """The same part from the sums in a summary."""
        facts = summary.facts
        return cls(
            collectors=summary.accounts.collectors,
            received=(facts.events_received or 0) - (summary.accounts.duplicated or 0),
            stored=facts.events_stored or 0,
            quarantined=facts.events_quarantined or 0,
            dropped=facts.events_dropped_by_ray or 0,
            export_given_up=summary.accounts.export_given_up,
            head_silent=summary.accounts.head_silent,
            cut_off=Nodes(summary.accounts.cut_off),
            event_bytes_unsent=summary.accounts.event_bytes_unsent,
            log_bytes_unsent=summary.accounts.log_bytes_unsent,
            series_left_out=summary.accounts.series_left_out,
            metric_blocks_lost=summary.accounts.metric_blocks_lost,
        )
