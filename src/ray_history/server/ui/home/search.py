"""The rows of a list that match what it is asked for, in its order: one page, and numbers about the others."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.query import ORDERS, RANGES, SessionQuery, terms
from ray_history.server.ui.home.rows import Row

PAGE = 50

Test = Callable[[Row], bool]
FACETS: Mapping[str, Callable[[Row], str]] = {
    "state": lambda row: row.state,
    "namespace": lambda row: row.session.cluster.namespace,
    "owner": lambda row: row.owner,
    "ray": lambda row: row.ray or "unknown",
}
"""Filters by one of a few values."""
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The answer."""

    rows: Sequence[Row]
    """Of this page."""
    first: int
    matching: int
    total: int
    before: str | None
    """The `after` of the page before; none on the first page."""
    next: str | None
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """For each filter: how many rows each of its values would show, the other filters being as they are."""
    without: dict[str, int] = field(default_factory=dict)
    """How many rows there would be without one of the filters."""
    in_time: Sequence[Row] = ()
    """All rows that match but for the time."""


def find(rows: Iterable[Row], wish: SessionQuery, now: float) -> Found:
    """One pass over all rows: each is tested by each filter, and those that fail by one only are counted there."""
    tests = _tests(wish, now)
    matching: list[Row] = []
    in_time: list[Row] = []
    counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    without: Counter[str] = Counter()
    total = 0
    for row in rows:
        total += 1
        failing = [name for name, test in tests.items() if not test(row)]
        if len(failing) > 1:
            continue
        if not failing:
            matching.append(row)
        else:
            without[failing[0]] += 1
        if not failing or failing == ["time"]:
            in_time.append(row)
        for name, value in FACETS.items():
            if not failing or failing == [name]:
                counts[name][value(row)] += 1
    cut, moment = _cursor(wish.after, wish.sort) if wish.after else (None, None)
    as_of = int(now) if moment is None else moment

    def key(row: Row) -> Key:
        return _key(row, wish.sort, as_of)

    matching.sort(key=key)
    first = bisect_right(matching, cut, key=key) if cut else 0
    page = matching[first : first + PAGE]

    def cursor(index: int) -> str:
        return _written(matching[index], wish.sort, as_of)

    return Found(
        page,
        first,
        len(matching),
        total,
        None if not first else cursor(first - PAGE - 1) if first > PAGE else "",
        cursor(first + PAGE - 1) if first + PAGE < len(matching) else None,
        counts,
        {name: number + len(matching) for name, number in without.items()},
        in_time,
    )


def _tests(wish: SessionQuery, now: float) -> dict[str, Test]:
    """Only those filters that are on."""
    tests: dict[str, Test] = {}
    if searched := terms(wish.q):
        tests["search"] = lambda row: all(term.suits(row) for term in searched)
    states = () if wish.state == "all" else (wish.state,)
    for name, values in zip(FACETS, (states, wish.namespaces, wish.owners, wish.rays), strict=True):
        if values:
            tests[name] = _one_of(FACETS[name], frozenset(values))
    if wish.failed:
        tests["failed"] = lambda row: row.has_failures
    if wish.incomplete:
        tests["complete"] = lambda row: row.is_incomplete
    since = now - RANGES[wish.range] if RANGES[wish.range] else None
    if since is not None or wish.begin is not None or wish.end is not None:
        tests["time"] = lambda row: (
            (since is None or row.started >= since or row.state == "live")
            and (wish.begin is None or row.started >= wish.begin)
            and (wish.end is None or row.started < wish.end)
        )
    return tests


def _one_of(value: Callable[[Row], str], chosen: frozenset[str]) -> Test:
    return lambda row: value(row) in chosen


def _key(row: Row, sort: str, now: float) -> Key:
    """Rows come in the order of this; live ones first where the order is that of time."""
    name = sort.removeprefix("-")
    value = ORDERS[name](row, now)
    if isinstance(value, str):
        return (_Turned(value) if sort.startswith("-") else value, -row.started, row.identity)
    value = int(value)
    live_first = (row.state != "live",) if sort == "started" else ()
    return (*live_first, value if sort.startswith("-") else -value, row.identity)


class _Turned(str):
    """A text that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _written(row: Row, sort: str, as_of: int) -> str:
    """Where a page ends: the key of its last row. What runs gets longer, so durations are those of a moment."""
    parts = [str(int(part)) if isinstance(part, int | float) else part for part in _key(row, sort, as_of)]
    return "~".join([*parts, str(as_of)] if sort.endswith("duration") else parts)


def _cursor(text: str, sort: str) -> tuple[Key, int | None]:
    """The key, and the moment of which durations are."""
    wrong = ApiError(400, "after is not where a page of this list ends; leave it out to see the first page")
    parts = text.split("~")
    try:
        match sort.removeprefix("-"), parts:
            case "cluster", [name, started, identity]:
                return (_Turned(name) if sort.startswith("-") else name, int(started), identity), None
            case "started", [waits, value, identity] if sort == "started":
                return (bool(int(waits)), int(value), identity), None
            case "duration", [value, identity, moment]:
                return (int(value), identity), int(moment)
            case name, [value, identity] if name not in ("cluster", "duration"):
                return (int(value), identity), None
    except ValueError:
        raise wrong from None
    raise wrong
