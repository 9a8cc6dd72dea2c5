"""Jobs: `/api/jobs/` and `/api/jobs/{id}`, for the dashboard and `ray job`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.history.read.json_rows import row
from ray_history.server.api.filters import EXCLUDE_INTERNAL, without_internal
from ray_history.server.http.responses import ApiError, plain_json
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import VIEW, SessionRoute, array_of, component, json_of


def list_jobs(request: SessionRequest) -> Response:
    """All jobs, newest first."""
    users = without_internal(request, "jobs", request.tables.source("jobs", request.view))
    return plain_json(request.redacted(job_rows(request, users)))


def get_job(request: SessionRequest) -> Response:
    """One job, by job ID or submission ID."""
    either_id = request.path_param("job_or_submission_id")
    matching = f"(from {request.tables.source('jobs', request.view)} where job_id = ? or submission_id = ?)"
    jobs = job_rows(request, matching, [either_id, either_id])
    if not jobs:
        raise ApiError(404, f"Job {either_id[:200]} does not exist")
    return plain_json(request.redacted(jobs[0]))


def job_rows(request: SessionRequest, jobs: str, values: list[object] | None = None) -> list[dict[str, Any]]:
    """The jobs of these rows in the form of Ray's API, newest first. Includes secrets."""
    rows = request.tables.rows(
        f"select {row('jobs', detail=True)} from {jobs} order by start_ms desc nulls last, job_id desc", values or []
    )
    return [msgspec.json.decode(text) for (text,) in rows]


routes = [
    SessionRoute(
        "/api/jobs/",
        list_jobs,
        parameters=(*VIEW, EXCLUDE_INTERNAL),
        content=json_of(array_of(component("Job"))),
        forwarded=True,
    ),
    SessionRoute("/api/jobs/{job_or_submission_id}", get_job, content=json_of(component("Job")), forwarded=True),
]
