"""Functions of ranges: one value from the samples of the last minutes, at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .vector import Bools, Floats, Labels, Positions, Times

_EXTRAPOLATED_GAP = 1.1
"""A gap at the border of a range that is longer than this many usual distances is not the series' own."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The ranges of one series that end at each step: `times[first[i]:end[i]]` are in the i-th."""

    labels: Labels
    times: Times
    values: Floats
    first: Positions
    end: Positions
    starts_at: Times
    """The first moment of each range, in ms."""
    ends_at: Times

    @classmethod
    def of(cls, labels: Labels, times: Times, values: Floats, ends_at: Times, length: int) -> Windows:
        starts_at = ends_at - length
        first, end = np.searchsorted(times, starts_at, "left"), np.searchsorted(times, ends_at, "right")
        return cls(labels, times, values, first, end, starts_at, ends_at)

    @property
    def count(self) -> Positions:
        return self.end - self.first

    def seconds(self) -> Floats:
        return (self.ends_at - self.starts_at) / 1000


@dataclass(frozen=True, slots=True)
class RangeFunction:
    """A function of a range."""

    compute: Callable[[Windows], Floats]
    """Its value for each range; for those with too few samples, anything."""
    at_least: int = 1
    """Samples without which it has no value."""
    keeps_name: bool = False

    def present(self, windows: Windows) -> Bools:
        return windows.count >= self.at_least


def _edges(windows: Windows) -> tuple[Positions, Positions]:
    """Positions of the first and last sample of each range; valid ones also for empty ranges."""
    last = len(windows.times) - 1
    return np.minimum(windows.first, last), np.clip(windows.end - 1, 0, last)


def _extreme(operation: np.ufunc, windows: Windows) -> Floats:
    first, last = _edges(windows)
    if (windows.first == windows.first[0]).all():
        # The ranges only grow: this is what a range as long as a session comes to.
        return np.asarray(operation.accumulate(windows.values[first[0] :])[np.maximum(last - first[0], 0)])
    return _reduced(operation, windows.values, first, last + 1)


def _reduced(operation: np.ufunc, values: Floats, first: Positions, end: Positions) -> Floats:
    """Reduce `values[first[i]:end[i]]` for each i; for an empty range, anything."""
    padded = np.append(values, 0.0)  # the end of a range may be behind the last value
    borders = np.stack([first, np.maximum(end, first + 1)], axis=1).ravel()
    return np.asarray(operation.reduceat(padded, np.minimum(borders, len(values)))[::2])


def _each(windows: Windows, compute: Callable[[Floats, Floats], float]) -> Floats:
    """Compute a value from the times, in seconds before its end, and the values of each range."""
    found = np.full(len(windows.first), np.nan)
    for step, (first, end, moment) in enumerate(zip(windows.first, windows.end, windows.ends_at, strict=True)):
        if end > first:
            found[step] = compute((windows.times[first:end] - moment) / 1000, windows.values[first:end])
    return found


def _sum(windows: Windows) -> Floats:
    first, last = _edges(windows)
    return _reduced(np.add, windows.values, first, last + 1)


def _mean(windows: Windows) -> Floats:
    return _sum(windows) / windows.count


def _variance(windows: Windows) -> Floats:
    return _each(windows, lambda _, values: float(np.var(values)))


def _last(windows: Windows) -> Floats:
    return windows.values[_edges(windows)[1]]


def _increase(windows: Windows, *, is_counter: bool = True, per: Floats | float = 1.0) -> Floats:
    """The difference between both ends of each range, extrapolated to its borders as Prometheus does."""
    first, last = _edges(windows)
    values, times = windows.values, windows.times
    difference = values[last] - values[first]
    if is_counter:
        # Summed for each range: differences of running sums would lose the small ones.
        lost = np.append(0.0, np.where(values[1:] < values[:-1], values[:-1], 0.0))
        difference = difference + np.where(last > first, _reduced(np.add, lost, first + 1, last + 1), 0.0)
    sampled = (times[last] - times[first]) / 1000
    distance = sampled / (windows.count - 1)
    to_start, to_end = (times[first] - windows.starts_at) / 1000, (windows.ends_at - times[last]) / 1000
    if is_counter:
        # A counter was not below zero before its first sample.
        to_zero = sampled * (values[first] / difference)
        reaches_zero = (difference > 0) & (values[first] >= 0) & (to_zero < to_start)
        to_start = np.where(reaches_zero, to_zero, to_start)
    threshold = distance * _EXTRAPOLATED_GAP
    covered = sampled + np.where(to_start < threshold, to_start, distance / 2)
    covered = covered + np.where(to_end < threshold, to_end, distance / 2)
    return difference * (covered / sampled / per)


def _rate(windows: Windows) -> Floats:
    return _increase(windows, per=windows.seconds())


def _delta(windows: Windows) -> Floats:
    return _increase(windows, is_counter=False)


def _last_two(windows: Windows) -> tuple[Floats, Floats, Floats]:
    """The last two values of each range, and the seconds between them."""
    _, last = _edges(windows)
    before = np.maximum(last - 1, 0)
    values, times = windows.values, windows.times
    return values[before], values[last], (times[last] - times[before]) / 1000


def _idelta(windows: Windows) -> Floats:
    before, last, _ = _last_two(windows)
    return last - before


def _irate(windows: Windows) -> Floats:
    before, last, seconds = _last_two(windows)
    return np.where(last < before, last, last - before) / seconds


def _count_between(windows: Windows, happened: Bools) -> Floats:
    """How often something happened from one sample to the next within each range."""
    first, last = _edges(windows)
    total = np.concatenate([[0.0], happened.cumsum()])
    return np.asarray(total[last] - total[first])


def _changes(windows: Windows) -> Floats:
    values = windows.values
    return _count_between(windows, (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1])))


def _number_of_resets(windows: Windows) -> Floats:
    return _count_between(windows, windows.values[1:] < windows.values[:-1])


def _line(times: Floats, values: Floats) -> tuple[float, float]:
    """Slope per second, and value at time 0, of a straight line through the samples."""
    if (values == values[0]).all():
        return 0.0, float(values[0])
    mean_time, mean = times.mean(), values.mean()
    distances = times - mean_time
    slope = float(np.sum(distances * (values - mean)) / np.sum(distances * distances))
    return slope, float(mean - slope * mean_time)


def predicted(windows: Windows, seconds: Floats) -> Floats:
    """The value of each range some seconds after its end, if it goes on along a straight line."""
    lines = [
        _line((windows.times[first:end] - moment) / 1000, windows.values[first:end])
        if end > first
        else (np.nan, np.nan)
        for first, end, moment in zip(windows.first, windows.end, windows.ends_at, strict=True)
    ]
    return np.array([at_end + slope * ahead for (slope, at_end), ahead in zip(lines, seconds, strict=True)])


def quantiles(windows: Windows, shares: Floats) -> Floats:
    ranges = zip(windows.first, windows.end, shares, strict=True)
    return np.array([quantile_of(windows.values[first:end], share) for first, end, share in ranges])


def quantile_of(values: Floats, share: float) -> float:
    if np.isnan(share) or not len(values):
        return float("nan")
    if not 0 <= share <= 1:
        return float("inf") if share > 1 else float("-inf")
    ordered = np.sort(values)
    rank = share * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    weight = rank - below
    return float(ordered[below] * (1 - weight) + ordered[above] * weight)


RANGE_FUNCTIONS: Mapping[str, RangeFunction] = {
    "rate": RangeFunction(_rate, at_least=2),
    "increase": RangeFunction(_increase, at_least=2),
    "delta": RangeFunction(_delta, at_least=2),
    "irate": RangeFunction(_irate, at_least=2),
    "idelta": RangeFunction(_idelta, at_least=2),
    "deriv": RangeFunction(lambda windows: _each(windows, lambda times, values: _line(times, values)[0]), at_least=2),
    "changes": RangeFunction(_changes),
    "resets": RangeFunction(_number_of_resets),
    "avg_over_time": RangeFunction(_mean),
    "sum_over_time": RangeFunction(_sum),
    "min_over_time": RangeFunction(lambda windows: _extreme(np.fmin, windows)),
    "max_over_time": RangeFunction(lambda windows: _extreme(np.fmax, windows)),
    "count_over_time": RangeFunction(lambda windows: windows.count.astype(np.float64)),
    "last_over_time": RangeFunction(_last, keeps_name=True),
    "present_over_time": RangeFunction(lambda windows: np.ones(len(windows.first))),
    "stddev_over_time": RangeFunction(lambda windows: np.sqrt(_variance(windows))),
    "stdvar_over_time": RangeFunction(_variance),
}
"""By the name of the function."""
