"""What the Ray Dashboard asks first: whether there are Grafana and Prometheus, and where."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from ray_history.server.http.ray_proxy import is_through_ray
from ray_history.server.http.responses import enveloped
from ray_history.server.metrics.dashboards import charts
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.ui.render import site

DISABLED = "DISABLED"
"""A Grafana host that makes the frontend leave out its Metrics tab and its cards with charts."""
_WORD_END = re.compile(r"_([a-z0-9])")


def grafana_health(request: SessionRequest) -> Response:
    """Where the charts of the session are; `DISABLED`, and why, if it has none."""
    found = charts(request)
    data: dict[str, Any] = {
        "grafanaHost": DISABLED if found.missing else _host(request),
        "grafanaOrgId": "1",
        "sessionName": request.open.session.name,
        "dashboardUids": {_camel_case(name): uid for name, uid in found.uids.items()},
        "dashboardDatasource": "Prometheus",
        "grafanaClusterFilter": None,
    }
    if found.missing:
        data["reason"] = found.missing
    response = enveloped(data, found.missing or "Grafana running")
    response.headers["Cache-Control"] = "no-store"  # the host depends on who forwards the request
    return response


def prometheus_health(request: SessionRequest) -> Response:
    """Whether the session has charts."""
    missing = charts(request).missing
    # The frontend reads `result` only. Ray's status of 500 would be an error in the browser's console.
    data = {"reason": missing} if missing else {}
    return enveloped(data, missing or "prometheus running", result=not missing)


def _host(request: SessionRequest) -> str:
    """A path that names the session: Serve's charts have nothing else that does."""
    # A Ray that shows the session forwards what is below its own root.
    below = "/" if is_through_ray(request.http.scope) else site(request.http).session(request.open.session)
    return f"{below}grafana"


def _camel_case(name: str) -> str:
    return _WORD_END.sub(lambda found: found[1].upper(), name)
