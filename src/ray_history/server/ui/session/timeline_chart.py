"""Tasks over time, and the lives of jobs and nodes: the geometry of a picture, as shares of its width.

One query counts tasks by the steps of time in which they began and ended. A bar shows the tasks that ran in its step:
those that finished in it, those that failed in it, and those that were still running at its end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ray_history.history.read.views import View
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.ui.session.headline import clock

MOST_BARS = 90
MOST_LANES = 40
_SECOND = 10**9
_STEPS = [
    *(10**6 * ms for ms in (10, 20, 50, 100, 200, 500)),
    *(_SECOND * s for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(3600 * _SECOND * h for h in (1, 2, 3, 6, 12, 24, 48, 7 * 24, 14 * 24, 30 * 24, 90 * 24, 365 * 24)),
]


@dataclass(frozen=True, slots=True)
class Bar:
    """One step of time."""

    start_ns: int
    begin: float
    width: float
    failed: int
    finished: int
    running: int

    @property
    def total(self) -> int:
        return self.failed + self.finished + self.running


@dataclass(frozen=True, slots=True)
class Lane:
    """One life: a name, and its begin, width and looks."""

    name: str
    title: str
    begin: float
    width: float
    look: str
    """f-ok, f-bad, f-quiet or f-mute, as the styles call them."""
    ends_badly: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """The picture."""

    start_ns: int
    end_ns: int
    step_ns: int
    bars: list[Bar]
    most: int
    """The height of the picture, in tasks."""
    nodes: list[Lane]
    nodes_seen: int
    ticks: list[Tick]

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.start_ns

    def share(self, ns: int) -> float:
        """Where a moment is."""
        return min(max((ns - self.start_ns) / self.span_ns, 0.0), 1.0)


@cached_per_session
def strip(request: SessionRequest) -> TimelineChart | None:
    """The picture of a session; none if nothing has a time."""
    facts = request.open.facts
    start, end = facts.get("start_ns"), request.open.ended_ns or facts.get("last_ns")
    if not start or not end:
        return None
    end = max(end, start + _SECOND)
    step = step_for(end - start)
    bars = _bars(_counted(request, start, step), start, end, step)
    nodes, seen = _nodes(request, start, end)
    return TimelineChart(
        start, end, step, bars, _round_number(max(bar.total for bar in bars)), nodes, seen, _ticks(start, end)
    )


def step_for(span: int) -> int:
    """The shortest step in round numbers that needs no more than `MOST_BARS` of them."""
    least = -(-span // MOST_BARS)
    place = bisect_left(_STEPS, least)
    return _STEPS[place] if place < len(_STEPS) else least


_Counts = list[tuple[int | None, int | None, bool, int]]


def _counted(request: SessionRequest, start: int, step: int) -> _Counts:
    """Tasks by the steps of their begin and end; one without an end is still running."""
    return request.tables.fetch(
        f"""
        select
            (coalesce(running_ns, submitted_to_worker_ns, failed_ns, finished_ns) - {start}) // {step},
            (coalesce(failed_ns, finished_ns) - {start}) // {step},
            coalesce(state = 'FAILED', false),
            count(*)
        from {request.tables.source("tasks", View(request.view.at))}
        where type <> 'DRIVER_TASK'
        group by all
        """
    )


def _bars(counts: _Counts, start: int, end: int, step: int) -> list[Bar]:
    number = max(1, -(-(end - start) // step))
    began, finished, failed = [0] * number, [0] * number, [0] * number
    for first, last, is_failed, tasks in counts:
        if first is None:
            continue  # never came to a worker
        began[min(max(first, 0), number - 1)] += tasks
        if last is not None:
            (failed if is_failed else finished)[min(max(last, first, 0), number - 1)] += tasks
    bars, running = [], 0
    width = step / (end - start)
    for place in range(number):
        running += began[place] - finished[place] - failed[place]
        begin = place * width
        bars.append(
            Bar(
                start + place * step, begin, min(width, 1 - begin), failed[place], finished[place], max(running, 0),
            )
        )  # fmt: skip
    return bars


def _round_number(most: int) -> int:
    """The next number that reads well on an axis."""
    scale = 1
    while True:
        for factor in (2, 4, 6, 8, 10, 12, 16):
            if factor * scale >= most:
                return factor * scale
        scale *= 10


def _nodes(request: SessionRequest, start: int, end: int) -> tuple[list[Lane], int]:
    rows = request.tables.rows(
        f"""
        select coalesce(nullif(node_name, ''), node_ip, left(node_id, 8)), node_id, is_head_node, start_ns,
            case when state = 'DEAD' then end_ns end,
            state = 'DEAD' and not planned_departure, coalesce(state_message, '')
        from {request.tables.source("nodes", View(request.view.at))}
        order by is_head_node desc, start_ns nulls last, node_id
        """
    )
    drawn = rows if len(rows) <= MOST_LANES else sorted(rows, key=lambda row: (not row[2], not row[5]))[:MOST_LANES]
    lanes = []
    for name, node_id, is_head, began, ended, badly, message in drawn:
        life = f"{clock(began)} to " if began else "until "
        life += f"{clock(ended)}" if ended else "the end"
        said = shown(request, message)
        title = ", ".join(filter(None, (f"{name} ({node_id[:8]})", "head" if is_head else "", life, said)))
        lanes.append(lane(name, title, began or start, ended or end, (start, end), "f-quiet", ends_badly=badly))
    return lanes, len(rows)


def lane(
    name: str, title: str, began: int, ended: int, whole: Sequence[int], look: str, *, ends_badly: bool = False
) -> Lane:
    """A life between the begin and the end of the whole; never too short to be seen."""
    start, end = whole
    span = end - start
    begin = min(max((began - start) / span, 0.0), 0.995)
    width = min(max((ended - began) / span, 0.005), 1 - begin)
    return Lane(name, title, begin, width, look, ends_badly)


def _ticks(start: int, end: int) -> list[Tick]:
    """Five to eight round times of day."""
    span = end - start
    step = next((step for step in _STEPS if span / step <= 8), span)
    first = -(-start // step) * step
    seconds = step < 60 * _SECOND
    return [
        Tick((ns - start) / span, _tick_text(ns, step, seconds=seconds))
        for ns in range(first, end, step)
        if (ns - start) / span < 0.78  # on a phone its text is a fifth of the picture
    ]


def _tick_text(ns: int, step: int, *, seconds: bool) -> str:
    if step >= 24 * 3600 * _SECOND:
        return day(ns)
    return clock(ns) if seconds else clock(ns)[:5]


def day(ns: int) -> str:
    moment = datetime.fromtimestamp(ns / 1e9, UTC)
    return f"{moment:%b} {moment.day}"
