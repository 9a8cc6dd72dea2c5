"""Small routes of the dashboard: versions, health, and features that a finished session does not have."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from starlette.responses import PlainTextResponse, Response

from ray_history.server.api.polled import polled_answer, polled_data
from ray_history.server.completeness import warnings
from ray_history.server.http.responses import ApiError, enveloped, no_profiling, plain_json
from ray_history.server.loose_json import object_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import (
    OBJECT,
    REFUSED,
    TEXT,
    Content,
    SessionRoute,
    array_of,
    component,
    json_of,
    listed_schema,
    object_with,
)

_UNKNOWN_VERSION = "2.49.0+unknown"
"""Ray's clients compare versions, and take no `unknown`: the oldest supported version of Ray, marked as a guess."""
_COMPARABLE = re.compile(r"\d+(\.\d+)*(\.?(a|b|rc|dev|post)\d*)*(\+[0-9a-z.]+)?", re.IGNORECASE)
_ROUTES_OF_RAY = re.compile("/api/(v0/delay|task_events|job_agent|actors/kill)(/|$)")
"""Routes that a live dashboard answers and this server does not."""
_NO_OBJECTS = "Ray exports no data about objects, so the history of a session has none"


def cluster_metadata(request: SessionRequest) -> Response:
    """Versions of Ray and Python, the operating system, and the name of the session.

    Ray leaves out its commit, operating system and session id where usage statistics are disabled; logs have the first
    two.
    """
    facts = request.open.facts
    metadata = {
        "rayVersion": facts.ray_version,
        "pythonVersion": facts.python_version,
        "rayInitCluster": False,
        "gitCommit": facts.ray_commit,
        "os": facts.os,
        "sessionId": request.open.session.name,
    }
    polled = polled_data(request, "/api/v0/cluster_metadata")
    return enveloped(request.redacted(metadata | {name: value for name, value in polled.items() if value is not None}))


def version(request: SessionRequest) -> Response:
    """The session's Ray version; never empty, since Ray's clients compare it."""
    facts = request.open.facts
    polled = object_of(polled_answer(request, "/api/version"))
    answer = {
        "version": "4",
        "ray_version": facts.ray_version,
        "ray_commit": facts.ray_commit,
        "session_name": request.open.session.name,
        **{name: value for name, value in polled.items() if value is not None},
    }
    if not _COMPARABLE.fullmatch(str(answer["ray_version"])):
        answer["ray_version"] = _UNKNOWN_VERSION
    return plain_json(request.redacted(answer))


def timezone(request: SessionRequest) -> Response:
    """The cluster's time zone; UTC, which Ray names Europe/London, if it is unknown."""
    answer = polled_answer(request, "/timezone")
    if not isinstance(answer, dict):
        answer = {"offset": "+00:00", "value": "Europe/London"}
    return plain_json(request.redacted(answer))


def usage_stats_enabled(request: SessionRequest) -> Response:
    """Whether the cluster sent usage statistics."""
    default = {"usageStatsEnabled": False, "usageStatsPromptEnabled": True}
    data = polled_data(request, "/usage_stats_enabled") or default
    return enveloped(request.redacted(data), "Fetched usage stats enabled")


def cluster_id(request: SessionRequest) -> Response:
    """The cluster's ID, as polled or from the logs of its processes."""
    data = polled_data(request, "/cluster_id") or {"clusterId": request.open.facts.cluster_id}
    return enveloped(request.redacted(data), "Fetched cluster id")


def profiling_enabled(_: SessionRequest) -> Response:
    """Always disabled, with Ray's default settings."""
    return no_profiling()


def runtime_env_redaction(request: SessionRequest) -> Response:
    """Whether values of environment variables are hidden."""
    return enveloped({"redactionEnabled": request.redact})


def prometheus_targets(_: SessionRequest) -> Response:
    """An empty list: a finished session has no targets."""
    return plain_json([])


def component_activities(request: SessionRequest) -> Response:
    """Whether drivers were active at the requested moment."""
    jobs = request.tables.source("jobs", request.view)
    ((active, last_end),) = request.tables.rows(
        f"select count(*) filter (status in ('PENDING', 'RUNNING')), max(end_ms) from {jobs}"
    )
    moment = request.view.at or request.view.closed_at or request.open.facts.last_ns or 0
    return plain_json(
        {
            "driver": {
                "is_active": "ACTIVE" if active else "INACTIVE",
                "reason": f"Number of active drivers: {active}" if active else None,
                "timestamp": moment / 1e9,
                "last_activity_at": last_end / 1e3 if last_end else None,
            }
        }
    )


def objects(request: SessionRequest) -> Response:
    """An empty list, with a warning that Ray exports no data about objects."""
    return _without_objects(request, [])


def objects_summary(request: SessionRequest) -> Response:
    """An empty list, with a warning that Ray exports no data about objects."""
    summary = {"summary": {}, "total_objects": 0, "total_size_mb": 0.0, "callsite_enabled": True}
    return _without_objects(request, {"node_id_to_summary": {"cluster": {**summary, "summary_by": "callsite"}}})


def _without_objects(request: SessionRequest, result: Any) -> Response:
    listing = {
        "total": 0,
        "num_after_truncation": 0,
        "num_filtered": 0,
        "result": result,
        "partial_failure_warning": ". ".join(filter(None, (_NO_OBJECTS, warnings.warning(request)))),
        "warnings": None,
    }
    return enveloped({"result": listing})


def anything_polled(request: SessionRequest) -> Response:
    """Any other path below `/api/`: its polled answer, if the collector is set up to poll it."""
    url = request.http.url.remove_query_params(["at", "raw"])  # parameters of the history server, never polled
    path = "/api/" + request.path_param("rest")
    answer = polled_answer(request, f"{path}?{url.query}" if url.query else path)
    if answer is None:
        if not _ROUTES_OF_RAY.match(path):
            raise ApiError(404, f"{path[:200]} does not exist")
        raise ApiError(501, f"{path[:200]} was not polled while the session ran, so no answer is stored")
    return plain_json(request.redacted(answer))


def profile(_: SessionRequest) -> Response:
    """Always refused: the processes of a finished session cannot be profiled."""
    raise ApiError(403, "The processes of a finished session cannot be profiled.")


def package(request: SessionRequest) -> Response:
    """Always refused: packages are not stored."""
    name = f"{request.path_param('protocol')}://{request.path_param('package_name')}"
    raise ApiError(501, f"Package {name[:200]} does not exist: the history of a session has no packages")


def _healthy(text: str) -> Callable[[SessionRequest], Response]:
    def answer(_: SessionRequest) -> Response:
        """Always healthy while the history server is up."""
        return PlainTextResponse(text, media_type="application/text")

    return answer


_VERSION = object_with({"version": TEXT, "ray_version": {}, "session_name": TEXT})
_TIMEZONE = object_with({"offset": TEXT, "value": TEXT})
_HEALTH: Content = {"application/text": {}}
_PROFILES = (
    "/memory_profile",
    "/task/cpu_profile",
    "/task/traceback",
    "/worker/cpu_profile",
    "/worker/gpu_profile",
    "/worker/jax_profile",
    "/worker/memory_profile",
    "/worker/traceback",
)

routes = [
    SessionRoute("/api/v0/cluster_metadata", cluster_metadata, forwarded=True),
    SessionRoute("/api/version", version, content=json_of(_VERSION), forwarded=True),
    SessionRoute("/api/ray/version", version, content=json_of(_VERSION), forwarded=True),
    SessionRoute("/timezone", timezone, content=json_of(_TIMEZONE), forwarded=True),
    SessionRoute("/usage_stats_enabled", usage_stats_enabled, forwarded=True),
    SessionRoute("/cluster_id", cluster_id, forwarded=True),
    SessionRoute("/api/profiling_enabled", profiling_enabled),
    SessionRoute("/api/v0/runtime_env_redaction", runtime_env_redaction),
    SessionRoute("/api/prometheus/sd", prometheus_targets, content=json_of(array_of(OBJECT))),
    SessionRoute("/api/component_activities", component_activities, content=json_of(OBJECT), forwarded=True),
    SessionRoute("/api/gcs_healthz", _healthy("success"), content=_HEALTH, forwarded=True),
    SessionRoute("/api/local_raylet_healthz", _healthy("success"), content=_HEALTH, forwarded=True),
    SessionRoute("/api/healthz", _healthy("raylet: success\ngcs: success"), content=_HEALTH, forwarded=True),
    SessionRoute("/api/v0/objects", objects, content=json_of(listed_schema(array_of(OBJECT))), forwarded=True),
    SessionRoute("/api/v0/objects/summarize", objects_summary, content=json_of(component("Summary")), forwarded=True),
    # Not forwarded to live heads: packages are code, and profiling attaches to processes.
    SessionRoute("/api/packages/{protocol}/{package_name}", package, content=REFUSED),
    *(SessionRoute(path, profile, content=REFUSED) for path in _PROFILES),
]
