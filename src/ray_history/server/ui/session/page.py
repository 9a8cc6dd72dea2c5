"""The page about one session, `_session`: what it was, what went wrong, when, and how much of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from ray_history.archive import layout
from ray_history.server.completeness.report import completeness_report
from ray_history.server.dashboard.builds import Frontends
from ray_history.server.formatting import KINDS
from ray_history.server.redaction.rules import HIDDEN
from ray_history.server.sessions.endpoint import Handler, SessionRequest
from ray_history.server.sessions.liveness import State
from ray_history.server.ui.render import page, site
from ray_history.server.ui.session.diagnosis import Digest, digest
from ray_history.server.ui.session.download import download_size
from ray_history.server.ui.session.failures import Group
from ray_history.server.ui.session.jobs import Job, jobs_of
from ray_history.server.ui.session.log_suggestions import worth_reading
from ray_history.server.ui.session.timeline_chart import Lane, TimelineChart, lane, strip

_SHOWN_GROUPS = 50
_SHOWN_JOBS = 200
_JOB_LANES = 15
_LOOKS = {"SUCCEEDED": "f-ok", "FAILED": "f-bad", "RUNNING": "f-run"}


@dataclass(frozen=True, slots=True)
class StateLabel:
    """The state of a session as pages show it."""

    word: State
    end_ns: int
    """0 while the session is live."""
    how: str
    """How the state is known."""


def state_of(request: SessionRequest) -> StateLabel:
    session = request.open
    how = {
        "live": "Its collectors still send.",
        "ended": "Its collectors shut down cleanly.",
        "lost": "The time of its last sign of life: its collectors did not shut down cleanly.",
        "unknown": "The archive has neither a ledger nor a file of it.",
    }[session.state]
    if session.state == "ended" and not session.signs.is_shut_down:
        how = "The time of its last sign of life: its collectors wrote no ledger."
    return StateLabel(session.state, session.ended_ns or 0, how)


def session_page(frontends: Frontends) -> Handler:
    """The handler of `_session`."""

    def answer(request: SessionRequest) -> Response:
        jobs, failures = jobs_of(request), digest(request)
        picture = strip(request)
        session = request.open.session
        link = _linker(request)
        nearest = frontends.nearest(request.open.facts.get("ray_version"))
        return page(
            request.http,
            "session.html",
            session=session,
            owner=KINDS.get(session.cluster.owner_kind),
            link=link,
            address=_address(request.http, link("")),
            facts=request.open.facts,
            started_ns=request.open.facts.get("start_ns") or session.started * 10**9,
            state=state_of(request),
            jobs=jobs[:_SHOWN_JOBS],
            jobs_in_all=len(jobs),
            failed_jobs=sum(job.status == "FAILED" for job in jobs),
            digest=failures,
            groups=failures.groups[:_SHOWN_GROUPS],
            groups_left_out=max(0, len(failures.groups) - _SHOWN_GROUPS) + failures.groups_left_out,
            failed_link=_failed_link,
            strip=picture,
            job_lanes=_job_lanes(jobs, picture) if picture else [],
            first_failure=_first_failure(failures, picture),
            kept=completeness_report(request),
            logs=worth_reading(request, failures, jobs),
            versions=frontends.versions,
            version=nearest.version if nearest else None,
            bytes=download_size(request),
            tables=layout.index_prefix(session.root, session.cluster, session.name),
        )

    return answer


def _linker(request: SessionRequest) -> Callable[[str], str]:
    """Addresses below the session's own path, by its name, so that they can be handed on."""
    of_site, session = site(request.http), request.open.session

    def link(rest: str) -> str:
        return of_site.session(session, rest)

    return link


def _address(request: Request, path: str) -> str:
    return f"{request.url.scheme}://{request.url.netloc}{path}".rstrip("/")


def _failed_link(group: Group) -> str:
    """The failed attempts of a function, from the API."""
    by = "name" if group.function == group.example.name else "func_or_class_name"
    kind = group.error if group.error.isupper() else "TASK_EXECUTION_EXCEPTION"
    wanted = {"state": "FAILED", "error_type": kind}
    if HIDDEN not in group.function:
        wanted[by] = group.function
    parameters: list[tuple[str, str | int]] = [("detail", 1), ("limit", 10000)]
    for key, value in wanted.items():
        parameters += [("filter_keys", key), ("filter_predicates", "="), ("filter_values", value)]
    return "api/v0/tasks?" + urlencode(parameters)


def _job_lanes(jobs: list[Job], picture: TimelineChart) -> list[Lane]:
    shown = sorted((job for job in jobs[:_JOB_LANES] if job.start_ms), key=lambda job: job.start_ms or 0)
    whole = picture.start_ns, picture.end_ns
    return [
        lane(
            job.name,
            f"{job.name}: {job.status.lower()}, {job.entrypoint}",
            (job.start_ms or 0) * 10**6,
            (job.end_ms * 10**6) if job.end_ms else picture.end_ns,
            whole,
            _LOOKS.get(job.status, "f-mute"),
        )
        for job in shown
    ]


def _first_failure(failures: Digest, picture: TimelineChart | None) -> tuple[float, str] | None:
    """Where to draw the line at which what failed most began to fail."""
    if failures.cause_began_ns is None or picture is None:
        return None
    return picture.share(failures.cause_began_ns), f"first {failures.largest_cause}"
