"""What a list of sessions is asked for, read from its address and written into others.

q=…                       every word somewhere; "several words"; -not; cluster:, namespace:, owner:, job:, error:,
                          ray:, session: look in one place
state=live|ended|lost     namespace=, owner=, ray=  any number of each
failed=1  complete=0      range=1h|24h|7d|30d|all   from=, to=  when they started
sort=started|…            with a minus the other way round; after=  the last row of the page before
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from ray_history.server.http.query_params import boolean, one_of
from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.rows import Row

LONGEST_SEARCH = 200
MOST_CHOICES = 50

STATES = ("all", "live", "ended", "lost")
RANGES = {"1h": 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400, "all": 0}
SEARCHED = ("cluster", "namespace", "owner", "job", "error", "ray", "session")

ORDERS: Mapping[str, Callable[[Row, float], Any]] = {
    "started": lambda row, _: row.started,
    "duration": lambda row, now: round(row.duration(now) or 0),
    "failed": lambda row, _: row.failed,
    "tasks": lambda row, _: row.finished + row.failed + row.other,
    "cluster": lambda row, _: row.session.cluster.name,
}
"""What can be sorted by; numbers from the largest on, names from A on."""

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
class SessionQuery:
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
        return replace(self, sort="started", after="") != SessionQuery()

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


def parse_query(query: QueryParams) -> SessionQuery:
    """From the address; Refused says what is wrong with it."""
    q = query.get("q", "").strip()
    if len(q) > LONGEST_SEARCH:
        raise ApiError(400, f"q has {len(q)} characters; at most {LONGEST_SEARCH} are taken")
    sort = query.get("sort") or "started"
    if sort.removeprefix("-") not in ORDERS:
        raise ApiError(400, f"sort is {sort[:40]!r}; it takes one of {', '.join(ORDERS)}, or one of them after a minus")
    return SessionQuery(
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
        raise ApiError(400, f"{name} is given {len(values)} times; at most {MOST_CHOICES} are taken")
    return tuple(dict.fromkeys(values))


def _moment(query: QueryParams, name: str) -> float | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ApiError(400, f"{name} is {text[:40]!r}; it takes a time such as 2026-01-31T12:00") from None


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
