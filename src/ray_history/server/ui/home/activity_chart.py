"""The picture above the list: how many sessions started when, and how many of them had failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ray_history.server.ui.home.query import RANGES, SessionQuery
from ray_history.server.ui.home.rows import Row

_MOST = 90
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
"""Seconds that one bar may stand for."""
_HEIGHT, _HIGHEST = 56, 50
_MOST_LABELS = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """Some time, and the sessions that started in it."""

    x: float
    """Where it begins, as a share of the width; so is the width of all."""
    title: str
    link: str
    top: float
    calm: float
    """Heights in pixels: of the sessions without failures, and of those with."""
    bad: float


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Activity:
    """What the picture shows."""

    bars: Sequence[Bar]
    width: float
    labels: Sequence[Label]
    told: str
    """For those who do not see it."""
    begin: float
    step: int
    count: int
    chosen: tuple[float, float] | None
    """From where to where the list is narrowed, as shares of the width."""
    height: int = _HEIGHT


def activity(rows: Sequence[Row], wish: SessionQuery, now: float) -> Activity | None:
    """None if nothing started in this time."""
    span = RANGES[wish.range]
    shown = [row for row in rows if row.started >= now - span] if span else rows
    if not shown:
        return None
    first = now - span if span else min(row.started for row in shown)
    last = max(now if span else max(row.started for row in shown) + 1, first + 60)
    if not span and now - last < (last - first) / 4:  # the present, unless it is far away
        last = max(last, now)
    step = next((step for step in _STEPS if (last - first) / step <= _MOST), None) or math.ceil((last - first) / _MOST)
    begin = first // step * step
    count = max(math.ceil((last - begin) / step), 1)
    totals, bad = [0] * count, [0] * count
    for row in shown:
        place = min(int((row.started - begin) // step), count - 1)
        totals[place] += 1
        bad[place] += row.has_failures
    return Activity(
        [
            _bar(wish, begin + place * step, step, place / count, totals[place], bad[place], max(totals))
            for place in range(count)
            if totals[place]
        ],
        1 / count,
        _labels(begin, step, count),
        _told(begin, step, totals, bad),
        begin,
        step,
        count,
        _chosen(wish, begin, step * count),
    )


def _bar(wish: SessionQuery, at: float, step: int, x: float, total: int, bad: int, most: int) -> Bar:
    high, high_bad = total / most * _HIGHEST, bad / most * _HIGHEST
    title = f"{_time(at)}, {_length(step)}: {total:,} session{'s' * (total != 1)}, {bad:,} with failures"
    link = replace(wish, after="").link(begin=at, end=at + step)
    return Bar(x, title, link, _HEIGHT - high, high - high_bad, high_bad)


def _labels(begin: float, step: int, count: int) -> list[Label]:
    """At round moments, not too many."""
    span = step * count
    every = next((size for size in (*_STEPS, 90 * 86400) if span / size <= _MOST_LABELS), 365 * 86400)
    form = "%H:%M" if every < 86400 else "%a %-d" if span <= 8 * 86400 else "%b %-d" if every < 300 * 86400 else "%b %Y"
    first = math.ceil(begin / every) * every
    moments = [first + number * every for number in range(math.ceil((begin + span - first) / every))]
    return [
        Label((moment - begin) / span, datetime.fromtimestamp(moment, UTC).strftime(form))
        for moment in moments
        if (moment - begin) / span < 0.97
    ]


def _told(begin: float, step: int, totals: list[int], bad: list[int]) -> str:
    told = f"Sessions started per {_length(step)}, {sum(totals):,} in all"
    if any(bad):
        told += f"; most with failures at {_time(begin + bad.index(max(bad)) * step)}: {max(bad):,}"
    return told


def _chosen(wish: SessionQuery, begin: float, span: float) -> tuple[float, float] | None:
    if wish.begin is None and wish.end is None:
        return None
    left = 0.0 if wish.begin is None else (wish.begin - begin) / span
    right = 1.0 if wish.end is None else (wish.end - begin) / span
    left, right = (min(max(place, 0.0), 1.0) for place in (left, right))
    return (left, right) if right > left else None


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%a %b %-d, %H:%M")


def _length(step: int) -> str:
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if step >= size:
            number = f"{step / size:g}"
            return f"{number} {unit}{'s' * (unit == 'day' and number != '1')}"
    return f"{step} s"
