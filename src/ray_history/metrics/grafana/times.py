"""Ranges of time as Grafana writes them, and the steps of a chart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from ray_history.metrics.promql.vector import Times

USUAL_INTERVAL = 15_000
"""Of scrapes, in ms."""
_NICE_STEPS = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800),
)
"""In seconds."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "M": 2_592_000, "y": 31_536_000}
_RELATIVE = re.compile(r"now(?:-([0-9]{1,9})([smhdwMy]))?(?:/[smhdwMy])?")
_ABSENT = frozenset({"", "undefined", "null", "NaN"})
"""What a page writes that does not know its range yet."""


class InvalidTime(ValueError):
    """The text is no moment."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `start` to `end`, in ms since 1970."""

    start: int
    end: int


def moment(text: str, now: int) -> int | None:
    """`now-5m`, milliseconds since 1970, or ISO 8601; None if there is none. Raises `InvalidTime`."""
    if text in _ABSENT:
        return None
    relative = _RELATIVE.fullmatch(text)
    if relative:
        return now - int(relative[1] or 0) * _UNITS.get(relative[2] or "", 0) * 1000
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]*)?", text):
        return int(float(text))
    try:
        parsed = datetime.fromisoformat(text.replace(" ", "+"))
        return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidTime(f"invalid time {text[:40]!r}: expected now-5m or milliseconds since 1970") from None


def shown_range(start: str, end: str, whole: TimeRange) -> TimeRange | None:
    """The part of the session between two moments; None if it has none there."""
    first, last = moment(start, whole.end), moment(end, whole.end)
    first = whole.start if first is None else max(first, whole.start)
    last = whole.end if last is None else min(last, whole.end)
    return TimeRange(first, last) if first < last or (first, last) == (whole.start, whole.end) else None


def step(shown: TimeRange, points: int, interval: int = USUAL_INTERVAL) -> int:
    """A distance between about as many points, in ms; not less than the interval of scrapes."""
    least = max(interval, (shown.end - shown.start) / max(points, 1))
    return next((nice * 1000 for nice in _NICE_STEPS if nice * 1000 >= least), round(least))


def steps(shown: TimeRange, step_ms: int) -> Times:
    """The moments of a chart. The last one is the end, so that a chart ends with the last values of a session."""
    count = (shown.end - shown.start) // step_ms
    return np.arange(shown.end - count * step_ms, shown.end + 1, step_ms, dtype=np.int64)
