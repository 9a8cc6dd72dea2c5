"""How complete a session's history is, and why it is not all: one judgement, for the list and for the session's page.

Whoever asks says what is known: the list knows sums, the page also the names of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.server import formatting as texts


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is missing."""

    short: str
    """In two or three words."""
    full: str
    concerns_tables: bool = False
    """Whether listings may lack rows or fields, that Ray had told, because of it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How much of a session's history is kept."""

    share: float | None
    """Of the events that are known of; none if nobody counted."""
    reasons: tuple[Reason, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.share == 1 and not self.reasons

    @property
    def short(self) -> str:
        return self.reasons[0].short if self.reasons else ""

    @property
    def why(self) -> str:
        return " ".join(reason.full for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Some nodes; their names, if those are known."""

    count: int = 0
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.names:
            return f"{self.count:,} node{'s' * (self.count > 1)}"
        if self.count > 3:
            return f"{', '.join(self.names[:3])} and {self.count - 3} more nodes"
        return f"Node{'s' * (self.count > 1)} {', '.join(self.names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is known of a session, in sums over its nodes."""

    collectors: int = 0
    """That kept an account."""
    received: int = 0
    """Events, each once."""
    stored: int = 0
    quarantined: int = 0
    """Events that could not be understood and are kept aside."""
    dropped: int = 0
    """Events that Ray dropped before they were sent."""
    goes_on: bool = False
    """Then what is not stored is on its way, and nothing has ended."""
    vanished: bool = False
    """There is no sign of life of its head any more."""
    cut_off: Nodes = Nodes()
    """That did not end in order."""
    without_files: Nodes = Nodes()
    log_bytes_lost: int = 0
    problem_count: int = 0
    problem: str = ""
    """The first of the problems while reading."""

    @property
    def known(self) -> int:
        """Events that are known of."""
        return self.received + self.dropped

    @property
    def missing(self) -> int:
        """Events that were received and not stored."""
        return 0 if self.goes_on else max(self.received - self.stored - self.quarantined, 0)


def kept(told: Told) -> Kept:
    """The judgement."""
    share = (told.known - told.dropped - told.missing) / told.known if told.known else 1.0
    return Kept(share if told.collectors else None, tuple(_reasons(told)))


def _reasons(told: Told) -> list[Reason]:
    found = []

    def because(short: str, full: str, *, concerns_tables: bool = False) -> None:
        found.append(Reason(short, full, concerns_tables))

    if told.vanished:
        because("vanished", "There was no sign of life any more, and no end in order: the last seconds are lost.")
    elif told.cut_off.count and not told.goes_on:
        they = "they" if told.cut_off.count > 1 else "it"
        because(
            f"{Nodes(told.cut_off.count)} cut off",
            f"{told.cut_off} did not end in order: what {they} did in the last seconds may be missing.",
        )
    if number := told.dropped:
        because(
            f"Ray dropped {texts.short(number)}",
            f"{number:,} events were dropped by Ray itself before they reached a collector.",
            concerns_tables=True,
        )
    if number := told.missing:
        because(
            f"{texts.short(number)} not stored",
            f"{number:,} events that collectors received were never stored.",
            concerns_tables=True,
        )
    if number := told.quarantined:
        because(
            f"{texts.short(number)} not understood",
            f"{number:,} events could not be understood; they are kept, not shown.",
            concerns_tables=True,
        )
    if told.without_files.count:
        because(
            f"{Nodes(told.without_files.count)} missing",
            f"Nothing was stored of {told.without_files}: no collector ran there, or none got to store anything.",
            concerns_tables=True,
        )
    if lost := told.log_bytes_lost:
        because(f"{texts.size(lost)} of logs lost", f"{texts.size(lost)} of log files are lost.")
    if number := told.problem_count:
        because(
            f"{texts.short(number)} problem{'s' * (number > 1)}",
            f"{number:,} problems while reading the archive, such as: {texts.clip(told.problem, 300)}",
            concerns_tables=True,
        )
    if not told.collectors:
        because("no account", "No collector kept an account of this session, so that nobody knows whether all arrived.")
    return found
