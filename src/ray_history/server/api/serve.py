"""Ray Serve: `/api/serve/applications/`, from the last poll.

Serve exports no events of its own, but its controller, proxies and replicas are actors, whose lives are in the tables.
So the polled answer can be changed to an earlier moment: parts that were deployed or started later are removed, and a
replica that had stopped before the poll is running while its actor was alive. When the cluster has ended, the statuses
are the ones that Serve uses for dead actors.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ray_history.history.registry import CLUSTER_TERMINATED
from ray_history.server.api.polled import is_later, polled_answer
from ray_history.server.completeness.sources import unknown
from ray_history.server.http.responses import ApiError, note_value, plain_json
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import OBJECT, TEXT, VIEW, Parameter, SessionRoute, json_of

_NO_SERVE: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
_API_TYPES = ("imperative", "declarative")
_NEVER_RAN = ("NOT_STARTED", "DEPLOY_FAILED")
"""Statuses of applications and deployments that the end of the cluster does not change."""


def serve_applications(request: SessionRequest) -> Response:
    """The state of Serve when it was last polled; `api_type` selects applications by how they were deployed."""
    api_type = request.query.get("api_type", "")
    if api_type and api_type.lower() not in _API_TYPES:
        raise ApiError(400, f"Invalid 'api_type' value: '{api_type[:40]}'. Must be one of: {', '.join(_API_TYPES)}")
    details = object_of(polled_answer(request, "/api/serve/applications/")) or dict(_NO_SERVE)
    if request.view.at is not None:
        details = _as_of(request, details)
    if request.view.end is not None:
        _close(details)
    applications = details.get("applications")
    if api_type and isinstance(applications, dict):
        details["applications"] = {
            name: application
            for name, application in applications.items()
            if isinstance(application, dict) and application.get("source") == api_type.lower()
        }
    response = plain_json(request.redacted(details))
    if note := unknown(request).get("serve"):  # Ray's answer has no field for it
        response.headers["X-Ray-History-Note"] = note_value(note)
    return response


# At a moment ----------------------------------------------------------------------------------------------------------


class _Actors:
    """Serve's actors at the requested moment. An actor without events counts as started."""

    def __init__(self, request: SessionRequest) -> None:
        tables = request.tables
        self._states: dict[str, str] = dict(
            tables.rows(f"select actor_id, state from {tables.source('actors', request.view)}")
        )
        self._ever = {actor_id for (actor_id,) in tables.rows(f"select actor_id from {tables.source('actors')}")}

    def had_started(self, part: Any) -> bool:
        actor_id = str(object_of(part).get("actor_id"))
        return actor_id in self._states or actor_id not in self._ever

    def was_alive(self, part: Any) -> bool:
        return self._states.get(str(object_of(part).get("actor_id")), "DEAD") != "DEAD"


def _as_of(request: SessionRequest, details: dict[str, Any]) -> dict[str, Any]:
    """The parts of a polled answer that existed at the requested moment."""
    actors = _Actors(request)
    health = object_of(details.get("controller_health_metrics"))
    is_before_controller = is_later(request, health.get("controller_start_time"), 1e9)
    if is_before_controller or not actors.had_started(details.get("controller_info")):
        return dict(_NO_SERVE)
    if is_later(request, health.get("timestamp"), 1e9):
        del details["controller_health_metrics"]
    _remove_later_proxies(details, actors)
    details["applications"] = {
        name: application
        for name, application in object_of(details.get("applications")).items()
        if not is_later(request, object_of(application).get("last_deployed_time_s"), 1e9)
    }
    for deployment in _deployments(details):
        _replicas_as_of(request, deployment, actors)
    return details


def _remove_later_proxies(details: dict[str, Any], actors: _Actors) -> None:
    proxies = object_of(details.get("proxies"))
    details["proxies"] = {node: proxy for node, proxy in proxies.items() if actors.had_started(proxy)}
    later = {object_of(proxy).get("actor_name") for proxy in proxies.values() if not actors.had_started(proxy)}
    for group in objects_of(details.get("target_groups")):
        group["targets"] = [target for target in objects_of(group.get("targets")) if target.get("name") not in later]


def _replicas_as_of(request: SessionRequest, deployment: dict[str, Any], actors: _Actors) -> None:
    running: list[dict[str, Any]] = []
    stopped: list[dict[str, Any]] = []
    for replica in _replicas(deployment):
        if is_later(request, replica.get("start_time_s"), 1e9):
            continue
        if replica.get("state") == "STOPPED" and actors.was_alive(replica):
            replica["state"] = "RUNNING"
        (stopped if replica.get("state") == "STOPPED" else running).append(replica)
    deployment["replicas"] = running
    if "recent_dead_replicas" in deployment:
        deployment["recent_dead_replicas"] = stopped


# After the end --------------------------------------------------------------------------------------------------------


def _close(details: dict[str, Any]) -> None:
    """All of Serve's actors are dead, for which Serve has the words UNHEALTHY and STOPPED."""
    for proxy in object_of(details.get("proxies")).values():
        if isinstance(proxy, dict):
            proxy["status"] = "UNHEALTHY"
    for application in object_of(details.get("applications")).values():
        _mark_unhealthy(application, "application")
    for deployment in _deployments(details):
        if _mark_unhealthy(deployment, "deployment"):
            deployment["status_trigger"] = "UNSPECIFIED"
        for replica in _replicas(deployment):
            replica["state"] = "STOPPED"
    if "target_groups" in details:
        details["target_groups"] = []


def _mark_unhealthy(part: Any, kind: str) -> bool:
    """False if the end of the cluster does not change its status."""
    if not isinstance(part, dict) or part.get("status") in _NEVER_RAN:
        return False
    message = f"{CLUSTER_TERMINATED} The {kind} was {part.get('status')}."
    part["message"] = f"{part['message']}\n{message}" if part.get("message") else message
    part["status"] = "UNHEALTHY"
    return True


def _deployments(details: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        deployment
        for application in object_of(details.get("applications")).values()
        for deployment in object_of(object_of(application).get("deployments")).values()
        if isinstance(deployment, dict)
    ]


def _replicas(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    return objects_of(deployment.get("replicas")) + objects_of(deployment.get("recent_dead_replicas"))


routes = [
    SessionRoute(
        "/api/serve/applications/",
        serve_applications,
        parameters=(*VIEW, Parameter("api_type", TEXT, "Only applications deployed this way.")),
        content=json_of(OBJECT),
        forwarded=True,
    )
]
