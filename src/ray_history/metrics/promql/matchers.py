"""Which series a selector means, as a condition in SQL. DuckDB's regular expressions are RE2's, like Prometheus'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ray_history.metrics.exposition import NAME_LABEL

from .errors import QueryFailed

if TYPE_CHECKING:
    from promql_parser import Matcher, VectorSelector

_CONDITIONS = {
    "Equal": "{value} = ?",
    "NotEqual": "{value} <> ?",
    "Re": "regexp_full_match({value}, ?, 's')",
    "NotRe": "not regexp_full_match({value}, ?, 's')",
}


@dataclass(frozen=True, slots=True)
class Match:
    """A condition on one label."""

    label: str
    operator: str
    """A key of `_CONDITIONS`."""
    value: str


Selection = tuple[Match, ...]
"""All conditions of a selector; hashable."""


def selection(selector: VectorSelector) -> Selection:
    if selector.matchers.or_matchers:
        raise QueryFailed("`or` between label matchers is not supported: join two selectors by `or`")
    name = [Match(NAME_LABEL, "Equal", selector.name)] if selector.name else []
    return (*name, *(_match(matcher) for matcher in selector.matchers.matchers))


def _match(matcher: Matcher) -> Match:
    return Match(matcher.name, str(matcher.op).rpartition(".")[2], matcher.value)


def condition(matches: Sequence[Match]) -> tuple[str, list[str]]:
    """SQL over a row of `series`, and its parameters."""
    conditions, parameters = ["true"], list[str]()
    for match in matches:
        if match.operator == "Re" and match.value == ".*":
            continue
        if match.label == NAME_LABEL:
            value = "name"
        else:
            value = "coalesce(labels[?], '')"
            parameters.append(match.label)
        conditions.append(_CONDITIONS[match.operator].format(value=value))
        parameters.append(match.value)
    return " and ".join(conditions), parameters
