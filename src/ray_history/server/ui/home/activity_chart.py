"""The chart above the list: how many sessions started when, and how many of them had failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ray_history.server.formatting import plural, utc_datetime
from ray_history.server.ui.charts import DAY, HOUR, MINUTE, STEPS, Tick, round_step, ticks
from ray_history.server.ui.home.query import RANGES, SessionQuery
from ray_history.server.ui.home.rows import Row

_MOST_BARS = 90
_MOST_TICKS = 8
_HEIGHT, _HIGHEST = 56, 50


@dataclass(frozen=True, slots=True)
class Bar:
    """The sessions that started in one interval. Heights are in pixels."""

    x: float
    """The beginning as a share of the width."""
    title: str
    link: str
    top: float
    succeeded: float
    failed: float


@dataclass(frozen=True, slots=True)
class ActivityChart:
    """The geometry of the chart."""

    bars: Sequence[Bar]
    width: float
    """The width of each bar, as a share of the width of the chart."""
    ticks: Sequence[Tick]
    summary: str
    """The chart in words."""
    begin: int
    step: int
    count: int
    """The number of intervals, with and without bars."""
    selected: tuple[float, float] | None
    """The selected time range, as shares of the width."""
    height: int = _HEIGHT


def activity_chart(rows: Sequence[Row], query: SessionQuery, now: float) -> ActivityChart | None:
    """The chart of the rows in the range of a query; None if it has none."""
    span = RANGES[query.range]
    shown = [row for row in rows if row.started and (not span or row.started >= now - span)]
    if not shown:
        return None
    first, last = (now - span, now) if span else _extent(shown, now)
    last = max(last, first + 60)
    step = round_step(math.ceil(last - first), STEPS, _MOST_BARS)
    begin = int(first // step) * step
    count = max(math.ceil((last - begin) / step), 1)
    totals, failed = [0] * count, [0] * count
    for row in shown:
        place = min((row.started - begin) // step, count - 1)
        totals[place] += 1
        failed[place] += row.has_failures
    return ActivityChart(
        bars=[
            _bar(query, begin + place * step, step, place / count, totals[place], failed[place], max(totals))
            for place in range(count)
            if totals[place]
        ],
        width=1 / count,
        ticks=_ticks(begin, begin + step * count),
        summary=_summary(begin, step, totals, failed),
        begin=begin,
        step=step,
        count=count,
        selected=_selected(query, begin, step * count),
    )


def _extent(rows: Sequence[Row], now: float) -> tuple[float, float]:
    """From the first to the last start, or to now unless that is far away."""
    first, last = min(row.started for row in rows), max(row.started for row in rows) + 1
    last = max(last, first + 60)
    return first, max(last, now) if now - last < (last - first) / 4 else last


def _bar(query: SessionQuery, begin: int, step: int, x: float, total: int, failed: int, most: int) -> Bar:
    height, failed_height = total / most * _HIGHEST, failed / most * _HIGHEST
    title = f"{_time(begin)}, {_length(step)}: {plural(total, 'session')}, {failed:,} with failures"
    link = replace(query, after="").link(begin=begin, end=begin + step)
    return Bar(x, title, link, _HEIGHT - height, height - failed_height, failed_height)


def _ticks(begin: int, end: int) -> list[Tick]:
    span = end - begin
    step = min(round_step(span, STEPS, _MOST_TICKS), STEPS[-1])
    if step < DAY:
        form = "%H:%M"
    elif span <= 8 * DAY:
        form = "%a %-d"
    else:
        form = "%b %-d" if step < STEPS[-1] else "%b %Y"
    return ticks(begin, end, step, lambda moment: utc_datetime(moment).strftime(form), room=0.97)


def _summary(begin: int, step: int, totals: list[int], failed: list[int]) -> str:
    summary = f"Sessions started per {_length(step)}, {sum(totals):,} in total"
    if any(failed):
        summary += f"; most with failures at {_time(begin + failed.index(max(failed)) * step)}: {max(failed):,}"
    return summary


def _selected(query: SessionQuery, begin: int, span: int) -> tuple[float, float] | None:
    if query.begin is None and query.end is None:
        return None
    left = 0.0 if query.begin is None else (query.begin - begin) / span
    right = 1.0 if query.end is None else (query.end - begin) / span
    left, right = (min(max(place, 0.0), 1.0) for place in (left, right))
    return (left, right) if right > left else None


def _time(moment: float) -> str:
    return utc_datetime(moment).strftime("%a %b %-d, %H:%M")


def _length(step: int) -> str:
    for size, unit in ((DAY, "day"), (HOUR, "h"), (MINUTE, "min")):
        if step >= size:
            number = f"{step / size:g}"
            return f"{number} {unit}{'s' * (unit == 'day' and number != '1')}"
    return f"{step} s"
