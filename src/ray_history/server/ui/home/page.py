"""The home page: the list of all sessions."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ray_history.archive.catalog import Session
from ray_history.server.auth import EVERYBODY, Viewer, viewer_of
from ray_history.server.formatting import utc_datetime
from ray_history.server.http.responses import ApiError
from ray_history.server.live import LIVE, Fleet
from ray_history.server.ui.home.activity_chart import activity_chart
from ray_history.server.ui.home.query import SessionQuery, hidden_match, parse_query, parse_search
from ray_history.server.ui.home.rows import Row
from ray_history.server.ui.home.search import SearchResults, search_sessions
from ray_history.server.ui.home.session_list import Listing, SessionList
from ray_history.server.ui.render import page, site

_RANGES = {"1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d", "all": "All"}
_STATES = {"all": "All", "live": "Live", "ended": "Ended", "lost": "Lost"}
_RARE_STATES = {"unknown": "Unknown", "suspended": "Suspended"}
"""Offered as choices only where the list has such rows."""
_FILTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "search": ("the search", {"q": ""}),
    "state": ("the state", {"state": "all"}),
    "namespace": ("the namespace", {"namespaces": ()}),
    "owner": ("the owner", {"owners": ()}),
    "ray": ("the Ray version", {"rays": ()}),
    "failed": ("“Has failures”", {"failed": False}),
    "complete": ("“Incomplete”", {"incomplete": False}),
    "time": ("the time range", {"range": "all", "begin": None, "end": None}),
}
"""Each filter with its name in a sentence, and the change to a query that removes it."""
_LONGEST_MENU = 100


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under one heading."""

    title: str
    rows: Sequence[Row]


class Home:
    """`/select_cluster`"""

    def __init__(self, sessions: SessionList, fleet: Fleet) -> None:
        self._sessions, self._fleet = sessions, fleet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        query = parse_query(request.query_params)
        listing = await run_in_threadpool(self._sessions.current)
        visible = await site(request).visible(scope, {row.session.cluster for row in listing.rows})
        listing = replace(listing, rows=tuple(row for row in listing.rows if row.session.cluster in visible))
        response = await run_in_threadpool(_answer, request, listing, query, self._fleet)
        await response(scope, receive, send)


class Front:
    """`/`: the dashboard of the session that the browser entered with `/enter_cluster`, otherwise the home page."""

    def __init__(self, home: Home, entered: ASGIApp) -> None:
        self._home, self._entered = home, entered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._entered(scope, receive, send)
        except ApiError:  # no session was entered, or it no longer exists
            await self._home(scope, receive, send)


def _missing(fleet: Fleet, viewer: Viewer) -> str:
    """Why running clusters may be missing, with details only for viewers who may see everything."""
    reasons = fleet.missing
    return "; ".join(reasons) if viewer is EVERYBODY else "the log of the server has the reason" if reasons else ""


def _dashboards(fleet: Fleet) -> Callable[[Row], Session]:
    """The session whose dashboard a row opens: the live one if the cluster is still in this session."""
    running = fleet.current() if fleet.heads else frozenset()

    def dashboard_session(row: Row) -> Session:
        names = (row.session.cluster.namespace, row.session.cluster.name, row.session.name)
        return replace(row.session, name=LIVE) if names in running else row.session

    return dashboard_session


def _answer(request: Request, listing: Listing, query: SessionQuery, fleet: Fleet) -> Response:
    now = time.time()
    results = search_sessions(listing.rows, query, now)
    return page(
        request,
        "home.html",
        now=now,
        q=query.q,
        query=query,
        listing=listing,
        is_refreshing=listing.is_refreshing(now),
        missing=_missing(fleet, viewer_of(request.scope)),
        dashboard_session=_dashboards(fleet),
        states=Counter(row.state for row in listing.rows),
        failing=sum(row.has_failures for row in listing.rows),
        **_result_values(results, query, now),
        **_filter_values(results, query),
    )


def _result_values(results: SearchResults, query: SessionQuery, now: float) -> dict[str, Any]:
    """The rows and the chart."""
    return {
        "results": results,
        "groups": list(_groups(results.rows, query, now)),
        "chart": activity_chart(results.at_any_time, query, now),
        "matches": _hidden_matches(results.rows, query),
        "bar_length": _logarithmic(max((row.duration(now) or 0.0 for row in results.rows), default=0.0)),
    }


def _filter_values(results: SearchResults, query: SessionQuery) -> dict[str, Any]:
    """The filters above the list, and the hidden fields of their forms."""
    menus = (
        ("Namespace", "namespace", query.namespaces),
        ("Owner", "owner", query.owners),
        ("Ray", "ray", query.rays),
    )
    return {
        "state_choices": _state_choices(results.counts["state"], query),
        "range_choices": [
            {"text": text, "link": query.link(range=name, begin=None, end=None), "on": query.range == name}
            for name, text in _RANGES.items()
        ],
        "menus": [(text, name, _options(results.counts[name], chosen)) for text, name, chosen in menus],
        "hints": [
            (text, query.link(**changes), results.without[name])
            for name, (text, changes) in _FILTERS.items()
            if results.without.get(name)
        ],
        "search_fields": _fields(query, without=("q",)),
        "filter_fields": _fields(query, without=("namespace", "owner", "ray")),
        "range_fields": _fields(query, without=("from", "to")),
    }


def _state_choices(counts: Counter[str], query: SessionQuery) -> list[dict[str, Any]]:
    rare = {state: text for state, text in _RARE_STATES.items() if counts[state] or query.state == state}
    return [
        {
            "text": text,
            "link": query.link(state=state),
            "on": query.state == state,
            "n": counts.total() if state == "all" else counts[state],
        }
        for state, text in (_STATES | rare).items()
    ]


def _hidden_matches(rows: Sequence[Row], query: SessionQuery) -> dict[str, tuple[str, str, str]]:
    searched = parse_search(query.q)
    if not searched:
        return {}
    return {row.identity: match for row in rows if (match := hidden_match(row, searched))}


def _logarithmic(longest: float) -> Callable[[float], float]:
    """The length of a bar for a duration, on a logarithmic scale from a minute to the longest of the page."""
    longest_log = math.log1p(longest / 60) or 1.0
    return lambda seconds: max(math.log1p(seconds / 60) / longest_log, 0.03)


def _options(counts: Counter[str], chosen: tuple[str, ...]) -> list[dict[str, Any]]:
    names = [name for name, _ in counts.most_common(_LONGEST_MENU)]
    return [
        {"value": name, "n": counts[name], "on": name in chosen}
        for name in [*names, *(name for name in chosen if name not in names)]
    ]


def _fields(query: SessionQuery, without: tuple[str, ...]) -> list[tuple[str, str]]:
    """The query as hidden fields of a form, without the parameters that the form sets itself."""
    return [(name, value) for name, value in parse_qsl(query.link()[1:]) if name not in without]


def _groups(rows: Sequence[Row], query: SessionQuery, now: float) -> Iterator[Group]:
    """The rows by day if they are in the order of time, otherwise in one group."""
    if query.sort.removeprefix("-") == "started":
        for title, of_day in itertools.groupby(rows, lambda row: _heading(row, query, now)):
            yield Group(title, list(of_day))
    elif rows:
        yield Group("Sessions", rows)


def _heading(row: Row, query: SessionQuery, now: float) -> str:
    if row.state == "live" and query.sort == "started":
        return "Live now"
    if not row.started:
        return "Start unknown"
    today, day = utc_datetime(now).date(), utc_datetime(row.started).date()
    if day == today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if timedelta(0) < today - day < timedelta(days=7):
        return f"{day:%A, %b %-d}"
    return f"{day:%b %-d}" if day.year == today.year else f"{day:%b %-d, %Y}"
