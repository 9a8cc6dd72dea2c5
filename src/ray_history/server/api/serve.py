"""Ray Serve: `/api/serve/applications/`, from the last poll.

Serve exports no events of its own, but its controller, proxies and replicas are actors, whose lives are known. So the
polled answer is shown as of a moment: what was deployed or started later is not there yet, and a replica that was
polled dead runs while its actor lived. The end of the cluster closes it, in the words that Serve has for it.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ray_history.history.registry import CLUSTER_TERMINATED
from ray_history.server.api.polled import is_later, polled_answer
from ray_history.server.completeness.sources import unknown
from ray_history.server.http.responses import ApiError, note_value, plain_json
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import OBJECT, TEXT, VIEW, Parameter, SessionRoute, json_of

_NO_SERVE: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
_NEVER_RAN = ("NOT_STARTED", "DEPLOY_FAILED")
"""Statuses of applications and deployments that the end of the cluster does not change."""


def serve_applications(request: SessionRequest) -> Response:
    """The state of Serve when it was last polled; `api_type` chooses applications by how they were deployed."""
    choices = ("imperative", "declarative")
    api_type = request.query.get("api_type", "")
    if api_type and api_type.lower() not in choices:
        raise ApiError(400, f"Invalid 'api_type' value: '{api_type[:40]}'. Must be one of: {', '.join(choices)}")
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
    response = plain_json(shown(request, details))
    if note := unknown(request).get("serve"):  # Ray's shape has no place for it
        response.headers["X-Ray-History-Note"] = note_value(note)
    return response


def _as_of(request: SessionRequest, details: dict[str, Any]) -> dict[str, Any]:
    """What of a polled answer was there at the moment that is asked for."""
    lives = _Lives(request)
    health = object_of(details.get("controller_health_metrics"))
    if is_later(request, health.get("controller_start_time"), 1e9) or not lives.had_begun(
        details.get("controller_info")
    ):
        return dict(_NO_SERVE)
    if is_later(request, health.get("timestamp"), 1e9):
        del details["controller_health_metrics"]
    proxies = object_of(details.get("proxies"))
    details["proxies"] = {node: proxy for node, proxy in proxies.items() if lives.had_begun(proxy)}
    gone = {object_of(proxy).get("actor_name") for proxy in proxies.values() if not lives.had_begun(proxy)}
    for group in objects_of(details.get("target_groups")):
        group["targets"] = [target for target in objects_of(group.get("targets")) if target.get("name") not in gone]
    details["applications"] = {
        name: application
        for name, application in object_of(details.get("applications")).items()
        if not is_later(request, object_of(application).get("last_deployed_time_s"), 1e9)
    }
    for deployment in _deployments(details):
        replicas = [r for r in _replicas(deployment) if not is_later(request, r.get("start_time_s"), 1e9)]
        for replica in replicas:
            if replica.get("state") == "STOPPED" and lives.went_on(replica):
                replica["state"] = "RUNNING"
        deployment["replicas"] = [replica for replica in replicas if replica.get("state") != "STOPPED"]
        if "recent_dead_replicas" in deployment:
            deployment["recent_dead_replicas"] = [r for r in replicas if r.get("state") == "STOPPED"]
    return details


def _close(details: dict[str, Any]) -> None:
    """Nothing of Serve outlives its cluster: its actors are dead, which Serve would call UNHEALTHY and STOPPED."""
    for proxy in object_of(details.get("proxies")).values():
        if isinstance(proxy, dict):
            proxy["status"] = "UNHEALTHY"
    for application in object_of(details.get("applications")).values():
        _say_unhealthy(application, "application")
    for deployment in _deployments(details):
        if _say_unhealthy(deployment, "deployment"):
            deployment["status_trigger"] = "UNSPECIFIED"
        for replica in _replicas(deployment):
            replica["state"] = "STOPPED"
    if "target_groups" in details:
        details["target_groups"] = []


def _say_unhealthy(part: Any, kind: str) -> bool:
    if not isinstance(part, dict) or part.get("status") in _NEVER_RAN:
        return False
    said = f"{CLUSTER_TERMINATED} The {kind} was {part.get('status')}."
    part |= {"message": f"{part['message']}\n{said}" if part.get("message") else said, "status": "UNHEALTHY"}
    return True


def _deployments(details: dict[str, Any]) -> list[dict[str, Any]]:
    applications = object_of(details.get("applications")).values()
    found = [object_of(object_of(application).get("deployments")).values() for application in applications]
    return [deployment for of_one in found for deployment in of_one if isinstance(deployment, dict)]


def _replicas(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    return objects_of(deployment.get("replicas")) + objects_of(deployment.get("recent_dead_replicas"))


class _Lives:
    """Which of Serve's actors lived at the moment that is asked for; one that no event tells of may always have."""

    def __init__(self, request: SessionRequest) -> None:
        tables = request.tables
        self._then: dict[str, str] = dict(
            tables.rows(f"select actor_id, state from {tables.source('actors', request.view)}")
        )
        self._ever = {actor_id for (actor_id,) in tables.rows(f"select actor_id from {tables.source('actors')}")}

    def had_begun(self, told: Any) -> bool:
        actor_id = str(object_of(told).get("actor_id"))
        return actor_id in self._then or actor_id not in self._ever

    def went_on(self, told: Any) -> bool:
        return self._then.get(str(object_of(told).get("actor_id")), "DEAD") != "DEAD"


routes = [
    SessionRoute(
        "/api/serve/applications/",
        serve_applications,
        parameters=(*VIEW, Parameter("api_type", TEXT, "Only applications deployed this way.")),
        content=json_of(OBJECT),
        forwarded=True,
    )
]
