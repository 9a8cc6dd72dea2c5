"""The jobs of a session, with how their tasks went."""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.history.read.views import View
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.ui.session.tracebacks import parse_traceback

_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as observed: one that was running when its cluster ended is UNKNOWN."""

    job_id: str | None
    submission_id: str | None
    entrypoint: str
    status: str
    said: str | None
    """What Ray told about its end, in a line."""
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
        """Its page in the dashboard."""
        return self.job_id or self.submission_id or ""


@cached_per_session
def jobs_of(request: SessionRequest) -> list[Job]:
    """The newest first, those that failed before all others."""
    view = View(request.view.at)
    tasks = {
        job: counts
        for job, *counts in request.tables.rows(
            f"""select job_id, count(*) filter (state = 'FINISHED'), count(*) filter (state = 'FAILED'),
                count(*) filter (state not in ('FINISHED', 'FAILED'))
            from {request.tables.source("tasks", view)}
            where type <> 'DRIVER_TASK' and not is_internal group by job_id"""
        )
    }
    rows = request.tables.rows(
        f"""select job_id, submission_id, entrypoint, status, message, start_ms, end_ms, driver_node_id
        from {request.tables.source("jobs", view)}
        where not is_internal
        order by status <> 'FAILED', start_ms desc nulls last, job_id desc"""
    )
    jobs = []
    for job_id, submission, entrypoint, status, message, start, end, node in rows:
        over = status in _ENDED
        known = status if over or request.open.ended_ns is None else "UNKNOWN"
        said = _said(shown(request, message or "")) if over else f"was {status.lower()} when the cluster ended"
        jobs.append(
            Job(
                job_id, submission, shown(request, entrypoint), known,
                said if known in ("FAILED", "STOPPED", "UNKNOWN") else None,
                start, end, node, *tasks.get(job_id, ()),
            )
        )  # fmt: skip
    return jobs


def _said(message: str) -> str:
    """The first line, and what was raised, if the message holds the end of the driver's log."""
    told = parse_traceback(message)
    first = told.lines[0].partition(", last available logs")[0] if told.lines else ""
    return f"{first}: {told.lines[told.decisive]}" if told.decisive else first
