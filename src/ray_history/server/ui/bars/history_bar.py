"""The bar above the Ray Dashboard: that this is history, of which session, at which moment.

It is put into the page that Ray ships, before anything of it runs: its script adds `at=` to what the dashboard asks of
the server, so that every page of it shows the moment that the address names. Links can be handed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.responses import HTMLResponse, Response

from ray_history.server.completeness.report import SessionKept, session_kept
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.sessions.endpoint import Asked, Handler
from ray_history.server.sessions.memo import remembered
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


@remembered
def _account(asked: Asked) -> SessionKept:
    return session_kept(asked)


@remembered
def _sparks(asked: Asked) -> list[Spark]:
    picture = strip(asked)
    if picture is None:
        return []
    most = max(bar.total for bar in picture.bars) or 1
    return [
        Spark(bar.begin, bar.width * 0.75, bar.total / most, bar.failed / most) for bar in picture.bars if bar.total
    ]


def dashboard_page(frontends: Frontends) -> Handler:
    """The handler of the dashboard's page."""

    def answer(asked: Asked) -> Response:
        build = frontends.chosen(asked.open.facts.get("ray_version"), asked.query.get("dashboard"))
        if build is None:
            return frontends.missing(asked.open.facts.get("ray_version"))
        of_site, session = site(asked.request), asked.open.session
        told_state = state_of(_now(asked))
        bar = render(
            asked.request,
            "bar.html",
            session=session,
            link=lambda rest: of_site.session(session, rest),
            state=told_state,
            kept=_account(_now(asked)).all,
            sparks=_sparks(_now(asked)),
            strip=strip(_now(asked)),
            at_ns=asked.view.at,
            note=asked.request.scope.get("ray_history.note", ""),
            versions=frontends.versions,
            version=build.version,
            ray_version=asked.open.facts.get("ray_version"),
        )
        shown_ns = asked.view.at or told_state.end_ns
        head = (
            f'<link rel="stylesheet" href="{of_site.static("hbar.css")}">'
            f'<script src="{of_site.static("hbar.js")}" data-now="{(shown_ns or 0) // 10**6 or ""}"></script>'
        )
        return HTMLResponse(with_bar(build.page, head, bar), headers={"Cache-Control": "no-store"})

    return answer


def _now(asked: Asked) -> Asked:
    """The same about the whole session, whatever the moment."""
    return Asked(asked.request, asked.open, asked.open.view(), asked.redact)


def with_bar(page: str, head: str, bar: str) -> str:
    """The page with the bar in it: its files before all others, itself before all else that is shown."""
    page = _HEAD.sub(lambda found: found[0] + head, page, count=1)
    return _BODY.sub(lambda found: found[0] + bar, page, count=1)
