"""The metrics of a session at a glance: a few charts of two lines each, over its whole time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ray_history.metrics.promql.errors import PromQLError
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.vector import Times, Vector
from ray_history.server.metrics.recorded import Recorded, limits

MOST_STEPS = 160
MOST_PROCESSES = 3
MOST_DEVICES = 16
"""GPUs that have lines of their own."""
GPU_MEMORY = "GPU memory"
_SHORTEST_STEP = 1_000

Unit = Literal["%", "bytes", "bytes/s", "tasks"]


@dataclass(frozen=True, slots=True)
class _Query:
    name: str
    promql: str


@dataclass(frozen=True, slots=True)
class _Chart:
    name: str
    unit: Unit
    queries: tuple[_Query, _Query]
    of_device: str = ""
    """PromQL for the value of each GPU."""


_MEMORY = "100 * ray_node_mem_used / ray_node_mem_total"
_GPU_MEMORY = "100 * ray_node_gram_used / (ray_node_gram_used + ray_node_gram_available)"
_BY_PROCESS = "sum by (Component) (ray_component_gpu_memory_mb) * 1024 * 1024"
"""The metric is in MiB."""
_OF_USERS = 'Name!~"JobSupervisor.*|_ray_internal.*"'

CHARTS = (
    _Chart(
        "CPU",
        "%",
        (
            _Query("mean", "avg(ray_node_cpu_utilization)"),
            _Query("highest", "max(ray_node_cpu_utilization)"),
        ),
    ),
    _Chart("Memory", "%", (_Query("mean", f"avg({_MEMORY})"), _Query("highest", f"max({_MEMORY})"))),
    _Chart(
        "GPU",
        "%",
        (
            _Query("mean", "avg(ray_node_gpus_utilization)"),
            _Query("highest", "max(ray_node_gpus_utilization)"),
        ),
        "ray_node_gpus_utilization",
    ),
    _Chart(
        GPU_MEMORY,
        "%",
        (_Query("mean", f"avg({_GPU_MEMORY})"), _Query("highest", f"max({_GPU_MEMORY})")),
        _GPU_MEMORY,
    ),
    _Chart(
        "Object store",
        "bytes",
        (
            _Query("in memory", 'sum(ray_object_store_memory{Location!="SPILLED"})'),
            _Query("spilled", 'sum(ray_object_store_memory{Location="SPILLED"})'),
        ),
    ),
    _Chart(
        "Tasks",
        "tasks",
        (
            _Query("running", f'clamp_min(sum(ray_tasks{{State=~"RUNNING.*",{_OF_USERS}}}), 0)'),
            _Query("waiting", f'clamp_min(sum(ray_tasks{{State!~"RUNNING.*|FINISHED|FAILED",{_OF_USERS}}}), 0)'),
        ),
    ),
    _Chart(
        "Network",
        "bytes/s",
        (
            _Query("received", "sum(ray_node_network_receive_speed)"),
            _Query("sent", "sum(ray_node_network_send_speed)"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class SmallLine:
    """The values of a line; None where there are none."""

    name: str
    values: list[float | None]

    @property
    def most(self) -> float:
        return max(value for value in self.values if value is not None)


@dataclass(frozen=True, slots=True)
class SmallChart:
    """One chart, whose lines have a value at each step."""

    name: str
    unit: Unit
    lines: list[SmallLine]
    problem: str = ""
    """Why it has no lines."""
    devices: list[SmallLine] = field(default_factory=list)
    """Each of several GPUs, by the address of its node and its number."""
    processes: list[tuple[str, float]] = field(default_factory=list)
    """The titles of processes that used most of it, and the bytes that each used at most."""


def steps(start_ms: int, end_ms: int) -> Times:
    """The moments at which the lines have values."""
    step = max(-(-(end_ms - start_ms) // MOST_STEPS), _SHORTEST_STEP)
    return np.arange(start_ms, end_ms + 1, step, dtype=np.int64)


def small_charts(found: Recorded, times: Times) -> Iterator[SmallChart]:
    """The charts that have values. All queries together may take as long as one request may."""
    is_overdue = limits().is_overdue
    for chart in CHARTS:
        try:
            drawn = _chart(found, chart, times, is_overdue)
        except PromQLError as error:
            drawn = SmallChart(chart.name, chart.unit, [], str(error))
        if drawn is not None:
            yield drawn


def _chart(found: Recorded, chart: _Chart, times: Times, is_overdue: Callable[[], bool]) -> SmallChart | None:
    lines = [line for query in chart.queries if (line := _line(found, query, times, is_overdue)) is not None]
    if not lines:
        return None
    if len(lines) == 2 and lines[0].values == lines[1].values and chart.unit == "%":  # a single node, or GPU
        lines = [SmallLine("", lines[0].values)]
    devices = _devices(found, chart.of_device, times, is_overdue) if chart.of_device else []
    processes = _processes(found, times, is_overdue) if chart.name == GPU_MEMORY else []
    return SmallChart(chart.name, chart.unit, lines, devices=devices, processes=processes)


def _devices(found: Recorded, promql: str, times: Times, is_overdue: Callable[[], bool]) -> list[SmallLine]:
    """A line for each GPU, if there are several and not too many to tell apart."""
    query = f"max by (instance, GpuIndex) ({promql})"
    value = evaluate(found.reader, query, times, Limits(is_overdue=is_overdue))
    if not isinstance(value, Vector) or not 1 < len(value) <= MOST_DEVICES:
        return []
    lines = (
        _drawn(f"{labels.get('instance', '').rpartition(':')[0]} GPU {labels.get('GpuIndex', '')}", value, number)
        for number, labels in enumerate(value.labels)
    )
    return sorted((line for line in lines if line is not None), key=lambda line: line.name)


def _processes(found: Recorded, times: Times, is_overdue: Callable[[], bool]) -> list[tuple[str, float]]:
    used = evaluate(found.reader, _BY_PROCESS, times, Limits(is_overdue=is_overdue))
    if not isinstance(used, Vector) or not len(used):
        return []
    most = np.where(used.present & np.isfinite(used.values), used.values, 0).max(axis=1)
    order = np.argsort(-most, kind="stable")[:MOST_PROCESSES].tolist()
    return [(used.labels[place].get("Component", ""), float(most[place])) for place in order if most[place] > 0]


def _line(found: Recorded, query: _Query, times: Times, is_overdue: Callable[[], bool]) -> SmallLine | None:
    value = evaluate(found.reader, query.promql, times, Limits(is_overdue=is_overdue))
    if not isinstance(value, Vector) or not len(value):
        return None
    return _drawn(query.name, value, 0)


def _drawn(name: str, vector: Vector, number: int) -> SmallLine | None:
    """A series as a line; None if it has no value that can be drawn."""
    values = vector.values[number]
    shown = vector.present[number] & np.isfinite(values)
    if not shown.any():
        return None
    pairs = zip(values.tolist(), shown.tolist(), strict=True)
    return SmallLine(name, [each if is_shown else None for each, is_shown in pairs])
