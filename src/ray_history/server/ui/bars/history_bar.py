"""The bar above the Ray Dashboard: that this is history, of which session, at which moment.

It is put into the page that Ray ships, before anything of it runs: its script adds `at=` to what the dashboard asks of
the server, so that every page of it shows the moment that the address names. Links can be handed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.responses import HTMLResponse, Response

from ray_history.server.completeness.report import CompletenessReport, completeness_report
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.sessions.endpoint import Handler, SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.ui.render import render, site
from ray_history.server.ui.session.page import state_of
from ray_history.server.ui.session.timeline_chart import strip

_HEAD = re.compile(r"<head\b[^>]*>", re.IGNORECASE)
_BODY = re.compile(r"<body\b[^>]*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Spark:
    """One bar of the small picture, as shares of its width and height."""

    begin: float
    width: float
    total: float
    failed: float


@cached_per_session
def _account(request: SessionRequest) -> CompletenessReport:
    return completeness_report(request)


@cached_per_session
def _sparks(request: SessionRequest) -> list[Spark]:
    picture = strip(request)
    if picture is None:
        return []
    most = max(bar.total for bar in picture.bars) or 1
    return [
        Spark(bar.begin, bar.width * 0.75, bar.total / most, bar.failed / most) for bar in picture.bars if bar.total
    ]


def dashboard_page(frontends: Frontends) -> Handler:
    """The handler of the dashboard's page."""

    def answer(request: SessionRequest) -> Response:
        build = frontends.chosen(request.open.facts.get("ray_version"), request.query.get("dashboard"))
        if build is None:
            return frontends.missing(request.open.facts.get("ray_version"))
        of_site, session = site(request.http), request.open.session
        told_state = state_of(_now(request))
        bar = render(
            request.http,
            "bar.html",
            session=session,
            link=lambda rest: of_site.session(session, rest),
            state=told_state,
            kept=_account(_now(request)).all,
            sparks=_sparks(_now(request)),
            strip=strip(_now(request)),
            at_ns=request.view.at,
            note=request.http.scope.get("ray_history.note", ""),
            versions=frontends.versions,
            version=build.version,
            ray_version=request.open.facts.get("ray_version"),
        )
        shown_ns = request.view.at or told_state.end_ns
        head = (
            f'<link rel="stylesheet" href="{of_site.static("hbar.css")}">'
            f'<script src="{of_site.static("hbar.js")}" data-now="{(shown_ns or 0) // 10**6 or ""}"></script>'
        )
        return HTMLResponse(with_bar(build.page, head, bar), headers={"Cache-Control": "no-store"})

    return answer


def _now(request: SessionRequest) -> SessionRequest:
    """The same about the whole session, whatever the moment."""
    return SessionRequest(request.http, request.open, request.open.view(), request.redact)


def with_bar(page: str, head: str, bar: str) -> str:
    """The page with the bar in it: its files before all others, itself before all else that is shown."""
    page = _HEAD.sub(lambda found: found[0] + head, page, count=1)
    return _BODY.sub(lambda found: found[0] + bar, page, count=1)
