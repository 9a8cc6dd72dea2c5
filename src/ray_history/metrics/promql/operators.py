"""Operators between two vectors, or a vector and a number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ray_history.metrics.exposition import NAME_LABEL

from .errors import QueryFailed
from .limits import Limits
from .vector import Bools, Floats, LabelKey, Labels, Row, Vector, key, only, stacked, unique, without, without_name

Value: TypeAlias = Vector | Floats

ARITHMETIC: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISONS: Mapping[str, Callable[[Floats, Floats], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
SET_OPERATORS = ("and", "or", "unless")


@dataclass(frozen=True, slots=True)
class Matching:
    """Which series of two vectors belong together: `on (...)`, `ignoring (...)`, `group_left (...)`."""

    is_on: bool = False
    labels: tuple[str, ...] = ()
    many_side: str = ""
    """The side, "left" or "right", of which several series may belong to one of the other."""
    copied: tuple[str, ...] = ()
    """Labels that the result takes from the other side."""

    def key(self, labels: Labels) -> LabelKey:
        return key(only(labels, self.labels) if self.is_on else without(labels, (*self.labels, NAME_LABEL)))


def with_number(operator: str, left: Value, right: Value, *, as_bool: bool) -> Value:
    """An operator of which at least one side is a number."""
    left_values = left.values if isinstance(left, Vector) else left
    right_values = right.values if isinstance(right, Vector) else right
    vector = left if isinstance(left, Vector) else right
    if operator in ARITHMETIC:
        values = ARITHMETIC[operator](left_values, right_values)
        return vector.with_values(values) if isinstance(vector, Vector) else values
    holds = COMPARISONS[operator](left_values, right_values)
    if not isinstance(vector, Vector):
        return holds.astype(np.float64)
    if as_bool:
        return vector.with_values(holds.astype(np.float64))
    return Vector(vector.labels, vector.values, vector.present & holds)


def combined(operator: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """A set operator."""
    steps = left.values.shape[1]
    none = np.zeros(steps, np.bool_)
    if operator == "or":
        there = _present(left, matching)
        added = (Row(r.labels, r.values, r.present & ~there.get(matching.key(r.labels), none)) for r in right.rows())
        return unique(stacked([*left.rows(), *added], steps))
    there = _present(right, matching)
    kept = []
    for row in left.rows():
        other = there.get(matching.key(row.labels), none)
        kept.append(Row(row.labels, row.values, row.present & (other if operator == "and" else ~other)))
    return stacked(kept, steps)


def _present(vector: Vector, matching: Matching) -> dict[LabelKey, Bools]:
    """Where any series of each group has a value."""
    there = dict[LabelKey, Bools]()
    for row in vector.rows():
        group = matching.key(row.labels)
        there[group] = there[group] | row.present if group in there else row.present
    return there


def of_vectors(
    operator: str, left: Vector, right: Vector, matching: Matching, limits: Limits, *, as_bool: bool
) -> Vector:
    """An arithmetic operator or a comparison of two vectors."""
    steps = left.values.shape[1]
    swapped = matching.many_side == "right"
    many, one = (right, left) if swapped else (left, right)
    others = _single_side(one, matching)
    rows, used = list[Row](), defaultdict[tuple[LabelKey, LabelKey], list[Bools]](list)
    for row in many.rows():
        limits.check_cells(len(rows), steps)
        for other in others.get(matching.key(row.labels), ()):
            result = _operate(operator, row, other, swapped=swapped, as_bool=as_bool)
            labels = _result_labels(row.labels, other.labels, matching, drops_name=operator in ARITHMETIC or as_bool)
            _check_single(used[matching.key(row.labels), key(labels)], row.present & other.present)
            rows.append(Row(labels, result.values, result.present))
    return unique(stacked(rows, steps))


def _single_side(vector: Vector, matching: Matching) -> Mapping[LabelKey, Sequence[Row]]:
    """The series of the side with one series for each group at each step."""
    groups = defaultdict[LabelKey, list[Row]](list)
    for row in vector.rows():
        group = groups[matching.key(row.labels)]
        if any((other.present & row.present).any() for other in group):
            side = "left" if matching.many_side == "right" else "right"
            raise QueryFailed(
                f"found duplicate series for the match group {dict(matching.key(row.labels))} on the {side} hand-side "
                "of the operation; many-to-many matching not allowed: matching labels must be unique on one side"
            )
        group.append(row)
    return groups


def _check_single(seen: list[Bools], present: Bools) -> None:
    if any((other & present).any() for other in seen):
        raise QueryFailed("multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)")
    seen.append(present)


def _operate(operator: str, row: Row, other: Row, *, swapped: bool, as_bool: bool) -> Row:
    left, right = (other, row) if swapped else (row, other)
    present = left.present & right.present
    if operator in ARITHMETIC:
        return Row({}, ARITHMETIC[operator](left.values, right.values), present)
    holds = COMPARISONS[operator](left.values, right.values)
    if as_bool:
        return Row({}, holds.astype(np.float64), present)
    return Row({}, left.values, present & holds)


def _result_labels(labels: Labels, other: Labels, matching: Matching, *, drops_name: bool) -> Labels:
    result = dict(without_name(labels) if drops_name else labels)
    if not matching.many_side:
        return only(result, matching.labels) if matching.is_on else without(result, matching.labels)
    for name in matching.copied:
        if name in other:
            result[name] = other[name]
        else:
            result.pop(name, None)
    return result


def negated(value: Value) -> Value:
    return value.with_values(-value.values) if isinstance(value, Vector) else -value


def scalar_of(vector: Vector) -> Floats:
    """The value of the only series at each step; NaN where there are none or several."""
    alone = vector.present.sum(axis=0) == 1
    return np.where(alone, np.where(vector.present, vector.values, 0.0).sum(axis=0), np.nan)


def filled(number: Floats) -> Iterator[Row]:
    """A number as a series without labels."""
    yield Row({}, number, np.ones(len(number), np.bool_))
