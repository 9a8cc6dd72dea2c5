"""Functions of instant vectors that compute each value from itself, or change labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

import duckdb
import numpy as np

from ray_history.metrics.exposition import NAME_LABEL

from .errors import QueryFailed
from .vector import Floats, Labels, Vector, unique

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_GROUP = re.compile(r"\$(?:\$|(\d+)|\{(\d+)\})")

MATH: Mapping[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "sgn": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "deg": np.rad2deg,
    "rad": np.deg2rad,
}


def rounded(values: Floats, to: Floats) -> Floats:
    inverse = 1.0 / to
    return np.floor(values * inverse + 0.5) / inverse


def clamped(vector: Vector, lowest: Floats | float, highest: Floats | float) -> Vector:
    result = vector.with_values(np.maximum(np.minimum(vector.values, highest), lowest))
    present = result.present & np.broadcast_to(np.less_equal(lowest, highest), result.present.shape)
    return Vector(result.labels, result.values, present)


def ordered(vector: Vector, *, descending: bool = False) -> Vector:
    """The series in the order of their last values: in a query of one moment, of their only ones."""
    last = vector.values[:, -1]
    order = np.argsort(-last if descending else last, kind="stable")
    return Vector([vector.labels[number] for number in order], vector.values[order], vector.present[order])


def label_replace(vector: Vector, target: str, replacement: str, source: str, pattern: str) -> Vector:
    """Set a label to a text with groups of a regular expression that matches another label, where it matches."""
    _check_label(target)
    values = sorted({labels.get(source, "") for labels in vector.labels})
    replaced = _replaced(values, pattern, replacement)
    return unique(
        Vector(
            [_with_label(labels, target, replaced.get(labels.get(source, ""))) for labels in vector.labels],
            vector.values,
            vector.present,
        )
    )


def label_join(vector: Vector, target: str, separator: str, sources: list[str]) -> Vector:
    _check_label(target)
    joined = [separator.join(labels.get(source, "") for source in sources) for labels in vector.labels]
    labels = [_with_label(each, target, value) for each, value in zip(vector.labels, joined, strict=True)]
    return unique(Vector(labels, vector.values, vector.present))


def _check_label(name: str) -> None:
    if not _LABEL_NAME.fullmatch(name):
        raise QueryFailed(f"invalid destination label name: {name}")


def _with_label(labels: Labels, name: str, value: str | None) -> Labels:
    if value is None:
        return labels
    changed = {**labels, name: value}
    if not value:
        del changed[name]
    return changed


def _replaced(values: list[str], pattern: str, replacement: str) -> dict[str, str]:
    """The replacement for each value that the pattern matches as a whole; by RE2, in linear time."""
    # `\1` is RE2's way to write a group.
    template = _GROUP.sub(
        lambda found: "$" if found[0] == "$$" else f"\\{found[1] or found[2]}", replacement.replace("\\", r"\\")
    )
    query = """
        select value, regexp_replace(value, '^(?:' || $2 || ')$', $3, 's') from (select unnest($1::varchar[]) as value)
        where regexp_full_match(value, $2, 's')
    """
    try:
        with _database().cursor() as cursor:
            return dict(cursor.execute(query, [values, pattern, template]).fetchall())
    except duckdb.Error as error:
        raise QueryFailed(f"invalid regular expression or replacement in label_replace(): {error}") from error


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """A database without tables. Making one takes ten times as long as a query."""
    return duckdb.connect(config={"threads": 1, "enable_external_access": False, "lock_configuration": True})


def absent_labels(matches: list[tuple[str, str]]) -> dict[str, str]:
    """The labels of the series that `absent` makes, from the label matchers `=` of its selector."""
    names = [name for name, _ in matches]
    return {name: value for name, value in matches if name != NAME_LABEL and names.count(name) == 1}
