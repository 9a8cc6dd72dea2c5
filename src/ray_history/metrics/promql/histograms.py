"""`histogram_quantile` of classic histograms: series with their upper bounds in the label `le`."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ray_history.metrics.exposition import NAME_LABEL

from .vector import Floats, LabelKey, Row, Vector, at_any, key, stacked, without

BOUND = "le"


def histogram_quantile(shares: Floats, vector: Vector) -> Vector:
    """The value below which `shares` of what each histogram counted are, interpolated within its bucket."""
    histograms = defaultdict[LabelKey, list[tuple[float, Row]]](list)
    for row in vector.rows():
        try:
            bound = float(row.labels.get(BOUND, ""))
        except ValueError:
            continue
        histograms[key(without(row.labels, (BOUND, NAME_LABEL)))].append((bound, row))
    rows = [_quantile(shares, dict(labels), buckets) for labels, buckets in histograms.items()]
    return stacked(rows, len(shares))


def _quantile(shares: Floats, labels: dict[str, str], buckets: list[tuple[float, Row]]) -> Row:
    buckets.sort(key=lambda bucket: bucket[0])
    bounds = np.array([bound for bound, _ in buckets])
    counts = np.stack([row.values for _, row in buckets])
    present = np.stack([row.present for _, row in buckets])
    found = np.full(len(shares), np.nan)
    # At most steps, all buckets have a value: steps that have the same ones are computed at once.
    patterns, of_step = np.unique(present, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        steps = of_step.ravel() == number
        found[steps] = _at_steps(shares[steps], bounds[pattern], counts[pattern][:, steps])
    return Row(labels, found, at_any(present))


def _at_steps(shares: Floats, bounds: Floats, counts: Floats) -> Floats:
    bounds, counts = _without_equal_bounds(bounds, counts)
    if len(bounds) < 2 or bounds[-1] != np.inf:
        return np.full(len(shares), np.nan)
    counts = np.fmax.accumulate(counts, axis=0)  # scraped at slightly different times, counts may decrease
    total = counts[-1]
    rank = shares * total
    reached = counts[:-1] >= rank
    bucket = np.where(reached.any(axis=0), np.argmax(reached, axis=0), len(bounds) - 1)
    inside = np.minimum(bucket, len(bounds) - 2)
    before = np.maximum(inside - 1, 0)
    below = np.where(inside > 0, _row_of_each(counts, before), 0.0)
    start = np.where(inside > 0, bounds[before], 0.0)
    value = start + (bounds[inside] - start) * ((rank - below) / (_row_of_each(counts, inside) - below))
    value = np.where((bucket == 0) & (bounds[0] <= 0), bounds[0], value)
    value = np.where(bucket == len(bounds) - 1, bounds[-2], value)
    value = np.where((total == 0) | np.isnan(total) | np.isnan(shares), np.nan, value)
    return np.where(shares < 0, -np.inf, np.where(shares > 1, np.inf, value))


def _without_equal_bounds(bounds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    distinct, first = np.unique(bounds, return_index=True)
    return (bounds, counts) if len(distinct) == len(bounds) else (distinct, np.add.reduceat(counts, first, axis=0))


def _row_of_each(counts: Floats, rows: NDArray[np.intp]) -> Floats:
    """From each column, the value in its row."""
    return np.asarray(np.take_along_axis(counts, rows[None], axis=0)[0])
