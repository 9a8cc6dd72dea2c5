"""The jobs of a session, with the results of their tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ray_history.history.read.views import View
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.ui.session.tracebacks import parse_traceback

_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as observed; one that was running when its cluster ended is INTERRUPTED."""

    job_id: str | None
    submission_id: str | None
    entrypoint: str
    status: str
    reason: str | None
    """Why it ended, in one line; None for jobs that succeeded or still run."""
    start_ms: int | None
    end_ms: int | None
    driver_node_id: str | None
    finished: int = 0
    failed: int = 0
    other: int = 0

    @property
    def name(self) -> str:
        return self.submission_id or f"driver {self.job_id}"

    @property
    def address(self) -> str:
        """The name of its page in the dashboard."""
        return self.job_id or self.submission_id or ""


class _JobRow(NamedTuple):
    job_id: str | None
    submission_id: str | None
    entrypoint: str
    status: str
    message: str | None
    start_ms: int | None
    end_ms: int | None
    driver_node_id: str | None


@cached_per_session
def jobs_of(request: SessionRequest) -> list[Job]:
    """The failed jobs first, then the others; the newest first in both."""
    view = View(request.view.at)
    tasks = {
        job: counts
        for job, *counts in request.tables.rows(
            f"""select job_id, count(*) filter (state = 'FINISHED'), count(*) filter (state = 'FAILED'),
                count(*) filter (state not in ('FINISHED', 'FAILED'))
            from {request.tables.source("tasks", view)}
            where is_user_task(type, is_internal) group by job_id"""
        )
    }
    rows = request.tables.rows(
        f"""select job_id, submission_id, entrypoint, status, message, start_ms, end_ms, driver_node_id
        from {request.tables.source("jobs", view)}
        where not is_internal
        order by status <> 'FAILED', start_ms desc nulls last, job_id desc"""
    )
    return [_job(request, row, tasks.get(row.job_id, [])) for row in map(_JobRow._make, rows)]


def _job(request: SessionRequest, row: _JobRow, tasks: list[int]) -> Job:
    is_over = row.status in _OVER
    status = row.status if is_over or request.open.ended_ns is None else "INTERRUPTED"
    reason = None
    if status == "INTERRUPTED":
        reason = f"was {row.status.lower()} when the cluster ended"
    elif status in ("FAILED", "STOPPED"):
        reason = _first_line(request.redacted(row.message or ""))
    return Job(
        row.job_id,
        row.submission_id,
        request.redacted(row.entrypoint),
        status,
        reason,
        row.start_ms,
        row.end_ms,
        row.driver_node_id,
        *tasks,
    )


def _first_line(message: str) -> str:
    """The first line, with the exception if the message contains the end of the driver's log."""
    trace = parse_traceback(message)
    first = trace.lines[0].partition(", last available logs")[0] if trace.lines else ""
    return f"{first}: {trace.decisive_line}" if trace.decisive else first
