"""The dashboards that the head of a session wrote for Grafana."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ray_history.metrics.grafana.dashboard import Dashboard, read_dashboard
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.sessions.open_session import OpenSession

HOW_TO_RECORD = (
    "Metrics are recorded by ray-history collect (or collector) beside each node, every 15 s unless "
    "--metrics-interval=0s, while the cluster runs."
)
NO_SAMPLES = f"No metrics of this session were recorded. {HOW_TO_RECORD}"
NO_DASHBOARDS = (
    "Metrics of this session were recorded, but not the dashboards that its head writes for Grafana: there are no "
    "charts, but the metrics can be queried."
)
_CACHED = 32


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts of a session."""

    uids: Mapping[str, str]
    """The uid of each dashboard by its name: `default`, `serve_deployment`."""
    missing: str
    """Why there are none; empty if there are some."""


@cached_per_session
def _charts_of_session(request: SessionRequest) -> Charts:
    tables = request.tables
    blocks, dashboards = tables.file("metric_blocks"), tables.file("dashboards")
    if blocks is None or not tables.rows(f"from {blocks} where last_ms is not null limit 1"):
        return Charts({}, NO_SAMPLES)
    rows = tables.rows(f"select name, uid from {dashboards} order by name") if dashboards else []
    return Charts(dict(rows), "" if rows else NO_DASHBOARDS)


def charts(request: SessionRequest) -> Charts:
    """The charts of a session; they are the same at every moment of it."""
    return _charts_of_session(SessionRequest(request.http, request.open, request.open.view(), request.redact))


def dashboard(session: OpenSession, uid: str) -> Dashboard | None:
    """A dashboard of a session; raises `InvalidDashboard` if it cannot be read."""
    table = session.tables.file("dashboards")
    rows = session.tables.rows(f"select definition from {table} where uid = ? limit 1", [uid]) if table else []
    return _read(rows[0][0]) if rows else None


@lru_cache(_CACHED)
def _read(definition: str) -> Dashboard:
    """Panels of one page are asked for one after the other."""
    return read_dashboard(definition)
