"""Every route of a session that a handler answers, collected from the modules that declare them."""

from __future__ import annotations

from ray_history.server.api import (
    actors,
    cluster_status,
    data,
    events,
    jobs,
    listing,
    misc,
    nodes,
    serve,
    summaries,
    timeline,
    train,
)
from ray_history.server.completeness import status
from ray_history.server.logs import browse, search
from ray_history.server.logs import routes as logs
from ray_history.server.metrics import routes as metrics
from ray_history.server.sessions.routes import SessionRoute
from ray_history.server.ui.grafana import page as grafana
from ray_history.server.ui.log import page as log
from ray_history.server.ui.session import diagnosis, download

ROUTES: tuple[SessionRoute, ...] = (
    *summaries.routes,
    *timeline.routes,
    *listing.routes,
    *logs.routes,
    *browse.routes,
    *search.routes,
    *log.routes,
    *nodes.routes,
    *actors.routes,
    *jobs.routes,
    *events.routes,
    *cluster_status.routes,
    *data.routes,
    *train.routes,
    *serve.routes,
    *metrics.routes,
    *grafana.routes,
    *misc.routes,
    *status.routes,
    *diagnosis.routes,
    *download.routes,
)
