"""The bar above the dashboard of a running cluster: that it is live, of which cluster, and where its stored part is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.server.auth import viewer_of
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.formatting import KINDS, clip
from ray_history.server.http.responses import ApiError
from ray_history.server.live import LivePage, Running, Version
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.ui.bars.history_bar import with_bar
from ray_history.server.ui.render import render, site


def live_page(frontends: Frontends, catalog: SessionCatalog) -> LivePage:
    """Makes the page of the dashboard."""

    async def answer(request: Request, running: Running, told: Version) -> Response:
        version = told.ray_version or running.cluster.ray_version
        build = frontends.chosen(version, request.query_params.get("dashboard"))
        if build is None:
            return frontends.missing(version)
        of_site, cluster = site(request), running.session.cluster
        bar = render(
            request,
            "live_bar.html",
            cluster=cluster,
            owner=KINDS.get(cluster.owner_kind),
            stored=await _stored(catalog, request, running, told.session_name),
            versions=frontends.versions,
            version=build.version,
            ray_version=clip(version or "unknown", 20),
        )
        head = (
            f'<link rel="stylesheet" href="{of_site.static("hbar.css")}">'
            f'<script src="{of_site.static("live.js")}" defer></script>'
        )
        return HTMLResponse(with_bar(build.page, head, bar), headers={"Cache-Control": "no-store"})

    return answer


async def _stored(catalog: SessionCatalog, request: Request, running: Running, name: str | None) -> Session | None:
    """What is stored of the session that the cluster is in; an archive that does not answer keeps nobody from it."""
    if not name:
        return None
    cluster = running.cluster
    try:
        return await catalog.find(viewer_of(request.scope), cluster.namespace, cluster.name, name)
    except (ApiError, ArchiveError):
        return None
