"""Reads series and samples from the tables `series` and `metrics` of a session."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb
import numpy as np
from numpy.typing import NDArray

from .errors import QueryFailed
from .limits import Limits
from .matchers import Selection, condition
from .vector import Floats, Labels, Times, Vector, at_any

LOOKBACK = 300_000
"""How long a sample is the value of its series if no other follows, in ms."""

_SCRAPE_INTERVAL = 15_000
_SAMPLES_AT_ONCE = 2_000_000
_CACHED_SERIES = 50_000
"""Of all selections that are remembered: some 50 MB."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series that a selector found."""

    number: int
    labels: Labels


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one series, without its ends."""

    labels: Labels
    times: Times
    values: Floats


@dataclass(frozen=True, slots=True)
class _LastSamples:
    """The last sample of series before steps, column by column."""

    series: NDArray[Any]
    step: NDArray[Any]
    time: NDArray[Any]
    value: np.ma.MaskedArray[Any, Any]
    """Masked where the series ended."""
    samples: int
    """How many were read for it."""


class Database(Protocol):
    """Runs SQL."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result."""

    def arrays(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, NDArray[Any]]:
        """The columns of a large result."""


class SampleReader:
    """Reads `series(series_id, name, labels)` and `metrics(series_id, time_ms, value)`. For many threads."""

    def __init__(self, database: Database, *, series: str, metrics: str, few_samples: int = 500_000) -> None:
        """`series` and `metrics` are SQL for the relations, the second in the order of series and times. Up to
        `few_samples` are read as they are: planning a smaller question takes longer than the rest."""
        self.database, self._series, self._metrics = database, series, metrics
        self._few_samples = few_samples
        self._lock = threading.Lock()
        self._selections = dict[Selection, list[Series]]()

    def select(self, matches: Selection, limits: Limits) -> list[Series]:
        """The series of a selector, in the order of their numbers."""
        found = self._selections.get(matches)
        if found is None:
            where, parameters = condition(matches)
            query = f"select series_id, name, labels from {self._series} where {where} order by series_id limit ?"
            rows = self._rows(query, [*parameters, limits.max_series + 1])
            found = [Series(number, {"__name__": name, **labels}) for number, name, labels in rows]
            limits.check_series(len(found))
            with self._lock:
                self._selections[matches] = found
                while sum(map(len, self._selections.values())) > _CACHED_SERIES or len(self._selections) > 1_000:
                    self._selections.pop(next(iter(self._selections)))
        limits.check_series(len(found))
        return found

    def latest(self, matches: Selection, times: Times, limits: Limits) -> Vector:
        """The value of each series at each of `times`, which are equally far apart."""
        series = self.select(matches, limits)
        limits.check_cells(len(series), len(times))
        values = np.full((len(series), len(times)), np.nan)
        is_end = np.zeros(values.shape, np.bool_)
        since = np.full(values.shape, np.iinfo(np.int64).min)
        start, end = int(times[0]), int(times[-1])
        step = int(times[1]) - start if len(times) > 1 else 1
        for part in _parts(series, end - start + LOOKBACK):
            found = self._last_before(part, start, end, step)
            limits.count_samples(found.samples)
            rows = np.searchsorted([each.number for each in series], found.series)
            values[rows, found.step] = found.value.filled(np.nan)
            is_end[rows, found.step] = found.value.mask
            since[rows, found.step] = found.time
        columns = np.maximum.accumulate(np.where(since > np.iinfo(np.int64).min, np.arange(len(times)), 0), axis=1)
        values = np.take_along_axis(values, columns, 1)
        present = (np.take_along_axis(since, columns, 1) > times - LOOKBACK) & ~np.take_along_axis(is_end, columns, 1)
        shown = at_any(present, axis=1)
        labels = [each.labels for each, has_values in zip(series, shown, strict=True) if has_values]
        return Vector(labels, values[shown], present[shown])

    def _last_before(self, part: Sequence[Series], start: int, end: int, step: int) -> _LastSamples:
        """The last sample of each series before each step."""
        numbers = np.array([each.number for each in part])
        first, last = int(numbers[0]), int(numbers[-1])
        if (last - first + 1) * ((end - start + LOOKBACK) // _SCRAPE_INTERVAL + 1) <= self._few_samples:
            query = f"""
                select series_id, time_ms, value from {self._metrics}
                where series_id between ? and ? and time_ms > ? and time_ms <= ?
            """
            return _last_of(self._columns(query, [first, last, start - LOOKBACK, end]), numbers, start, step)
        # Of many samples, DuckDB finds the last ones without a copy of all.
        query = f"""
            select series_id, greatest((time_ms - {start} + {step} - 1) // {step}, 0) as step,
                arg_max_null(value, time_ms) as value, max(time_ms) as time, count(*) as samples
            from {self._metrics}
            where series_id between ? and ? and series_id in (select unnest(?::integer[]))
                and time_ms > {start - LOOKBACK} and time_ms <= {end}
            group by all
        """
        found = self._columns(query, [first, last, numbers.tolist()])
        samples = int(found["samples"].sum())
        return _LastSamples(found["series_id"], found["step"], found["time"], found["value"], samples)

    def between(self, matches: Selection, start: int, end: int, limits: Limits) -> Iterator[Samples]:
        """The samples of each series from `start` to `end`, both included."""
        query = f"""
            select series_id, time_ms, value from {self._metrics}
            where series_id between ? and ? and series_id in (select unnest(?::integer[])) and time_ms between ? and ?
            order by series_id, time_ms
        """
        for part in _parts(self.select(matches, limits), end - start):
            numbers = [each.number for each in part]
            found = self._columns(query, [numbers[0], numbers[-1], numbers, start, end])
            limits.count_samples(len(found["time_ms"]))
            borders = np.searchsorted(found["series_id"], [*numbers, numbers[-1] + 1])
            for each, first, last in zip(part, borders[:-1], borders[1:], strict=True):
                values = found["value"][first:last]
                times = found["time_ms"][first:last][~values.mask]
                if len(times):
                    yield Samples(each.labels, times, values.compressed())

    def label_names(self) -> list[str]:
        query = f"select distinct unnest(map_keys(labels)) as label from {self._series} order by label"
        return sorted(["__name__", *(label for (label,) in self._rows(query, []))])

    def label_values(self, label: str, matches: Selection | None = None) -> list[str]:
        where, parameters = condition(matches or ())
        value, names = ("name", []) if label == "__name__" else ("labels[?]", [label])
        query = f"select distinct {value} as value from {self._series} where {where} order by value"
        return [value for (value,) in self._rows(query, [*names, *parameters]) if value is not None]

    def _rows(self, query: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        try:
            return self.database.rows(query, parameters)
        except duckdb.InvalidInputException as error:
            raise QueryFailed(f"invalid regular expression: {error}") from error

    def _columns(self, query: str, parameters: Sequence[object]) -> dict[str, Any]:
        found = self.database.arrays(query, parameters)
        # Of a column without NULL, DuckDB makes an array without a mask.
        found["value"] = np.ma.array(found["value"], mask=np.ma.getmaskarray(found["value"]))
        return found


def _last_of(found: dict[str, Any], numbers: NDArray[Any], start: int, step: int) -> _LastSamples:
    """The last sample before each step, of those that are ordered by series and time."""
    series, times, values = found["series_id"], found["time_ms"], found["value"]
    wanted = np.isin(series, numbers)
    if not wanted.all():
        series, times, values = series[wanted], times[wanted], values[wanted]
    steps = np.maximum((times - start + step - 1) // step, 0)
    is_last = np.ones(len(series), np.bool_)
    is_last[:-1] = (series[1:] != series[:-1]) | (steps[1:] != steps[:-1])
    return _LastSamples(series[is_last], steps[is_last], times[is_last], values[is_last], len(series))


def _parts(series: Sequence[Series], duration: int) -> Iterator[Sequence[Series]]:
    """Parts of the series that have about as many samples as may be in memory at once."""
    size = max(1, _SAMPLES_AT_ONCE // (max(duration, 0) // _SCRAPE_INTERVAL + 1))
    for first in range(0, len(series), size):
        yield series[first : first + size]
