"""The values that a variable can have, by its query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import promql_parser

from ray_history.metrics.promql.errors import BadQuery
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.matchers import selection
from ray_history.metrics.promql.samples import SampleReader
from ray_history.metrics.promql.syntax import parse
from ray_history.metrics.promql.vector import Vector

from .dashboard import Variable
from .names import series_name
from .variables import filled_in

MAX_VALUES = 1000

_LABEL_VALUES = re.compile(r"\s*label_values\((?:(?P<selector>.+),)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL)
_QUERY_RESULT = re.compile(r"\s*query_result\((?P<query>.+)\)\s*", re.DOTALL)

Extracting = Callable[[str, Sequence[str]], Sequence[str]]
"""The part of each text that a regular expression means, empty if it does not match; raises `ValueError`."""


def choices(
    variable: Variable,
    texts: Mapping[str, str],
    reader: SampleReader,
    now: int,
    limits: Limits,
    extracting: Extracting,
) -> list[str]:
    """The values of a variable. `texts` are those of the variables that it depends on."""
    if variable.kind != "query":
        return list(variable.options)
    query = filled_in(variable.query, texts)
    labels = _LABEL_VALUES.fullmatch(query)
    results = _QUERY_RESULT.fullmatch(query)
    if labels:
        found = _label_values(labels["selector"] or "", labels["label"], reader)
    elif results:
        found = _results(results["query"], reader, now, limits)
    else:
        raise BadQuery(f"the variable {variable.name} has a query of an unsupported kind: {query[:200]}")
    if variable.regex:
        found = extracting(_without_slashes(variable.regex), found)
    return sorted({value for value in found if value})[:MAX_VALUES]


def _label_values(selector: str, label: str, reader: SampleReader) -> Sequence[str]:
    if not selector:
        return reader.label_values(label)
    parsed = parse(selector)
    if not isinstance(parsed, promql_parser.VectorSelector):
        raise BadQuery(f"{selector[:200]!r} is no selector of series")
    return reader.label_values(label, selection(parsed))


def _results(query: str, reader: SampleReader, now: int, limits: Limits) -> Sequence[str]:
    """Each series as Grafana writes it: `{label="value"} 1 1790000000000`."""
    value = evaluate(reader, query, np.array([now], np.int64), limits)
    if not isinstance(value, Vector):
        raise BadQuery("query_result needs a vector")
    return [f"{series_name('', row.labels, '')} {row.values[0]:g} {now}" for row in value.rows() if row.present[0]]


def _without_slashes(pattern: str) -> str:
    return pattern[1:-1] if len(pattern) > 1 and pattern[0] == pattern[-1] == "/" else pattern
