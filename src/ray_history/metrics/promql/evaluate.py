"""Walks through a parsed query and computes its value at all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import promql_parser as parser

from .aggregation import aggregate
from .errors import BadQuery, QueryFailed, QueryTooLarge
from .functions import MATH, absent_labels, clamped, label_join, label_replace, ordered, rounded
from .histograms import histogram_quantile
from .limits import MAX_STEPS, Limits
from .matchers import selection
from .operators import (
    ARITHMETIC,
    COMPARISONS,
    SET_OPERATORS,
    Matching,
    combined,
    filled,
    negated,
    of_vectors,
    scalar_of,
    with_number,
)
from .samples import SampleReader
from .syntax import milliseconds, parse
from .vector import Floats, Row, Times, Vector, at_any, stacked, unique, without_name
from .windows import RANGE_FUNCTIONS, RangeFunction, Windows, predicted, quantiles

_SUBQUERY_STEP = 60_000
"""Prometheus' default evaluation interval, in ms."""
_MAX_SUBQUERY_STEPS = 10 * MAX_STEPS
_MAX_DEPTH = 200

Value: TypeAlias = Vector | Floats | str


def evaluate(reader: SampleReader, query: str, times: Times, limits: Limits) -> Value:
    """The value of a query at each of `times`, which are in ms and equally far apart."""
    if len(times) > MAX_STEPS:
        raise BadQuery(
            f"exceeded maximum resolution of {MAX_STEPS:,} points per timeseries. "
            "Try decreasing the query resolution (?step=XX)"
        )
    expression = parse(query)
    if isinstance(expression, parser.MatrixSelector | parser.SubqueryExpr):
        raise BadQuery("a range is no result of its own: use a function such as rate() or last_over_time()")
    with np.errstate(all="ignore"):
        return _Evaluation(reader, times, limits).value(expression)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    reader: SampleReader
    times: Times
    limits: Limits
    depth: int = 0

    @property
    def steps(self) -> int:
        return len(self.times)

    def value(self, node: Any) -> Value:
        self.limits.check_time()
        if self.depth > _MAX_DEPTH:
            raise QueryTooLarge(f"the query is nested more than {_MAX_DEPTH} levels deep")
        evaluator = _NODES.get(type(node))
        if evaluator is None:
            raise QueryFailed(f"{type(node).__name__} is not supported here")
        return evaluator(_Evaluation(self.reader, self.times, self.limits, self.depth + 1), node)

    def vector(self, node: Any) -> Vector:
        value = self.value(node)
        if isinstance(value, Vector):
            return value
        raise BadQuery("expected an instant vector")

    def number(self, node: Any) -> Floats:
        value = self.value(node)
        if isinstance(value, np.ndarray):
            return value
        raise BadQuery("expected a number")

    def text(self, node: Any) -> str:
        value = self.value(node)
        if isinstance(value, str):
            return value
        raise BadQuery("expected a text")

    def moments(self, node: Any) -> Times:
        """The moments that a selector or subquery looks at: `@` and `offset` applied to the steps."""
        times = self.times
        if node.at is not None:
            times = np.full(self.steps, _at(node.at, times))
        return times - milliseconds(node.offset)

    def selected(self, node: parser.VectorSelector) -> Vector:
        moments = self.moments(node)
        if node.at is None:
            return self.reader.latest(selection(node), moments, self.limits)
        once = self.reader.latest(selection(node), moments[:1], self.limits)
        return Vector(once.labels, np.repeat(once.values, self.steps, 1), np.repeat(once.present, self.steps, 1))

    def windows(self, node: Any) -> Iterator[Windows]:
        if isinstance(node, parser.ParenExpr):
            yield from self.windows(node.expr)
        elif isinstance(node, parser.MatrixSelector):
            length, moments = milliseconds(node.range), self.moments(node.vector_selector)
            matches = selection(node.vector_selector)
            for found in self.reader.between(matches, int(moments[0]) - length, int(moments[-1]), self.limits):
                yield Windows.of(found.labels, found.times, found.values, moments, length)
        else:
            yield from self.subquery_windows(node)

    def subquery_windows(self, node: parser.SubqueryExpr) -> Iterator[Windows]:
        length, moments = milliseconds(node.range), self.moments(node)
        step = milliseconds(node.step) or _SUBQUERY_STEP
        start = -(-(int(moments[0]) - length) // step) * step
        times = np.arange(start, int(moments[-1]) + 1, step, dtype=np.int64)
        if len(times) > _MAX_SUBQUERY_STEPS:
            raise QueryTooLarge(f"a subquery has more than {_MAX_SUBQUERY_STEPS} steps: use a longer one")
        if not len(times):
            return
        inner = _Evaluation(self.reader, times, self.limits, self.depth + 1)
        value = inner.value(node.expr)
        vector = value if isinstance(value, Vector) else stacked(filled(np.asarray(value)), len(times))
        for row in vector.rows():
            yield Windows.of(row.labels, times[row.present], row.values[row.present], moments, length)

    def over_ranges(self, node: Any, function: RangeFunction) -> Vector:
        rows = list[Row]()
        for windows in self.windows(node):
            self.limits.check_cells(len(rows), self.steps)
            present = function.present(windows)
            if present.any():
                labels = windows.labels if function.keeps_name else without_name(windows.labels)
                rows.append(Row(labels, function.compute(windows), present))
        return unique(stacked(rows, self.steps))


def _at(modifier: Any, times: Times) -> int:
    kind = str(modifier.type).rpartition(".")[2]
    if kind == "Start":
        return int(times[0])
    return int(times[-1]) if kind == "End" else round(modifier.at.timestamp() * 1000)


def _aggregation(here: _Evaluation, node: parser.AggregateExpr) -> Vector:
    modifier = node.modifier
    is_without = modifier is not None and modifier.type == parser.AggModifierType.Without
    parameter = None if node.param is None else here.number(node.param)
    labels = [] if modifier is None else list(modifier.labels)
    return aggregate(str(node.op), here.vector(node.expr), labels, is_without, parameter)


def _binary(here: _Evaluation, node: parser.BinaryExpr) -> Value:
    operator, modifier = str(node.op), node.modifier
    left, right = here.value(node.lhs), here.value(node.rhs)
    if isinstance(left, str) or isinstance(right, str):
        raise BadQuery("an operator needs numbers or vectors")
    as_bool = modifier is not None and modifier.return_bool
    if not (isinstance(left, Vector) and isinstance(right, Vector)):
        if operator not in ARITHMETIC and operator not in COMPARISONS:
            raise BadQuery(f"{operator} needs two vectors")
        return with_number(operator, left, right, as_bool=as_bool)
    matching = _matching(modifier)
    if operator in SET_OPERATORS:
        return combined(operator, left, right, matching)
    return of_vectors(operator, left, right, matching, here.limits, as_bool=as_bool)


def _negated(here: _Evaluation, node: parser.UnaryExpr) -> Value:
    value = here.value(node.expr)
    if isinstance(value, str):
        raise BadQuery("a text has no sign")
    return negated(value)


_MANY_SIDES = {"ManyToOne": "left", "OneToMany": "right"}


def _matching(modifier: Any) -> Matching:
    if modifier is None:
        return Matching()
    labels = modifier.matching
    is_on = labels is not None and labels.type == parser.LabelModifierType.Include
    many_side = _MANY_SIDES.get(str(modifier.card).rpartition(".")[2], "")
    copied = tuple(modifier.group_labels or ()) if many_side else ()
    return Matching(is_on, tuple(labels.labels) if labels is not None else (), many_side, copied)


def _call(here: _Evaluation, node: parser.Call) -> Value:
    name, arguments = node.func.name, node.args
    if name in RANGE_FUNCTIONS:
        return here.over_ranges(arguments[0], RANGE_FUNCTIONS[name])
    if name in MATH:
        vector = here.vector(arguments[0])
        return vector.with_values(MATH[name](vector.values))
    function = _FUNCTIONS.get(name)
    if function is None:
        raise QueryFailed(f"the function {name}() is not supported")
    return function(here, arguments)


def _round(here: _Evaluation, arguments: list[Any]) -> Vector:
    vector = here.vector(arguments[0])
    to = here.number(arguments[1]) if len(arguments) > 1 else np.ones(here.steps)
    return vector.with_values(rounded(vector.values, to))


def _absent(here: _Evaluation, arguments: list[Any]) -> Vector:
    present = at_any(here.vector(arguments[0]).present)
    return stacked([Row(_labels_of_absent(arguments[0]), np.ones(here.steps), ~present)], here.steps)


def _absent_over_time(here: _Evaluation, arguments: list[Any]) -> Vector:
    present = at_any(here.over_ranges(arguments[0], RANGE_FUNCTIONS["present_over_time"]).present)
    selector = getattr(arguments[0], "vector_selector", None)
    return stacked([Row(_labels_of_absent(selector), np.ones(here.steps), ~present)], here.steps)


def _labels_of_absent(node: Any) -> dict[str, str]:
    if not isinstance(node, parser.VectorSelector):
        return {}
    return absent_labels([(match.label, match.value) for match in selection(node) if match.operator == "Equal"])


def _quantile_over_time(here: _Evaluation, arguments: list[Any]) -> Vector:
    share = here.number(arguments[0])
    return here.over_ranges(arguments[1], RangeFunction(lambda windows: quantiles(windows, share)))


def _predict_linear(here: _Evaluation, arguments: list[Any]) -> Vector:
    seconds = here.number(arguments[1])
    return here.over_ranges(arguments[0], RangeFunction(lambda windows: predicted(windows, seconds), at_least=2))


_FUNCTIONS: Mapping[str, Callable[[_Evaluation, list[Any]], Value]] = {
    "vector": lambda here, arguments: stacked(filled(here.number(arguments[0])), here.steps),
    "time": lambda here, _: here.times / 1000,
    "pi": lambda here, _: np.full(here.steps, np.pi),
    "scalar": lambda here, arguments: scalar_of(here.vector(arguments[0])),
    "sort": lambda here, arguments: ordered(here.vector(arguments[0])),
    "sort_desc": lambda here, arguments: ordered(here.vector(arguments[0]), descending=True),
    "clamp_min": lambda here, arguments: clamped(here.vector(arguments[0]), here.number(arguments[1]), np.inf),
    "clamp_max": lambda here, arguments: clamped(here.vector(arguments[0]), -np.inf, here.number(arguments[1])),
    "clamp": lambda here, arguments: clamped(
        here.vector(arguments[0]), here.number(arguments[1]), here.number(arguments[2])
    ),
    "round": _round,
    "absent": _absent,
    "absent_over_time": _absent_over_time,
    "histogram_quantile": lambda here, arguments: histogram_quantile(
        here.number(arguments[0]), here.vector(arguments[1])
    ),
    "label_replace": lambda here, arguments: label_replace(
        here.vector(arguments[0]), *(here.text(each) for each in arguments[1:])
    ),
    "label_join": lambda here, arguments: label_join(
        here.vector(arguments[0]),
        here.text(arguments[1]),
        here.text(arguments[2]),
        [here.text(each) for each in arguments[3:]],
    ),
    "quantile_over_time": _quantile_over_time,
    "predict_linear": _predict_linear,
}

_NODES: Mapping[type, Callable[[_Evaluation, Any], Value]] = {
    parser.NumberLiteral: lambda here, node: np.full(here.steps, node.val),
    parser.StringLiteral: lambda _, node: str(node.val),
    parser.ParenExpr: lambda here, node: here.value(node.expr),
    parser.VectorSelector: lambda here, node: here.selected(node),
    parser.UnaryExpr: _negated,
    parser.AggregateExpr: _aggregation,
    parser.BinaryExpr: _binary,
    parser.Call: _call,
}
