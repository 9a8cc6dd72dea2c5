"""The query of a list of sessions: the search, filters and order in its address.

q=…                       words that must all match; "a phrase"; -excluded; cluster:, namespace:, owner:, job:,
                          error:, ray: and session: search one field
state=live|ended|lost|unknown|suspended
namespace=, owner=, ray=  each may be repeated
failed=1  complete=0      range=1h|24h|7d|30d|all   from=, to=  time of the start
sort=started|…            a leading minus reverses the order; after=  the last row of the previous page
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from ray_history.server.formatting import iso
from ray_history.server.http.query_params import boolean, one_of
from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.rows import Row

LONGEST_SEARCH = 200
MOST_CHOICES = 50

STATES = ("all", "live", "ended", "lost", "unknown", "suspended")
RANGES = {"1h": 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400, "all": 0}
SEARCH_FIELDS = ("cluster", "namespace", "owner", "job", "error", "ray", "session")

ORDERS: Mapping[str, Callable[[Row, float], Any]] = {
    "started": lambda row, _: row.started,
    "duration": lambda row, now: round(row.duration(now) or 0),
    "failed": lambda row, _: row.failed,
    "tasks": lambda row, _: row.finished + row.failed + row.other,
    "cluster": lambda row, _: row.session.cluster.name,
}
"""Sort keys. Numbers sort from the largest on, names from A on."""

_TERM = re.compile(r'(?P<minus>-)?(?:(?P<field>[a-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>\S+))')


@dataclass(frozen=True, slots=True)
class Term:
    """One word or phrase of a search."""

    text: str
    field: str = ""
    excluded: bool = False

    def matches(self, row: Row) -> bool:
        if self.field:
            found = self.text in row.fields.get(self.field, "")
        else:
            found = any(self.text in text for text in row.fields.values())
        return found != self.excluded


def parse_search(search: str) -> tuple[Term, ...]:
    """Parse a search. A prefix that is no field (`s3://…`) is part of the text."""
    found = []
    for match in _TERM.finditer(search.casefold()):
        name, text = match["field"] or "", match["phrase"] if match["phrase"] is not None else match["word"]
        if name and name not in SEARCH_FIELDS:
            name, text = "", f"{name}:{text}"
        if text:
            found.append(Term(text, name, bool(match["minus"])))
    return tuple(found)


def hidden_match(row: Row, searched: Iterable[Term]) -> tuple[str, str, str] | None:
    """The line that matches a search, as the text before, in and after the match; None if the row shows a match."""
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
    """The search, filters and order of a list."""

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
        """The address of this list with some changes, from its first page."""
        query = replace(self, **{"after": "", **changes})
        pairs: list[tuple[str, str]] = [("q", query.q)] if query.q else []
        pairs += [
            (name, value)
            for name, value, default in (
                ("state", query.state, "all"),
                ("range", query.range, "all"),
                ("sort", query.sort, "started"),
            )
            if value != default
        ]
        for name, values in (("namespace", query.namespaces), ("owner", query.owners), ("ray", query.rays)):
            pairs += [(name, value) for value in values]
        pairs += [("failed", "1")] if query.failed else []
        pairs += [("complete", "0")] if query.incomplete else []
        pairs += [(name, iso(at)) for name, at in (("from", query.begin), ("to", query.end)) if at is not None]
        pairs += [("after", query.after)] if query.after else []
        return "?" + urlencode(pairs)


def parse_query(query: QueryParams) -> SessionQuery:
    """Parse the query of an address; ApiError if it is invalid."""
    q = query.get("q", "").strip()
    if len(q) > LONGEST_SEARCH:
        raise ApiError(400, f"invalid q: {len(q)} characters, at most {LONGEST_SEARCH} are allowed")
    sort = query.get("sort") or "started"
    if sort.removeprefix("-") not in ORDERS:
        raise ApiError(
            400, f"invalid sort {sort[:40]!r}: expected one of {', '.join(ORDERS)}, optionally after a minus"
        )
    return SessionQuery(
        q,
        one_of(query, "state", STATES, "all"),
        _values(query, "namespace"),
        _values(query, "owner"),
        _values(query, "ray"),
        boolean(query, "failed", default=False),
        not boolean(query, "complete", default=True),
        one_of(query, "range", tuple(RANGES), "all"),
        _moment(query, "from"),
        _moment(query, "to"),
        sort,
        query.get("after", "")[:1000],
    )


def _values(query: QueryParams, name: str) -> tuple[str, ...]:
    values = [value for value in query.getlist(name) if value]
    if len(values) > MOST_CHOICES:
        raise ApiError(400, f"invalid {name}: {len(values)} values, at most {MOST_CHOICES} are allowed")
    return tuple(dict.fromkeys(values))


def _moment(query: QueryParams, name: str) -> float | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ApiError(400, f"invalid {name} {text[:40]!r}: expected a time such as 2026-01-31T12:00") from None
