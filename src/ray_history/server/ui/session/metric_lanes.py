"""The metrics of a session under its timeline: one lane per chart, on the same axis, with what went wrong marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ray_history.metrics.table_names import METRICS
from ray_history.server.formatting import clip, clock, count, size
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.ui.charts import Tick
from ray_history.server.ui.session.diagnosis import diagnose
from ray_history.server.ui.session.jobs import Job, jobs_of
from ray_history.server.ui.session.memory import memory_then
from ray_history.server.ui.session.timeline_chart import axis_ticks, round_up, timeline_chart

if TYPE_CHECKING:
    from ray_history.server.metrics.small_charts import SmallChart

HEIGHT, WIDTH = 40, 1000
"""Of the drawing, which is stretched to the width of the page."""
MOST_MARKS = 8
"""Failures, nodes and jobs that are marked, of each the first ones."""
_MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line of a chart."""

    name: str
    path: str
    """The `d` of an SVG path."""
    is_area: bool


@dataclass(frozen=True, slots=True)
class MetricLane:
    """A chart."""

    name: str
    strokes: list[Stroke]
    top: str
    """The value at the top of the axis."""
    summary: str
    """The largest value of each line."""
    problem: str
    notes: list[str]
    devices: list[str]
    """The paths of the lines of single GPUs."""

    @property
    def has_memory(self) -> bool:
        return self.name == _MEMORY


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that is marked in all charts."""

    at: float
    look: str
    """The class of its line."""
    text: str
    memory: str = ""
    """How full the memory of its node was."""
    link: str = ""
    """What it leads to."""


@dataclass(frozen=True, slots=True)
class MetricLanes:
    """The charts of a session."""

    start_ns: int
    end_ns: int
    lanes: list[MetricLane]
    marks: list[Mark]
    memory: dict[tuple[str | None, int], str]
    """How full the memory of a node was when a failure occurred there."""
    ticks: list[Tick]


@cached_per_session
def metric_lanes(request: SessionRequest) -> MetricLanes | None:
    """The charts of a session; None if no metrics were recorded."""
    if request.tables.file(METRICS) is None:
        return None
    # It imports NumPy, which takes 0.1 s: most sessions have no metrics.
    from ray_history.server.metrics.recorded import recorded
    from ray_history.server.metrics.small_charts import small_charts, steps

    found, timeline = recorded(request.open), timeline_chart(request)
    if found is None:
        return None
    start, end = (timeline.start_ns, timeline.end_ns) if timeline else (found.first_ms * 10**6, found.last_ms * 10**6)
    end = max(end, start + 10**9)
    times = steps(start // 10**6, min(end, request.view.at or end) // 10**6)
    span = (end - start) / 10**6
    places = [(time - start // 10**6) / span * WIDTH for time in times.tolist()]
    lanes = [_lane(chart, places) for chart in small_charts(found, times)]
    memory = _memory(request)
    return MetricLanes(start, end, lanes, _marks(request, start, end, memory), memory, axis_ticks(start, end))


def _memory(request: SessionRequest) -> dict[tuple[str | None, int], str]:
    groups = diagnose(request).groups[:MOST_MARKS]
    found = {(group.example.node_id, group.first_ns) for group in groups}
    return {key: memory for key in found if (memory := memory_then(request, *key))}


def _lane(chart: SmallChart, places: Sequence[float]) -> MetricLane:
    top = 100.0 if chart.unit == "%" else _top(max((line.most for line in chart.lines), default=0.0), chart.unit)
    strokes = [
        Stroke(line.name, _path(places, line.values, top, is_area=number == 0), number == 0)
        for number, line in enumerate(chart.lines)
    ]
    most = (f"{line.name} at most {_value(line.most, chart.unit)}".strip() for line in chart.lines)
    notes = [f"{line.name} at most {_value(line.most, chart.unit)}" for line in chart.devices]
    notes += [f"{clip(title, 100)} {size(used)}" for title, used in chart.processes]
    devices = [_path(places, line.values, top, is_area=False) for line in chart.devices]
    return MetricLane(chart.name, strokes, _value(top, chart.unit), ", ".join(most), chart.problem, notes, devices)


def _top(most: float, unit: str) -> float:
    """The value at the top of an axis."""
    if unit == "tasks":
        return float(round_up(max(1, int(-(-most // 1)))))
    scale = 1000.0
    while scale * 1000 <= most:
        scale *= 1000
    return round_up(max(1, int(-(-most // scale)))) * scale


def _value(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.0f} %"
    if unit == "tasks":
        return count(round(value))
    return size(value) + unit.removeprefix("bytes")


def _path(places: Sequence[float], values: Sequence[float | None], top: float, *, is_area: bool) -> str:
    parts = []
    for run in _runs(places, values):
        points = [f"{x:.0f} {HEIGHT - min(max(value / top, 0.0), 1.0) * HEIGHT:.1f}" for x, value in run]
        if len(points) == 1:  # one scrape, which would not be visible
            points.append(f"{run[0][0] + 2:.0f} {points[0].partition(' ')[2]}")
        line = "L".join(points)
        first, last = points[0].partition(" ")[0], points[-1].partition(" ")[0]
        parts.append(f"M{first} {HEIGHT}L{line}L{last} {HEIGHT}Z" if is_area else f"M{line}")
    return "".join(parts)


def _runs(places: Sequence[float], values: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """The points of each part of a line without gaps."""
    run: list[tuple[float, float]] = []
    for place, value in zip(places, values, strict=True):
        if value is not None:
            run.append((place, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _marks(request: SessionRequest, start: int, end: int, memories: Mapping[tuple[str | None, int], str]) -> list[Mark]:
    """Jobs, lost nodes and failures, the most important last: those are drawn above the others."""

    def mark(moment: int, look: str, text: str, memory: str = "", link: str = "") -> Mark:
        at = min(max((moment - start) / (end - start), 0.0), 1.0)
        return Mark(at, look, f"{text}. Memory was at {memory}." if memory else f"{text}.", memory, link)

    marks = [
        mark((moment or 0) * 10**6, "job", f"{clip(job.name, 60)} {verb} at {clock((moment or 0) / 1000)}")
        for job in _first_jobs(jobs_of(request))
        for moment, verb in ((job.start_ms, "started"), (job.end_ms, "ended"))
        if moment
    ]
    diagnosis = diagnose(request)
    for node in [node for node in diagnosis.nodes if node.end_ns and not node.expected][:MOST_MARKS]:
        moment = node.end_ns or 0
        memory = memory_then(request, node.node_id, moment)
        marks.append(mark(moment, "lost", f"Node {node.name} was lost at {clock(moment / 1e9)}", memory, "#h-n"))
    for group in diagnosis.groups[:MOST_MARKS]:
        text = f"{group.error} in {clip(group.function, 60)} at {clock(group.first_ns / 1e9)}"
        memory = memories.get((group.example.node_id, group.first_ns), "")
        marks.append(mark(group.first_ns, "failed", text, memory, "#failures"))
    return marks


def _first_jobs(jobs: Sequence[Job]) -> list[Job]:
    return sorted((job for job in jobs if job.start_ms), key=lambda job: job.start_ms or 0)[:MOST_MARKS]
