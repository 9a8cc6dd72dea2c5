"""Search, filtering, sorting and paging of the rows of a list."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.query import ORDERS, RANGES, SessionQuery, parse_search
from ray_history.server.ui.home.rows import Row

PAGE = 50

Filter = Callable[[Row], bool]
Key = tuple[Any, ...]

FACETS: Mapping[str, Callable[[Row], str]] = {
    "state": lambda row: row.state,
    "namespace": lambda row: row.session.cluster.namespace,
    "owner": lambda row: row.owner,
    "ray": lambda row: row.ray or "unknown",
}
"""Filters that select one or several of a few values."""


@dataclass(slots=True)
class Matches:
    """The rows that pass all filters, and counts for the others."""

    rows: list[Row] = field(default_factory=list)
    at_any_time: list[Row] = field(default_factory=list)
    """Rows that pass all filters except the time range."""
    total: int = 0
    facets: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in FACETS})
    """For each facet the number of rows per value, with all other filters applied."""
    excluded_by: Counter[str] = field(default_factory=Counter)
    """For each filter the rows that fail only this one."""

    def add(self, row: Row, failing: Sequence[str]) -> None:
        """Count a row by the names of the filters that it fails."""
        self.total += 1
        if len(failing) > 1:
            return
        if failing:
            self.excluded_by[failing[0]] += 1
        else:
            self.rows.append(row)
        if not failing or failing[0] == "time":
            self.at_any_time.append(row)
        for name, value in FACETS.items():
            if not failing or failing[0] == name:
                self.facets[name][value(row)] += 1


@dataclass(frozen=True, slots=True)
class SearchResults:
    """One page of the matching rows, with counts for the filters."""

    rows: Sequence[Row]
    first: int
    """The place of the first row of this page among the matching rows."""
    matching: int
    total: int
    before: str | None
    """The `after` of the previous page; None on the first page."""
    next: str | None
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """For each facet the number of rows per value, with all other filters applied."""
    without: dict[str, int] = field(default_factory=dict)
    """The number of rows without one of the filters."""
    at_any_time: Sequence[Row] = ()
    """Rows that pass all filters except the time range."""


def search_sessions(rows: Iterable[Row], query: SessionQuery, now: float) -> SearchResults:
    """Apply the filters of a query in one pass, then sort and cut out the page."""
    filters = _filters(query, now)
    matches = Matches()
    for row in rows:
        matches.add(row, [name for name, passes in filters.items() if not passes(row)])

    last_key, moment = _parse_cursor(query.after, query.sort) if query.after else (None, None)
    as_of = int(now) if moment is None else moment

    def key(row: Row) -> Key:
        return _sort_key(row, query.sort, as_of)

    matching = sorted(matches.rows, key=key)
    first = bisect_right(matching, last_key, key=key) if last_key else 0
    end = first + PAGE
    before = None if not first else ""
    if first > PAGE:
        before = _cursor(matching[first - PAGE - 1], query.sort, as_of)
    return SearchResults(
        rows=matching[first:end],
        first=first,
        matching=len(matching),
        total=matches.total,
        before=before,
        next=_cursor(matching[end - 1], query.sort, as_of) if end < len(matching) else None,
        counts=matches.facets,
        without={name: number + len(matching) for name, number in matches.excluded_by.items()},
        at_any_time=matches.at_any_time,
    )


def _filters(query: SessionQuery, now: float) -> dict[str, Filter]:
    """The filters that are set, by name."""
    filters: dict[str, Filter] = {}
    if searched := parse_search(query.q):
        filters["search"] = lambda row: all(term.matches(row) for term in searched)
    states = () if query.state == "all" else (query.state,)
    for name, values in zip(FACETS, (states, query.namespaces, query.owners, query.rays), strict=True):
        if values:
            filters[name] = _is_one_of(FACETS[name], frozenset(values))
    if query.failed:
        filters["failed"] = lambda row: row.has_failures
    if query.incomplete:
        filters["complete"] = lambda row: row.is_incomplete
    if query.range != "all" or query.begin is not None or query.end is not None:
        filters["time"] = _started_within(query, now)
    return filters


def _is_one_of(value: Callable[[Row], str], choices: frozenset[str]) -> Filter:
    return lambda row: value(row) in choices


def _started_within(query: SessionQuery, now: float) -> Filter:
    since = now - RANGES[query.range] if RANGES[query.range] else None
    return lambda row: (
        (since is None or row.started >= since or row.state == "live")
        and (query.begin is None or row.started >= query.begin)
        and (query.end is None or row.started < query.end)
    )


def _sort_key(row: Row, sort: str, now: float) -> Key:
    """The sort key of a row. Live sessions come first if the newest come first."""
    name = sort.removeprefix("-")
    value = ORDERS[name](row, now)
    if isinstance(value, str):
        return (_Reversed(value) if sort.startswith("-") else value, -row.started, row.identity)
    value = int(value)
    live_first = (row.state != "live",) if sort == "started" else ()
    return (*live_first, value if sort.startswith("-") else -value, row.identity)


class _Reversed(str):
    """A text that sorts in reverse order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _cursor(row: Row, sort: str, as_of: int) -> str:
    """The `after` of the page behind a row: its sort key.

    The duration of a live session grows, so a cursor by duration contains the moment to which its durations refer.
    """
    parts = [str(int(part)) if isinstance(part, int | float) else part for part in _sort_key(row, sort, as_of)]
    return "~".join([*parts, str(as_of)] if sort.endswith("duration") else parts)


def _parse_cursor(text: str, sort: str) -> tuple[Key, int | None]:
    """The sort key in a cursor, and the moment to which its durations refer."""
    invalid = ApiError(400, "invalid after: it is not the end of a page of this list; leave it out for the first page")
    parts = text.split("~")
    try:
        match sort.removeprefix("-"), parts:
            case "cluster", [name, started, identity]:
                return (_Reversed(name) if sort.startswith("-") else name, int(started), identity), None
            case "started", [is_not_live, value, identity] if sort == "started":
                return (bool(int(is_not_live)), int(value), identity), None
            case "duration", [value, identity, moment]:
                return (int(value), identity), int(moment)
            case name, [value, identity] if name not in ("cluster", "duration"):
                return (int(value), identity), None
    except ValueError:
        raise invalid from None
    raise invalid
