"""Computes a panel: the values of its queries at the steps of a chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ray_history.metrics.promql.errors import BadQuery, PromQLError
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.operators import filled
from ray_history.metrics.promql.samples import SampleReader
from ray_history.metrics.promql.vector import Row, Times, Vector, stacked

from .dashboard import Panel, Target
from .names import series_name
from .overrides import Matching, Style, styles
from .variables import filled_in

MAX_SERIES = 200
"""Of one chart; those with the largest values are drawn."""
_BOUND = "le"


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart, with None where it has no value."""

    name: str
    values: Sequence[float | None]
    style: Style


@dataclass(frozen=True, slots=True)
class Chart:
    """What a panel shows."""

    times: Times
    series: Sequence[Series]
    left_out: int
    """Series beyond the limit."""
    problems: Sequence[str]
    """Queries that have no answer, each with the reason."""


@dataclass(frozen=True, slots=True)
class ChartMaker:
    """Computes panels of one session."""

    reader: SampleReader
    matching: Matching
    limits: Callable[[], Limits]
    """Limits for one query."""

    def chart(self, panel: Panel, texts: Mapping[str, str], times: Times) -> Chart:
        if panel.problem:
            return Chart(times, (), 0, (panel.problem,))
        if panel.kind == "bars" or (panel.targets and all(target.is_instant for target in panel.targets)):
            times = times[-1:]
        found, problems = list[tuple[str, Row]](), list[str]()
        for target in panel.targets:
            if target.hide or not target.expr.strip():
                continue
            try:
                found += self._series(target, texts, times)
            except PromQLError as error:
                problems.append(f"Query {target.ref_id}: {error}")
        left_out = max(0, len(found) - MAX_SERIES)
        if left_out:
            found = _largest(found)
        names = [name for name, _ in found]
        try:
            drawn = styles(panel.overrides, names, self.matching)
        except ValueError as error:
            problems.append(f"Overrides of series: {error}")
            drawn = [Style()] * len(names)
        series = [Series(name, _values(row), style) for (name, row), style in zip(found, drawn, strict=True)]
        return Chart(times, series, left_out, problems)

    def _series(self, target: Target, texts: Mapping[str, str], times: Times) -> Iterator[tuple[str, Row]]:
        """The series of a query with their names."""
        query, template = filled_in(target.expr, texts), filled_in(target.legend_format or "", texts)
        moments = times[-1:] if target.is_instant else times
        value = evaluate(self.reader, query, moments, self.limits())
        if isinstance(value, str):
            raise BadQuery("a text cannot be drawn")
        vector = value if isinstance(value, Vector) else stacked(filled(value), len(moments))
        if len(moments) < len(times):
            vector = _at_the_end(vector, len(times))
        rows = [row for row in vector.rows() if row.present.any()]
        for row in _each_bucket(rows) if target.format == "heatmap" else rows:
            yield series_name(template, row.labels, query), row


def _at_the_end(vector: Vector, steps: int) -> Vector:
    """A vector of one moment among series of many: at the last step."""
    missing = ((0, 0), (steps - 1, 0))
    return Vector(vector.labels, np.pad(vector.values, missing), np.pad(vector.present, missing))


def _each_bucket(rows: Sequence[Row]) -> Iterator[Row]:
    """The observations in each bucket of a histogram, whose own values are those up to each bound."""
    below: Row | None = None
    for row in sorted(rows, key=lambda row: _bound(row.labels.get(_BOUND, ""))):
        values = row.values if below is None else row.values - np.where(below.present, below.values, 0)
        yield Row(row.labels, np.maximum(values, 0), row.present)
        below = row


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def _largest(found: Sequence[tuple[str, Row]]) -> list[tuple[str, Row]]:
    """The series with the largest values, in the order of their queries."""
    sizes = [float(np.max(np.where(row.present, np.nan_to_num(row.values), -np.inf))) for _, row in found]
    kept = sorted(range(len(found)), key=lambda number: -sizes[number])[:MAX_SERIES]
    return [found[number] for number in sorted(kept)]


def _values(row: Row) -> list[float | None]:
    shown = row.present & np.isfinite(row.values)
    return [value if is_shown else None for value, is_shown in zip(row.values.tolist(), shown.tolist(), strict=True)]
