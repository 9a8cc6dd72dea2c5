"""Aggregation of the series of a vector into groups: `sum by (...)`, `topk`, ..."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ray_history.metrics.exposition import NAME_LABEL

from .errors import QueryFailed
from .vector import Bools, Floats, LabelKey, Labels, Row, Vector, at_any, key, only, stacked, without
from .windows import quantile_of


def _sum(values: Floats, present: Bools) -> Floats:
    return np.asarray(np.where(present, values, 0.0).sum(axis=0))


def _count(_: Floats, present: Bools) -> Floats:
    return np.asarray(present.sum(axis=0), np.float64)


def _mean(values: Floats, present: Bools) -> Floats:
    return _sum(values, present) / _count(values, present)


def _variance(values: Floats, present: Bools) -> Floats:
    return _mean((values - _mean(values, present)) ** 2, present)


def _extreme(operation: np.ufunc) -> Callable[[Floats, Bools], Floats]:
    return lambda values, present: np.asarray(operation.reduce(np.where(present, values, np.nan), axis=0))


_AGGREGATIONS: Mapping[str, Callable[[Floats, Bools], Floats]] = {
    "sum": _sum,
    "count": _count,
    "avg": _mean,
    "min": _extreme(np.fmin),
    "max": _extreme(np.fmax),
    "group": lambda _, present: np.ones(present.shape[1]),
    "stdvar": _variance,
    "stddev": lambda values, present: np.sqrt(_variance(values, present)),
}


def aggregate(
    operation: str, vector: Vector, labels: Sequence[str], is_without: bool, parameter: Floats | None
) -> Vector:
    """Aggregate the series that have the same `labels`, or that are the same without them."""
    steps = vector.values.shape[1]
    groups = defaultdict[LabelKey, list[int]](list)
    for number, each in enumerate(vector.labels):
        groups[key(_grouping(each, labels, is_without))].append(number)
    if operation in ("topk", "bottomk") and parameter is not None:
        return stacked(_best_of_groups(vector, groups, operation == "topk", parameter), steps)
    if operation == "quantile" and parameter is not None:
        compute = _quantiles(parameter)
    elif operation in _AGGREGATIONS:
        compute = _AGGREGATIONS[operation]
    else:
        raise QueryFailed(f"the aggregation {operation!r} is not supported")
    rows = []
    for group, numbers in groups.items():
        values, present = vector.values[numbers], vector.present[numbers]
        rows.append(Row(dict(group), compute(values, present), at_any(present)))
    return stacked(rows, steps)


def _grouping(labels: Labels, names: Sequence[str], is_without: bool) -> Labels:
    return without(labels, (*names, NAME_LABEL)) if is_without else only(labels, names)


def _quantiles(shares: Floats) -> Callable[[Floats, Bools], Floats]:
    def compute(values: Floats, present: Bools) -> Floats:
        columns = zip(values.T, present.T, shares, strict=True)
        return np.array(
            [quantile_of(column[there], share) if there.any() else np.nan for column, there, share in columns]
        )

    return compute


def _best_of_groups(
    vector: Vector, groups: Mapping[LabelKey, list[int]], largest: bool, counts: Floats
) -> Iterator[Row]:
    """The largest or smallest series of each group at each step; they keep their labels. NaN comes last."""
    worst = -np.inf if largest else np.inf
    for numbers in groups.values():
        values, present = vector.values[numbers], vector.present[numbers]
        comparable = np.where(present & ~np.isnan(values), values, worst)
        # First those that have no value, then NaN, then the others, the best last.
        rank = np.lexsort((comparable if largest else -comparable, present & ~np.isnan(values), present), axis=0)[::-1]
        chosen = np.zeros_like(present)
        np.put_along_axis(chosen, rank, np.arange(len(numbers))[:, None] < counts[None, :], axis=0)
        for number, row in zip(numbers, chosen & present, strict=True):
            yield Row(vector.labels[number], vector.values[number], row)
