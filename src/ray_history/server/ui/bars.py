"""The bars above the Ray Dashboard, for stored sessions and for running clusters.

A bar is inserted into the page that Ray ships. The script of a stored session's bar runs before the dashboard does and
adds `at=` to its requests, so that every view shows the moment that the address names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.server.api.events import has_platform_events
from ray_history.server.auth import viewer_of
from ray_history.server.completeness.report import CompletenessReport, completeness_report
from ray_history.server.dashboard.builds import POLICY, Frontends
from ray_history.server.formatting import OWNER_KINDS, clip
from ray_history.server.http.responses import ApiError
from ray_history.server.live import LivePage, RunningCluster, Version
from ray_history.server.metrics.dashboards import charts
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.endpoint import Handler, SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.ui.render import render, site
from ray_history.server.ui.session.page import state_label
from ray_history.server.ui.session.timeline_chart import timeline_chart

_HEAD = re.compile(r"<head\b[^>]*>", re.IGNORECASE)
_BODY = re.compile(r"<body\b[^>]*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SparklineBar:
    """One interval of the chart behind the slider, as shares of its width and height."""

    begin: float
    width: float
    total: float
    failed: float


@cached_per_session
def _completeness(request: SessionRequest) -> CompletenessReport:
    return completeness_report(request)


@cached_per_session
def _sparkline(request: SessionRequest) -> list[SparklineBar]:
    timeline = timeline_chart(request)
    if timeline is None:
        return []
    most = max(bar.total for bar in timeline.bars) or 1
    return [
        SparklineBar(bar.begin, bar.width * 0.75, bar.total / most, bar.failed / most)
        for bar in timeline.bars
        if bar.total
    ]


def dashboard_page(frontends: Frontends) -> Handler:
    """The handler of the dashboard of a stored session."""

    def answer(request: SessionRequest) -> Response:
        ray_version = request.open.facts.ray_version
        build = frontends.chosen(ray_version, request.query.get("dashboard"))
        if build is None:
            return frontends.missing(ray_version)
        of_site, session, whole = site(request.http), request.open.session, _whole(request)
        state = state_label(whole)
        shown_ns = request.view.at or state.end_ns
        bar = render(
            request.http,
            "bar.html",
            session=session,
            link=lambda rest: of_site.session(session, rest),
            state=state,
            completeness=_completeness(whole).all,
            sparkline=_sparkline(whole),
            timeline=timeline_chart(whole),
            at_ns=request.view.at,
            shown_ns=shown_ns,
            no_charts=charts(whole).missing,
            has_platform_events=has_platform_events(whole),
            note=request.http.scope.get("ray_history.note", ""),
            versions=frontends.versions,
            version=build.version,
            ray_version=ray_version,
        )
        script = f'<script src="{of_site.static("hbar.js")}" data-now="{shown_ns // 10**6 or ""}"></script>'
        return _with_bar(request.http, build.page, script, bar)

    return answer


def live_page(frontends: Frontends, catalog: SessionCatalog) -> LivePage:
    """The handler of the dashboard of a running cluster."""

    async def answer(request: Request, running: RunningCluster, reported: Version) -> Response:
        version = reported.ray_version or running.cluster.ray_version
        build = frontends.chosen(version, request.query_params.get("dashboard"))
        if build is None:
            return frontends.missing(version)
        cluster = running.session.cluster
        bar = render(
            request,
            "live_bar.html",
            cluster=cluster,
            owner=OWNER_KINDS.get(cluster.owner_kind),
            stored=await _stored(catalog, request, running, reported.session_name),
            versions=frontends.versions,
            version=build.version,
            ray_version=clip(version or "unknown", 20),
        )
        script = f'<script src="{site(request).static("live.js")}" defer></script>'
        return _with_bar(request, build.page, script, bar)

    return answer


def _whole(request: SessionRequest) -> SessionRequest:
    """The same request about the whole session, without the moment."""
    return SessionRequest(request.http, request.open, request.open.view(), request.redact)


async def _stored(
    catalog: SessionCatalog, request: Request, running: RunningCluster, name: str | None
) -> Session | None:
    """The stored part of the session that the cluster runs; None also if the archive does not respond."""
    if not name:
        return None
    cluster = running.cluster
    try:
        return await catalog.find(viewer_of(request.scope), cluster.namespace, cluster.name, name)
    except (ApiError, ArchiveError):
        return None


def _with_bar(request: Request, dashboard: str, script: str, bar: str) -> Response:
    style = f'<link rel="stylesheet" href="{site(request).static("hbar.css")}">'
    return HTMLResponse(with_bar(dashboard, style + script, bar), headers={"Cache-Control": "no-store"} | POLICY)


def with_bar(page: str, head: str, bar: str) -> str:
    """Insert the bar into a page: its files before all others, the bar first in the body."""
    page = _HEAD.sub(lambda found: found[0] + head, page, count=1)
    return _BODY.sub(lambda found: found[0] + bar, page, count=1)
