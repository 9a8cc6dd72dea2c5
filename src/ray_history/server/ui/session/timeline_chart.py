"""The timeline of a session: tasks over time, and the lifetimes of jobs and nodes, as shares of the width.

A bar shows the tasks of one interval: those that failed in it, those that finished in it, and those that were still
running at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ray_history.history.read.views import View
from ray_history.server.formatting import clock, utc_datetime
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.sessions.node_names import node_names
from ray_history.server.ui.charts import DAY, MINUTE, STEPS, Tick, round_step, ticks

MOST_BARS = 90
MOST_LANES = 40
_MOST_TICKS = 8
_SECOND = 10**9
_STEPS_NS = (
    *(10**6 * milliseconds for milliseconds in (10, 20, 50, 100, 200, 500)),
    *(_SECOND * seconds for seconds in (1, 2, 5, 10, 15, 30, *STEPS)),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """The tasks of one interval."""

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
    """The lifetime of one job or node."""

    name: str
    title: str
    begin: float
    width: float
    look: str
    """The class of its style: f-ok, f-bad, f-quiet or f-mute."""
    ends_badly: bool = False


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """The geometry of the chart."""

    start_ns: int
    end_ns: int
    step_ns: int
    bars: list[Bar]
    top: int
    """The number of tasks at the top of the axis."""
    nodes: list[Lane]
    node_count: int
    """The number of nodes, with those that have no lane."""
    ticks: list[Tick]

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.start_ns

    def share(self, ns: int) -> float:
        """The place of a moment."""
        return min(max((ns - self.start_ns) / self.span_ns, 0.0), 1.0)


@cached_per_session
def timeline_chart(request: SessionRequest) -> TimelineChart | None:
    """The chart of a session; None if no event of it has a time."""
    facts, start = request.open.facts, request.open.started_ns
    end = request.open.ended_ns or facts.last_ns
    if not facts.start_ns or not end:
        return None
    end = max(end, start + _SECOND)
    step = step_for(end - start)
    bars = bars_of(_count_tasks(request, start, step), start, end, step)
    nodes = _nodes(request)
    return TimelineChart(
        start,
        end,
        step,
        bars,
        round_up(max(bar.total for bar in bars)),
        [_node_lane(request, node, start, end) for node in _drawn(nodes)],
        len(nodes),
        axis_ticks(start, end),
    )


def step_for(span: int) -> int:
    """The interval of the bars."""
    return round_step(span, _STEPS_NS, MOST_BARS)


class StepCount(NamedTuple):
    """A number of tasks that began and ended in the same intervals."""

    first: int | None
    """The interval in which they began; None if they never reached a worker."""
    last: int | None
    """The interval in which they ended; None if they are still running."""
    is_failed: bool
    tasks: int


def _count_tasks(request: SessionRequest, start: int, step: int) -> list[StepCount]:
    rows = request.tables.fetch(
        f"""
        select
            (coalesce(running_ns, submitted_to_worker_ns, failed_ns, finished_ns) - {start}) // {step},
            (coalesce(failed_ns, finished_ns) - {start}) // {step},
            coalesce(state = 'FAILED', false),
            count(*)
        from {request.tables.source("tasks", View(request.view.at))}
        where is_user_task(type, is_internal)
        group by all
        """
    )
    return [StepCount._make(row) for row in rows]


def bars_of(counts: Sequence[StepCount], start: int, end: int, step: int) -> list[Bar]:
    number = max(1, -(-(end - start) // step))
    began, finished, failed = [0] * number, [0] * number, [0] * number
    for count in counts:
        if count.first is None:
            continue
        began[min(max(count.first, 0), number - 1)] += count.tasks
        if count.last is not None:
            ended = failed if count.is_failed else finished
            ended[min(max(count.last, count.first, 0), number - 1)] += count.tasks
    bars, running, width = [], 0, step / (end - start)
    for place in range(number):
        running += began[place] - finished[place] - failed[place]
        begin = place * width
        bars.append(
            Bar(
                start + place * step,
                begin,
                min(width, 1 - begin),
                failed[place],
                finished[place],
                max(running, 0),
            )
        )
    return bars


def round_up(most: int) -> int:
    """The next number that reads well on an axis."""
    scale = 1
    while True:
        for factor in (2, 4, 6, 8, 10, 12, 16):
            if factor * scale >= most:
                return factor * scale
        scale *= 10


class _Node(NamedTuple):
    name: str
    node_id: str
    is_head: bool
    start_ns: int | None
    end_ns: int | None
    is_lost: bool
    message: str


def _nodes(request: SessionRequest) -> list[_Node]:
    rows = request.tables.rows(
        f"""
        select '', node_id, is_head_node, start_ns,
            case when state = 'DEAD' then end_ns end,
            state = 'DEAD' and not planned_departure, coalesce(state_message, '')
        from {request.tables.source("nodes", View(request.view.at))}
        order by is_head_node desc, start_ns nulls last, node_id
        """
    )
    names = node_names(request)
    nodes = map(_Node._make, rows)
    return [node._replace(name=names.get(node.node_id, node.node_id[:8])) for node in nodes]


def _drawn(nodes: list[_Node]) -> list[_Node]:
    """The nodes that get a lane: if there are too many, the head and lost nodes before others."""
    if len(nodes) <= MOST_LANES:
        return nodes
    return sorted(nodes, key=lambda node: (not node.is_head, not node.is_lost))[:MOST_LANES]


def _node_lane(request: SessionRequest, node: _Node, start: int, end: int) -> Lane:
    lifetime = f"{clock(node.start_ns / 1e9)} to " if node.start_ns else "until "
    lifetime += clock(node.end_ns / 1e9) if node.end_ns else "the end"
    parts = (
        f"{node.name} ({node.node_id[:8]})",
        "head" if node.is_head else "",
        lifetime,
        request.redacted(node.message),
    )
    title = ", ".join(filter(None, parts))
    whole = start, end
    return lane(node.name, title, node.start_ns or start, node.end_ns or end, whole, "f-quiet", ends_badly=node.is_lost)


def lane(
    name: str, title: str, began: int, ended: int, whole: tuple[int, int], look: str, *, ends_badly: bool = False
) -> Lane:
    """A lifetime within that of the session, never too short to be visible."""
    start, end = whole
    span = end - start
    begin = min(max((began - start) / span, 0.0), 0.995)
    width = min(max((ended - began) / span, 0.005), 1 - begin)
    return Lane(name, title, begin, width, look, ends_badly)


def axis_ticks(start: int, end: int) -> list[Tick]:
    """Round times between two moments."""
    step = round_step(end - start, _STEPS_NS, _MOST_TICKS)
    form = "%b %-d" if step >= DAY * _SECOND else "%H:%M" if step >= MINUTE * _SECOND else "%H:%M:%S"
    # On a phone the text of a tick is a fifth of the width.
    return ticks(start, end, step, lambda ns: utc_datetime(ns / 1e9).strftime(form), room=0.78)
