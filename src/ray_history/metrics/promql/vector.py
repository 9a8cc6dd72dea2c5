"""Series with a value at each step, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ray_history.metrics.exposition import NAME_LABEL

from .errors import QueryFailed

Labels: TypeAlias = Mapping[str, str]
Floats: TypeAlias = NDArray[np.float64]
Times: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Positions: TypeAlias = NDArray[np.intp]
LabelKey: TypeAlias = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Row:
    """One series at all steps."""

    labels: Labels
    values: Floats
    present: Bools
    """Where it has a value: NaN is one, too."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Some series at all steps. `values` and `present` have a row for each series and a column for each step."""

    labels: Sequence[Labels]
    values: Floats
    present: Bools

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self) -> Iterable[Row]:
        return map(Row, self.labels, self.values, self.present)

    def with_values(self, values: Floats) -> Vector:
        """The same series without their names, because their values mean something else."""
        return unique(Vector([without_name(labels) for labels in self.labels], values, self.present))


def at_any(present: Bools, axis: int = 0) -> Bools:
    """Where any row, or any step if `axis` is 1, has a value."""
    return np.asarray(present.any(axis=axis))


def key(labels: Labels) -> LabelKey:
    return frozenset(labels.items())


def without_name(labels: Labels) -> Labels:
    return without(labels, (NAME_LABEL,)) if NAME_LABEL in labels else labels


def without(labels: Labels, names: Iterable[str]) -> Labels:
    left_out = set(names)
    return {name: value for name, value in labels.items() if name not in left_out}


def only(labels: Labels, names: Iterable[str]) -> Labels:
    wanted = set(names)
    return {name: value for name, value in labels.items() if name in wanted}


def stacked(rows: Iterable[Row], steps: int) -> Vector:
    """A vector of those rows that have a value at all."""
    found = [row for row in rows if row.present.any()]
    if not found:
        return Vector([], np.zeros((0, steps)), np.zeros((0, steps), np.bool_))
    return Vector(
        [row.labels for row in found], np.stack([row.values for row in found]), np.stack([row.present for row in found])
    )


def unique(vector: Vector) -> Vector:
    """Series with the same labels become one, which is an error if two of them have a value at the same step."""
    keys = [key(labels) for labels in vector.labels]
    if len(set(keys)) == len(keys):
        return vector
    merged = dict[LabelKey, Row]()
    for label_key, row in zip(keys, vector.rows(), strict=True):
        first = merged.get(label_key)
        if first is None:
            merged[label_key] = row
        elif (first.present & row.present).any():
            raise QueryFailed("vector cannot contain metrics with the same labelset")
        else:
            values = np.where(row.present, row.values, first.values)
            merged[label_key] = Row(first.labels, values, first.present | row.present)
    return stacked(merged.values(), vector.values.shape[1])
