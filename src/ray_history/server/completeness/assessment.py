"""The completeness of a session: which share of its events is stored, and the reasons for what is missing.

Lists, pages and answers share this judgement. They differ in their evidence: a page knows the names of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ray_history.ray_variables import export_variables
from ray_history.server.completeness.evidence import Evidence, Nodes
from ray_history.server.formatting import clip, short, size


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is missing."""

    short: str
    """Two or three words."""
    full: str
    concerns_tables: bool = False
    """Whether listings may lack rows or fields because of it."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """How complete a session is."""

    share: float | None
    """Of the events that are known of; None if there are none, or if no collector counted."""
    reasons: tuple[Reason, ...] = ()
    nothing_recorded: bool = False
    """No event is known of: what the session did is unknown."""

    @property
    def is_whole(self) -> bool:
        return self.share == 1 and not self.reasons

    @property
    def is_incomplete(self) -> bool:
        return self.nothing_recorded or (self.share is not None and bool(self.reasons))

    @property
    def shown_share(self) -> float | None:
        """The share, unless only what cannot be counted is missing: 100 % would look complete."""
        return None if self.share == 1 and self.reasons else self.share

    @property
    def state(self) -> Literal["complete", "incomplete", "nothing recorded", "not counted"]:
        if self.nothing_recorded:
            return "nothing recorded"
        if self.share is None:
            return "not counted"
        return "complete" if self.is_whole else "incomplete"

    def as_json(self) -> dict[str, Any]:
        """The field `completeness` of `_completeness` and `_digest`."""
        return {"state": self.state, "share": self.share, "reasons": [reason.full for reason in self.reasons]}

    @property
    def short(self) -> str:
        return self.reasons[0].short if self.reasons else ""

    @property
    def why(self) -> str:
        return " ".join(reason.full for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class Rule:
    """One possible reason: when it holds, and its texts."""

    holds: Callable[[Evidence], object]
    short: Callable[[Evidence], str]
    full: Callable[[Evidence], str]
    concerns_tables: bool = False


_VARIABLES = tuple(export_variables(0))
_LEFT = (
    "were not uploaded before their collector ended, and were left on its volume: a collector that starts there again "
    "uploads them; without it they are lost."
)

RULES = (
    Rule(
        lambda evidence: evidence.is_without_events,
        lambda _: "nothing recorded",
        lambda evidence: (
            "No event was received from Ray"
            + (" so far" if evidence.is_live else "")
            + ": tasks are unknown, and jobs, actors and nodes too, unless the dashboard reported them. This does not "
            "mean that nothing failed. Ray sends "
            f"events only if {', '.join(_VARIABLES[:-1])} and {_VARIABLES[-1]} are set for every Ray process."
        ),
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.invalid,
        lambda _: "invalid objects",
        lambda evidence: f"Objects of this session in the archive cannot be used: {clip(evidence.invalid, 500)}.",
    ),
    Rule(
        lambda evidence: evidence.export_given_up,
        lambda _: "GCS exported no events",
        lambda _: (
            "Ray's GCS gave up exporting events, because the agent on the head node started too slowly: events about "
            "actors, nodes, jobs, workers and placement groups are missing. What the dashboard last showed of them is "
            "shown instead. More CPU for the head avoids this; its log gcs_server.out names the time."
        ),
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.head_silent,
        lambda _: "head silent",
        lambda evidence: (
            "Ray ran on the head for a minute and sent no event to the collector there: "
            + (
                "it does not export events."
                if evidence.is_without_events
                else "events of the control plane (jobs, actors, nodes) and of drivers there are missing."
            )
        ),
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.lost_contact,
        lambda _: "lost contact",
        lambda _: "The heartbeats stopped without a shutdown: the last seconds are lost.",
    ),
    Rule(
        lambda evidence: evidence.is_killed,
        lambda _: "killed",
        lambda _: "Ray was killed: its processes could not send the events of their last seconds.",
    ),
    Rule(
        lambda evidence: evidence.event_bytes_unsent and not evidence.is_live,
        lambda evidence: f"{size(evidence.event_bytes_unsent)} of events left",
        lambda evidence: f"{size(evidence.event_bytes_unsent)} of events {_LEFT}",
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.log_bytes_unsent and not evidence.is_live,
        lambda evidence: f"{size(evidence.log_bytes_unsent)} of logs left",
        lambda evidence: f"{size(evidence.log_bytes_unsent)} of log files {_LEFT}",
    ),
    Rule(
        lambda evidence: evidence.cut_off.count and not evidence.is_live and not evidence.lost_contact,
        lambda evidence: f"{Nodes(evidence.cut_off.count)} cut off",
        lambda evidence: f"{evidence.cut_off} did not end in order: events of the last seconds may be missing.",
    ),
    Rule(
        lambda evidence: evidence.dropped,
        lambda evidence: f"Ray dropped {short(evidence.dropped)}",
        lambda evidence: f"{evidence.dropped:,} events were dropped by Ray itself before they reached a collector.",
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.missing,
        lambda evidence: f"{short(evidence.missing)} not stored",
        lambda evidence: f"{evidence.missing:,} events that collectors received were never stored.",
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.quarantined,
        lambda evidence: f"{short(evidence.quarantined)} not understood",
        lambda evidence: f"{evidence.quarantined:,} events could not be understood; they are stored, but not shown.",
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.without_files.count,
        lambda evidence: f"{Nodes(evidence.without_files.count)} missing",
        lambda evidence: f"Nothing was stored of {evidence.without_files}: no collector ran there, or none uploaded.",
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: evidence.log_bytes_lost,
        lambda evidence: f"{size(evidence.log_bytes_lost)} of logs lost",
        lambda evidence: f"{size(evidence.log_bytes_lost)} of log files are lost.",
    ),
    Rule(
        lambda evidence: evidence.metric_blocks_lost,
        lambda _: "metrics lost",
        lambda evidence: (
            f"{evidence.metric_blocks_lost:,} blocks of metrics, each five minutes of one endpoint, were deleted from "
            "a full volume before the bucket took them."
        ),
    ),
    Rule(
        lambda evidence: evidence.series_left_out,
        lambda _: "metrics cut",
        lambda evidence: (
            f"An endpoint showed up to {evidence.series_left_out:,} series of metrics more than are recorded: they "
            "were left out."
        ),
    ),
    Rule(
        lambda evidence: evidence.problem_count,
        lambda evidence: f"{short(evidence.problem_count)} problem{'s' * (evidence.problem_count > 1)}",
        lambda evidence: (
            f"{evidence.problem_count:,} problems while reading the archive, such as: {clip(evidence.problem, 300)}"
        ),
        concerns_tables=True,
    ),
    Rule(
        lambda evidence: not evidence.is_counted and not evidence.is_without_events,
        lambda _: "not counted",
        lambda _: "No collector reported counts, so completeness is unknown.",
    ),
)
"""The most telling reason comes first: lists show only that one."""


def assess(evidence: Evidence) -> Assessment:
    events = evidence.events
    share = (events - evidence.dropped - evidence.missing) / events if evidence.is_counted else None
    reasons = tuple(
        Reason(rule.short(evidence), rule.full(evidence), rule.concerns_tables)
        for rule in RULES
        if rule.holds(evidence)
    )
    return Assessment(share, reasons, evidence.is_without_events)
