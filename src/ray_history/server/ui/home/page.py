"""The home page: every session of the fleet, searched, filtered and sorted by the address."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ray_history.archive.catalog import Session
from ray_history.server.auth import EVERYBODY, Viewer, viewer_of
from ray_history.server.http.responses import ApiError
from ray_history.server.live import LIVE, Fleet
from ray_history.server.ui.home.activity_chart import activity
from ray_history.server.ui.home.query import SessionQuery, parse_query, reason, terms
from ray_history.server.ui.home.rows import Row
from ray_history.server.ui.home.search import Found, find
from ray_history.server.ui.home.session_list import Listed, SessionList
from ray_history.server.ui.render import page, site

_RANGES = {"1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d", "all": "All"}
_STATES = {"all": "All", "live": "Live", "ended": "Ended", "lost": "Lost"}
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
_LONGEST_MENU = 100


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under one heading."""

    title: str
    rows: Sequence[Row]


class Home:
    """`/select_cluster`."""

    def __init__(self, sessions: SessionList, fleet: Fleet) -> None:
        self._sessions, self._fleet = sessions, fleet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        wish = parse_query(request.query_params)
        listed = await run_in_threadpool(self._sessions.listed)
        seen = await site(request).seen(scope, {row.session.cluster for row in listed.rows})
        shown = replace(listed, rows=tuple(row for row in listed.rows if row.session.cluster in seen))
        response = await run_in_threadpool(_answer, request, shown, wish, self._fleet)
        await response(scope, receive, send)


class Front:
    """`/`: the dashboard of the session that the browser entered by `/enter_cluster`, else the home page."""

    def __init__(self, home: Home, entered: ASGIApp) -> None:
        self._home, self._entered = home, entered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._entered(scope, receive, send)
        except ApiError:  # none was entered, or it is gone
            await self._home(scope, receive, send)


def _told_missing(fleet: Fleet, viewer: Viewer) -> str:
    """Why running clusters may be missing; in full to those who may see everything."""
    missing = fleet.missing
    return "; ".join(missing) if viewer is EVERYBODY else "the server's log says why" if missing else ""


def _dashboards(fleet: Fleet) -> Callable[[Row], Session]:
    """Whose dashboard a row opens: that of the running cluster, if the session is what it is in."""
    running = fleet.current() if fleet.heads else frozenset()

    def opened(row: Row) -> Session:
        names = (row.session.cluster.namespace, row.session.cluster.name, row.session.name)
        return replace(row.session, name=LIVE) if names in running else row.session

    return opened


def _answer(request: Request, listed: Listed, wish: SessionQuery, fleet: Fleet) -> Response:
    now = time.time()
    return page(
        request,
        "home.html",
        missing=_told_missing(fleet, viewer_of(request.scope)),
        opened=_dashboards(fleet),
        **_values(listed, wish, find(listed.rows, wish, now), now),
    )


def _values(listed: Listed, wish: SessionQuery, found: Found, now: float) -> dict[str, Any]:
    return {
        "now": now,
        "q": wish.q,
        "wish": wish,
        "listed": listed,
        "is_coming": listed.is_coming(now),
        "found": found,
        "groups": list(_groups(found.rows, wish, now)),
        "picture": activity(found.in_time, wish, now),
        "reasons": _reasons(found.rows, wish),
        "share_of": _logarithmic(max((row.duration(now) or 0.0 for row in found.rows), default=0.0)),
        "failing": sum(row.has_failures for row in listed.rows),
        "states": Counter(row.state for row in listed.rows),
        "state_choices": [
            {
                "text": text,
                "link": wish.link(state=state),
                "on": wish.state == state,
                "n": sum(found.counts["state"].values()) if state == "all" else found.counts["state"][state],
            }
            for state, text in _STATES.items()
        ],
        "range_choices": [
            {"text": text, "link": wish.link(range=name, begin=None, end=None), "on": wish.range == name}
            for name, text in _RANGES.items()
        ],
        "menus": [
            (text, name, _options(found.counts[name], chosen))
            for text, name, chosen in (
                ("Namespace", "namespace", wish.namespaces),
                ("Owner", "owner", wish.owners),
                ("Ray", "ray", wish.rays),
            )
        ],
        "hints": [
            (text, wish.link(**changes), found.without[name])
            for name, (text, changes) in _FILTERS.items()
            if found.without.get(name)
        ],
        "kept_when_searching": _hidden(wish, without=("q",)),
        "kept_when_filtering": _hidden(wish, without=("namespace", "owner", "ray")),
        "kept_when_ranging": _hidden(wish, without=("from", "to")),
    }


def _reasons(rows: Sequence[Row], wish: SessionQuery) -> dict[str, tuple[str, str, str]]:
    searched = terms(wish.q)
    return {row.identity: why for row in rows if (why := reason(row, searched))} if searched else {}


def _logarithmic(longest: float) -> Callable[[float], float]:
    """How long a bar is: from a minute to the longest of the page, so that all of them can be compared."""
    whole = math.log1p(longest / 60) or 1.0
    return lambda seconds: max(math.log1p(seconds / 60) / whole, 0.03)


def _options(counts: Counter[str], chosen: tuple[str, ...]) -> list[dict[str, Any]]:
    names = [name for name, _ in counts.most_common(_LONGEST_MENU)]
    return [
        {"value": name, "n": counts[name], "on": name in chosen}
        for name in [*names, *(name for name in chosen if name not in names)]
    ]


def _hidden(wish: SessionQuery, without: tuple[str, ...]) -> list[tuple[str, str]]:
    """The rest of what is asked for, as hidden fields of a form."""
    return [(name, value) for name, value in parse_qsl(wish.link()[1:]) if name not in without]


def _groups(rows: Sequence[Row], wish: SessionQuery, now: float) -> Iterator[Group]:
    """By day where the order is that of time."""
    if wish.sort.removeprefix("-") != "started":
        if rows:
            yield Group("Sessions", rows)
        return
    today = datetime.fromtimestamp(now, UTC).date()

    def heading(row: Row) -> str:
        if row.state == "live" and wish.sort == "started":
            return "Live now"
        day = datetime.fromtimestamp(row.started, UTC).date()
        if day == today:
            return "Today"
        if day == today - timedelta(days=1):
            return "Yesterday"
        if timedelta(0) < today - day < timedelta(days=7):
            return f"{day:%A}, {day:%b} {day.day}"
        return f"{day:%b} {day.day}" if day.year == today.year else f"{day:%b} {day.day}, {day.year}"

    for title, of_day in itertools.groupby(rows, heading):
        yield Group(title, list(of_day))
