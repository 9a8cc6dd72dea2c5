"""Pages of Grafana that the Ray Dashboard embeds: a whole dashboard, or one panel.

A page has the titles and places of its panels. Its scripts ask for what they show, panel by panel, once it is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.metrics.grafana.dashboard import Dashboard, InvalidDashboard, Row
from ray_history.server.http.middleware import POLICY
from ray_history.server.metrics.dashboards import charts, dashboard
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import HTML, TEXT, VIEW, Parameter, SessionRoute
from ray_history.server.ui.grafana.health import grafana_health, prometheus_health
from ray_history.server.ui.render import page

EMBEDDED_POLICY = POLICY.replace("frame-ancestors 'none'", "frame-ancestors 'self'")


def whole_dashboard(request: SessionRequest) -> Response:
    """A dashboard of the session's Grafana."""
    return _page(request, None)


def single_panel(request: SessionRequest) -> Response:
    """One panel of a dashboard."""
    return _page(request, request.query.get("panelId", ""))


def _page(request: SessionRequest, panel_id: str | None) -> Response:
    uid = request.path_param("uid")
    missing, found = charts(request).missing, None
    if not missing:
        try:
            found = dashboard(request.open, uid)
        except InvalidDashboard as error:
            missing = f"The dashboard {uid[:100]} of this session is damaged: {error}"
    if found is None:
        return _refusal(request, missing or f"This session has no dashboard {uid[:100]}.")
    rows = found.rows if panel_id is None else _only(found, panel_id)
    if not rows:
        return _refusal(
            request, f"The dashboard {found.title} of this session's Ray has no panel {str(panel_id)[:20]}."
        )
    return _embedded(
        request,
        dashboard=found,
        rows=rows,
        config=_config(request, found, is_single=panel_id is not None),
        is_single=panel_id is not None,
        problem="",
    )


def _only(found: Dashboard, panel_id: str) -> Sequence[Row]:
    panels = [panel for row in found.rows for panel in row.panels if str(panel.number) == panel_id]
    return [Row("", False, tuple(panels[:1]))] if panels else []


def _config(request: SessionRequest, found: Dashboard, *, is_single: bool) -> str:
    """What the scripts need to know, as JSON."""
    variables: list[dict[str, Any]] = [
        {
            "name": variable.name,
            "label": variable.label,
            "all": variable.has_all,
            "default": variable.default,
            "hidden": variable.is_hidden,
        }
        for variable in found.variables
    ]
    config = {
        "uid": found.uid,
        "single": is_single,
        "session": request.open.session.name,
        "variables": variables,
        "grows": request.open.may_grow,
    }
    return msgspec.json.encode(config).decode()


def _refusal(request: SessionRequest, problem: str) -> Response:
    return _embedded(request, status=404, dashboard=None, rows=(), config="", is_single=True, problem=problem)


def _embedded(request: SessionRequest, *, status: int = 200, **values: Any) -> Response:
    """A page that only pages of this server may embed."""
    response = page(request.http, "grafana.html", status=status, session=request.open.session, **values)
    response.headers["Content-Security-Policy"] = EMBEDDED_POLICY
    return response


_PARAMETERS = (
    Parameter("from", TEXT, "The first moment: `now-5m`, milliseconds since 1970, or ISO 8601."),
    Parameter("to", TEXT, "The last moment; `now` is the last scrape, or the moment `at`."),
    Parameter("timezone", TEXT, "The time zone of the axes; by default the browser's."),
    Parameter("theme", TEXT, "`light` or `dark`."),
    Parameter("var-NAME", TEXT, "The value of the variable NAME; may be repeated."),
    *VIEW,
)
_PANEL_ID = Parameter("panelId", TEXT, "The number of the panel.")

routes = [
    SessionRoute("/api/grafana_health", grafana_health),
    SessionRoute("/api/prometheus_health", prometheus_health),
    *(
        SessionRoute(path, whole_dashboard, parameters=_PARAMETERS, content=HTML)
        for path in ("/grafana/d/{uid}", "/grafana/d/{uid}/{slug}")
    ),
    *(
        SessionRoute(path, single_panel, parameters=(_PANEL_ID, *_PARAMETERS), content=HTML)
        for path in ("/grafana/d-solo/{uid}", "/grafana/d-solo/{uid}/{slug}")
    ),
]
