"""Cluster events: `/events`, reported by Ray's processes, and `/api/v0/platform_events`, by Kubernetes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.server.api.polled import camel_case_keys, polled_data
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.sessions.routes import JOB_ID, VIEW, SessionRoute

_NOT_RECORDED = "Platform events were not recorded: Ray has them if RAY_DASHBOARD_INGEST_PLATFORM_EVENTS is set"


def events(request: SessionRequest) -> Response:
    """All events by job, and as `global` the ones without a job; or only the events of `job_id`."""
    by_job = _events_by_job(request)
    if "job_id" in request.query:
        job_id = request.query["job_id"]
        data = {"jobId": job_id, "events": request.redacted(by_job.get(job_id, []))}
        return enveloped(data, "Job events fetched.")
    return enveloped({"events": request.redacted(by_job)}, "All events fetched.")


def _events_by_job(request: SessionRequest) -> dict[str, list[dict[str, Any]]]:
    """The lines of the event logs, and the polled events that are in no log."""
    by_job: dict[str, list[dict[str, Any]]] = {"global": []}
    logged = set()
    for event_id, text in request.tables.fetch(
        f"""select event_id, max(document.body::varchar)
        from {request.tables.source("cluster_events", request.view)} as event
        join document on document.source = 'log_event' and document.body->>'event_id' = event_id
        group by event_id, event_ns order by event_ns nulls last, event_id"""
    ):
        event = msgspec.json.decode(text)
        logged.add(event_id)
        message = event.get("message")
        if isinstance(message, str):  # Ray's logs hold an event on one line
            event["message"] = message.replace("\\n", "\n").replace("\\r", "\n")
        by_job.setdefault(_job_id(event.get("custom_fields"), "job_id"), []).append(camel_case_keys(event))
    for job_events in object_of(polled_data(request, "/events").get("events")).values():
        for event in objects_of(job_events):
            if event.get("eventId") not in logged and _had_happened(request, event.get("timestamp", 0)):
                by_job.setdefault(_job_id(event.get("customFields"), "jobId"), []).append(event)
    return by_job


def _job_id(custom_fields: Any, name: str) -> str:
    return str(object_of(custom_fields).get(name) or "global")


def _had_happened(request: SessionRequest, timestamp: Any) -> bool:
    """Whether an event is not after the requested moment; its timestamp may be text, or no number."""
    try:
        return request.view.at is None or float(timestamp) * 1e9 <= request.view.at
    except (TypeError, ValueError):
        return True


def platform_events(request: SessionRequest) -> Response:
    """Events of Kubernetes, newest first, in the form of Ray's event messages."""
    rows = request.tables.rows(
        f"""select event_id, severity, event_ns, message, custom_fields, label
        from {request.tables.source("cluster_events", request.view)}
        where source_type = 'PLATFORM' order by event_ns desc nulls last, event_id"""
    )
    found = []
    for event_id, severity, event_ns, message, custom_fields, reason in rows:
        fields = object_of(msgspec.json.decode(custom_fields or "{}"))
        timestamp = datetime.fromtimestamp((event_ns or 0) / 1e9, UTC).isoformat().replace("+00:00", "Z")
        platform_event = {
            "source": fields.pop("source", None) or {},
            "objectKind": fields.pop("object_kind", None) or "",
            "objectName": fields.pop("object_name", None) or "",
            "reason": reason or "",
            "message": message or "",
            "customFields": fields,
        }
        found.append(
            {
                "eventId": event_id,
                "sourceType": "CLUSTER_LIFECYCLE",
                "eventType": "PLATFORM_EVENT",
                "timestamp": timestamp,
                "severity": severity,
                "message": message or "",
                "sessionName": request.open.session.name,
                "platformEvent": platform_event,
            }
        )
    response = enveloped({"events": request.redacted(camel_case_keys(found))}, "Retrieved platform events")
    if not has_platform_events(request):
        response.headers["X-Ray-History-Note"] = _NOT_RECORDED
    return response


@cached_per_session
def has_platform_events(request: SessionRequest) -> bool:
    """Whether any were recorded. They are off in Ray by default."""
    found = request.tables.rows(
        f"select 1 from {request.tables.source('cluster_events')} where source_type = 'PLATFORM' limit 1"
    )
    return bool(found)


routes = [
    SessionRoute("/events", events, parameters=(*VIEW, JOB_ID), forwarded=True),
    SessionRoute("/api/v0/platform_events", platform_events, forwarded=True),
]
