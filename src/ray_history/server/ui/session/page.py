"""The page about one session, `_session`: what it was, what went wrong, and how much of it is in the archive."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response

from ray_history.archive import layout
from ray_history.ray_variables import recording_variables
from ray_history.server.completeness.report import completeness_report
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.formatting import OWNER_KINDS
from ray_history.server.metrics.dashboards import NO_SAMPLES
from ray_history.server.redaction.rules import HIDDEN
from ray_history.server.sessions.ending import Word, ending
from ray_history.server.sessions.endpoint import Handler, SessionRequest
from ray_history.server.sessions.liveness import State
from ray_history.server.ui.charts import Tick
from ray_history.server.ui.render import page, site
from ray_history.server.ui.session.diagnosis import Diagnosis, diagnose
from ray_history.server.ui.session.download import download_size
from ray_history.server.ui.session.failures import Group
from ray_history.server.ui.session.jobs import Job, jobs_of
from ray_history.server.ui.session.log_suggestions import suggest_logs
from ray_history.server.ui.session.metric_lanes import metric_lanes
from ray_history.server.ui.session.timeline_chart import Lane, TimelineChart, lane, timeline_chart

_SHOWN_GROUPS = 50
_SHOWN_JOBS = 200
_EVENTS_PORT = 8084
"""The default of `collect --events-port`."""
_JOB_LANES = 15
_LOOKS = {"SUCCEEDED": "f-ok", "FAILED": "f-bad", "RUNNING": "f-run"}


@dataclass(frozen=True, slots=True)
class StateLabel:
    """The state of a session as pages show it."""

    name: State
    word: Word
    """How it ended, as badges say it."""
    end_ns: int
    """0 while the session is live."""
    evidence: str
    """How the word is known."""


def state_label(request: SessionRequest) -> StateLabel:
    end = ending(request)
    return StateLabel(request.open.state, end.word, request.open.ended_ns or 0, end.evidence)


def session_page(frontends: Frontends) -> Handler:
    """The handler of `_session`."""

    def answer(request: SessionRequest) -> Response:
        session, facts = request.open.session, request.open.facts
        of_site = site(request.http)
        jobs, diagnosis, timeline = jobs_of(request), diagnose(request), timeline_chart(request)
        tables = layout.index_prefix(session.root, session.cluster, session.name)
        nearest = frontends.nearest(facts.ray_version)
        return page(
            request.http,
            "session.html",
            session=session,
            owner=OWNER_KINDS.get(session.cluster.owner_kind),
            link=lambda rest: of_site.session(session, rest),
            address=_address(request, of_site.session(session)),
            facts=facts,
            started_ns=request.open.started_ns,
            state=state_label(request),
            duration=_duration(request),
            jobs=jobs[:_SHOWN_JOBS],
            jobs_total=len(jobs),
            failed_jobs=sum(job.status == "FAILED" for job in jobs),
            diagnosis=diagnosis,
            groups=diagnosis.groups[:_SHOWN_GROUPS],
            groups_left_out=max(0, len(diagnosis.groups) - _SHOWN_GROUPS) + diagnosis.groups_left_out,
            failed_link=_failed_link,
            timeline=timeline,
            metrics=metric_lanes(request),
            no_metrics=NO_SAMPLES,
            job_lanes=_job_lanes(jobs, timeline) if timeline else [],
            first_failure=_first_failure(diagnosis, timeline),
            completeness=completeness_report(request),
            exports="\n".join(f"export {name}={value}" for name, value in recording_variables(_EVENTS_PORT).items()),
            logs=suggest_logs(request, diagnosis, jobs),
            versions=frontends.versions,
            version=nearest.version if nearest else None,
            bytes=download_size(request),
            sql=_sql(f"{of_site.store}/{tables}/tasks-*.parquet"),
        )

    return answer


def _duration(request: SessionRequest) -> float | None:
    """Seconds from the start to the end, of a live session until now; None if nothing says when it was seen."""
    session = request.open
    if session.state == "unknown":
        return None
    return max((session.ended_ns or time.time_ns()) - session.started_ns, 0) / 1e9


def _address(request: SessionRequest, path: str) -> str:
    url = request.http.url
    return f"{url.scheme}://{url.netloc}{path}".rstrip("/")


def _sql(files: str) -> str:
    quoted = files.replace("'", "''")
    return (
        f"select error_type, name, count(*) as failed from '{quoted}' "
        "where state = 'FAILED' and is_listed group by all order by failed desc"
    )


def _failed_link(group: Group) -> str:
    """The address of a group's failed attempts in the API."""
    by = "name" if group.function == group.example.name else "func_or_class_name"
    kind = group.error if group.error.isupper() else "TASK_EXECUTION_EXCEPTION"
    filters = {"state": "FAILED", "error_type": kind}
    if HIDDEN not in group.function:
        filters[by] = group.function
    parameters: list[tuple[str, str | int]] = [("detail", 1), ("limit", 10000)]
    for key, value in filters.items():
        parameters += [("filter_keys", key), ("filter_predicates", "="), ("filter_values", value)]
    return "api/v0/tasks?" + urlencode(parameters)


def _job_lanes(jobs: list[Job], timeline: TimelineChart) -> list[Lane]:
    started = sorted((job for job in jobs[:_JOB_LANES] if job.start_ms), key=lambda job: job.start_ms or 0)
    whole = timeline.start_ns, timeline.end_ns
    return [
        lane(
            job.name,
            f"{job.name}: {job.status.lower()}, {job.entrypoint}",
            (job.start_ms or 0) * 10**6,
            (job.end_ms * 10**6) if job.end_ms else timeline.end_ns,
            whole,
            _LOOKS.get(job.status, "f-mute"),
        )
        for job in started
    ]


def _first_failure(diagnosis: Diagnosis, timeline: TimelineChart | None) -> Tick | None:
    """The mark at the first failure of the largest cause."""
    if diagnosis.cause_began_ns is None or timeline is None:
        return None
    return Tick(timeline.share(diagnosis.cause_began_ns), f"first {diagnosis.largest_cause}")
