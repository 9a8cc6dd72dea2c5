"""Cluster events: `/events`, what Ray's processes reported, and `/api/v0/platform_events`, what Kubernetes did."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.server.api.polled import camel_case_keys, polled_data
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import JOB_ID, VIEW, SessionRoute


def events(request: SessionRequest) -> Response:
    """All events by job, those of no job as `global`; or those of `job_id`."""
    groups = _groups(request)
    if "job_id" in request.query:
        job_id = request.query["job_id"]
        of_job = {"jobId": job_id, "events": shown(request, groups.get(job_id, []))}
        return enveloped(of_job, "Job events fetched.")
    return enveloped({"events": shown(request, groups)}, "All events fetched.")


def platform_events(request: SessionRequest) -> Response:
    """Events of the platform below, the newest first, in the shape of Ray's event messages."""
    rows = request.tables.rows(
        f"""select event_id, severity, event_ns, message, custom_fields, label
        from {request.tables.source("cluster_events", request.view)}
        where source_type = 'PLATFORM' order by event_ns desc nulls last, event_id"""
    )
    found = []
    for event_id, severity, event_ns, message, fields, reason in rows:
        custom = object_of(msgspec.json.decode(fields or "{}"))
        told = {name: custom.pop(name, None) for name in ("object_kind", "object_name", "source")}
        found.append(
            {
                "eventId": event_id,
                "sourceType": "CLUSTER_LIFECYCLE",
                "eventType": "PLATFORM_EVENT",
                "timestamp": datetime.fromtimestamp((event_ns or 0) / 1e9, UTC).isoformat().replace("+00:00", "Z"),
                "severity": severity,
                "message": message or "",
                "sessionName": request.open.session.name,
                "platformEvent": {
                    "source": told["source"] or {},
                    "objectKind": told["object_kind"] or "",
                    "objectName": told["object_name"] or "",
                    "reason": reason or "",
                    "message": message or "",
                    "customFields": custom,
                },
            }
        )
    return enveloped({"events": shown(request, camel_case_keys(found))}, "Retrieved platform events")


def _groups(request: SessionRequest) -> dict[str, list[dict[str, Any]]]:
    """Events by job: whole lines of the event logs, and what polling saw where the logs are missing."""
    groups: dict[str, list[dict[str, Any]]] = {"global": []}
    known = set()
    for event_id, text in request.tables.fetch(
        f"""select event_id, max(document.body::varchar)
        from {request.tables.source("cluster_events", request.view)} as event
        join document on document.source = 'log_event' and document.body->>'event_id' = event_id
        group by event_id, event_ns order by event_ns nulls last, event_id"""
    ):
        event = msgspec.json.decode(text)
        known.add(event_id)
        message = event.get("message")
        if isinstance(message, str):  # how Ray's logs keep an event on one line
            event["message"] = message.replace("\\n", "\n").replace("\\r", "\n")
        groups.setdefault(_job(event.get("custom_fields"), "job_id"), []).append(camel_case_keys(event))
    for of_job in object_of(polled_data(request, "/events").get("events")).values():
        for event in objects_of(of_job):
            if event.get("eventId") not in known and _had_happened(request, event):
                groups.setdefault(_job(event.get("customFields"), "jobId"), []).append(event)
    return groups


def _job(custom_fields: Any, key: str) -> str:
    return str(object_of(custom_fields).get(key) or "global")


def _had_happened(request: SessionRequest, event: dict[str, Any]) -> bool:
    try:
        return request.view.at is None or float(event.get("timestamp", 0)) * 1e9 <= request.view.at
    except (TypeError, ValueError):
        return True


routes = [
    SessionRoute("/events", events, parameters=(*VIEW, JOB_ID), forwarded=True),
    SessionRoute("/api/v0/platform_events", platform_events, forwarded=True),
]
