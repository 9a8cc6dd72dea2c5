"""Steps and ticks of charts over time, in whole numbers of any unit of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MINUTE, HOUR, DAY = 60, 3600, 86400
STEPS = (
    *(MINUTE * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY * days for days in (1, 2, 7, 30, 90, 365)),
)
"""Round steps in seconds."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, as a share of its length."""

    at: float
    text: str


def round_step(span: int, steps: Sequence[int], most: int) -> int:
    """The shortest of the steps that cuts a span into at most `most` parts; longer than all if none does."""
    return next((step for step in steps if span <= step * most), -(-span // most))


def ticks(begin: int, end: int, step: int, text: Callable[[int], str], *, room: float) -> list[Tick]:
    """Ticks at the multiples of a step. Their texts stand to the right, so none begins behind the share `room`."""
    span, first = end - begin, -(-begin // step) * step
    return [
        Tick((moment - begin) / span, text(moment))
        for moment in range(first, end, step)
        if (moment - begin) / span < room
    ]
