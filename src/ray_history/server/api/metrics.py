"""`/metrics`, for Prometheus."""

from __future__ import annotations

from starlette.responses import Response

from ray_history.server.http.middleware import RequestStatistics
from ray_history.server.live import Fleet
from ray_history.server.sessions.manager import Sessions

METRICS = {
    "ray_history_requests_total": ("counter", "Requests answered, by method and status."),
    "ray_history_request_seconds_total": ("counter", "Time spent on all of them."),
    "ray_history_requests_running": ("gauge", "Requests being answered."),
    "ray_history_sessions_open": ("gauge", "Sessions that are open."),
    "ray_history_sessions_opened_total": ("counter", "Sessions opened or refreshed."),
    "ray_history_cache_bytes": ("gauge", "What the local cache takes."),
    "ray_history_live_clusters": ("gauge", "Running clusters that Kubernetes tells of."),
    "ray_history_live_missing": ("gauge", "API servers and namespaces whose running clusters are not known now."),
    "ray_history_heads_asked_total": ("counter", "Requests passed on to heads of running clusters."),
    "ray_history_heads_silent_total": ("counter", "Those that a head did not answer."),
}


def metrics(statistics: RequestStatistics, sessions: Sessions, fleet: Fleet, worker: str = "") -> Response:
    """The numbers of this process; of several processes of one server each says which `worker` it is, because whichever
    is asked answers, and its counters would seem to go up and down."""
    mine = [f'worker="{worker}"'] if worker else []
    values: dict[str, dict[str, float]] = {
        "ray_history_requests_total": {
            f'method="{method}",status="{status}"': number for (method, status), number in statistics.requests.items()
        },
        "ray_history_request_seconds_total": {"": statistics.seconds},
        "ray_history_requests_running": {"": statistics.running},
        "ray_history_sessions_open": {"": sessions.open_count},
        "ray_history_sessions_opened_total": {"": sessions.opened_total},
        "ray_history_cache_bytes": {"": sessions.indexer.cache.used_bytes()},
        "ray_history_live_clusters": {"": len(fleet.running)},
        "ray_history_live_missing": {"": len(fleet.missing)},
        "ray_history_heads_asked_total": {"": fleet.heads.asked_total if fleet.heads else 0},
        "ray_history_heads_silent_total": {"": fleet.heads.silent_total if fleet.heads else 0},
    }
    lines = []
    for name, (kind, told) in METRICS.items():
        lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
        for labels, value in values[name].items():
            told_of = ",".join([*filter(None, [labels]), *mine])
            number = f"{value:.15g}"  # with six digits a counter seems to stand still, and to leap
            lines.append(f"{name}{{{told_of}}} {number}" if told_of else f"{name} {number}")
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")
