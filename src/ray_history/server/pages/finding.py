"""What a list of sessions is asked for, and the answer: search, filters, order, one page of it.

q=…                       every word somewhere; "several words"; -not; cluster:, namespace:, owner:, job:, error:,
                          ray:, session: look in one place
state=live|ended|lost     namespace=, owner=, ray=  any number of each
failed=1  complete=0      range=1h|24h|7d|30d|all   from=, to=  when they started
sort=started|…            with a minus the other way round; after=  the last row of the page before
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from ..answers import Refused
from ..asking import boolean, one_of
from .fleet import Row

PAGE = 50
LONGEST_SEARCH = 200
MOST_CHOICES = 50

STATES = ("all", "live", "ended", "lost")
RANGES = {"1h": 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400, "all": 0}
SEARCHED = ("cluster", "namespace", "owner", "job", "error", "ray", "session")

_TERM = re.compile(r'(?P<no>-)?(?:(?P<field>[a-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>\S+))')


@dataclass(frozen=True, slots=True)
class Term:
    """One word or phrase of a search."""

    text: str
    field: str = ""
    excluded: bool = False

    def suits(self, row: Row) -> bool:
        if self.field:
            found = self.text in row.fields.get(self.field, "")
        else:
            found = any(self.text in text for text in row.fields.values())
        return found != self.excluded


def terms(search: str) -> tuple[Term, ...]:
    """The terms of a search. What only looks like a field (`s3://…`) is text."""
    found = []
    for match in _TERM.finditer(search.casefold()):
        name, text = match["field"] or "", match["phrase"] if match["phrase"] is not None else match["word"]
        if name and name not in SEARCHED:
            name, text = "", f"{name}:{text}"
        if text:
            found.append(Term(text, name, bool(match["no"])))
    return tuple(found)


def reason(row: Row, searched: Iterable[Term]) -> tuple[str, str, str] | None:
    """Why a row matches, if it does not show that: the line that holds a term, as before it, the term, and after it."""
    shown = [row.fields[name] for name in ("cluster", "namespace", "owner", "ray") if name in row.fields]
    if row.job:
        shown.append(row.job.entrypoint.casefold())
    for term in searched:
        if term.excluded or any(term.text in text for text in shown):
            continue
        for line in row.lines:
            at = line.lower().find(term.text)
            if at >= 0:
                begin = max(at - 40, 0)
                return (
                    ("…" if begin else "") + line[begin:at],
                    line[at : at + len(term.text)],
                    line[at + len(term.text) :],
                )
    return None


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    q: str = ""
    state: str = "all"
    namespaces: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    rays: tuple[str, ...] = ()
    failed: bool = False
    incomplete: bool = False
    range: str = "all"
    begin: float | None = None
    end: float | None = None
    sort: str = "started"
    after: str = ""

    @property
    def is_filtered(self) -> bool:
        return replace(self, sort="started", after="") != Wish()

    def link(self, **changes: Any) -> str:
        """The address of the same list, asked for a little differently; from its first page."""
        wish = replace(self, **{"after": "", **changes})
        pairs: list[tuple[str, str]] = [("q", wish.q)] if wish.q else []
        pairs += [
            (name, value)
            for name, value, usual in (
                ("state", wish.state, "all"),
                ("range", wish.range, "all"),
                ("sort", wish.sort, "started"),
            )
            if value != usual
        ]
        for name, values in (("namespace", wish.namespaces), ("owner", wish.owners), ("ray", wish.rays)):
            pairs += [(name, value) for value in values]
        pairs += [("failed", "1")] if wish.failed else []
        pairs += [("complete", "0")] if wish.incomplete else []
        pairs += [(name, _stamp(at)) for name, at in (("from", wish.begin), ("to", wish.end)) if at is not None]
        pairs += [("after", wish.after)] if wish.after else []
        return "?" + urlencode(pairs)


def read_wish(query: QueryParams) -> Wish:
    """From the address; Refused says what is wrong with it."""
    q = query.get("q", "").strip()
    if len(q) > LONGEST_SEARCH:
        raise Refused(400, f"q has {len(q)} characters; at most {LONGEST_SEARCH} are taken")
    sort = query.get("sort") or "started"
    if sort.removeprefix("-") not in ORDERS:
        raise Refused(400, f"sort is {sort[:40]!r}; it takes one of {', '.join(ORDERS)}, or one of them after a minus")
    return Wish(
        q,
        one_of(query, "state", STATES, "all"),
        _several(query, "namespace"),
        _several(query, "owner"),
        _several(query, "ray"),
        boolean(query, "failed", default=False),
        not boolean(query, "complete", default=True),
        one_of(query, "range", tuple(RANGES), "all"),
        _moment(query, "from"),
        _moment(query, "to"),
        sort,
        query.get("after", "")[:1000],
    )


def _several(query: QueryParams, name: str) -> tuple[str, ...]:
    values = [value for value in query.getlist(name) if value]
    if len(values) > MOST_CHOICES:
        raise Refused(400, f"{name} is given {len(values)} times; at most {MOST_CHOICES} are taken")
    return tuple(dict.fromkeys(values))


def _moment(query: QueryParams, name: str) -> float | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise Refused(400, f"{name} is {text[:40]!r}; it takes a time such as 2026-01-31T12:00") from None


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Test = Callable[[Row], bool]
FACETS: Mapping[str, Callable[[Row], str]] = {
    "state": lambda row: row.state,
    "namespace": lambda row: row.session.cluster.namespace,
    "owner": lambda row: row.owner,
    "ray": lambda row: row.ray or "unknown",
}
"""Filters by one of a few values."""
Key = tuple[Any, ...]

ORDERS: Mapping[str, Callable[[Row, float], Any]] = {
    "started": lambda row, _: row.started,
    "duration": lambda row, now: round(row.duration(now) or 0),
    "failed": lambda row, _: row.failed,
    "tasks": lambda row, _: row.finished + row.failed + row.other,
    "cluster": lambda row, _: row.session.cluster.name,
}
"""What can be sorted by; numbers from the largest on, names from A on."""


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


def find(rows: Iterable[Row], wish: Wish, now: float) -> Found:
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
    matching.sort(key=lambda row: _key(row, wish.sort, now))
    first = (
        bisect_right(matching, _cursor(wish.after, wish.sort), key=lambda row: _key(row, wish.sort, now))
        if wish.after
        else 0
    )
    page = matching[first : first + PAGE]

    def cursor(index: int) -> str:
        return _written(matching[index], wish.sort, now)

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


def _tests(wish: Wish, now: float) -> dict[str, Test]:
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
    live_first = (row.state != "live",) if sort == "started" else ()
    return (*live_first, value if sort.startswith("-") else -value, row.identity)


class _Turned(str):
    """A text that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _written(row: Row, sort: str, now: float) -> str:
    """Where a page ends: the key of its last row."""
    return "~".join(str(int(part)) if isinstance(part, int | float) else part for part in _key(row, sort, now))


def _cursor(text: str, sort: str) -> Key:
    wrong = Refused(400, "after is not where a page of this list ends; leave it out to see the first page")
    parts = text.split("~")
    try:
        match sort.removeprefix("-"), parts:
            case "cluster", [name, started, identity]:
                return (_Turned(name) if sort.startswith("-") else name, int(started), identity)
            case "started", [waits, value, identity] if sort == "started":
                return (bool(int(waits)), int(value), identity)
            case _, [value, identity] if sort.removeprefix("-") != "cluster":
                return (int(value), identity)
    except ValueError:
        raise wrong from None
    raise wrong
