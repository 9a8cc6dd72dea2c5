"""What went wrong in a session: failed tasks, dead actors, nodes that left. Also as JSON, `_digest`.

Everything is counted as observed. Tasks that were running when the cluster ended are counted separately, not as
failures, and so are tasks, actors and jobs of Ray itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from starlette.responses import Response

from ray_history.history.read.views import View
from ray_history.server.completeness.report import completeness_report
from ray_history.server.http.responses import plain_json
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.sessions.routes import OBJECT, SessionRoute, json_of
from ray_history.server.ui.session.departures import DeadActor, DepartedNode, dead_actors, departed_nodes
from ray_history.server.ui.session.failures import MOST_GROUPS, Group, count_failures, failure_groups
from ray_history.server.ui.session.headline import Findings, Headline, causes
from ray_history.server.ui.session.jobs import jobs_of
from ray_history.server.ui.session.memory import with_memory


@dataclass(frozen=True, slots=True)
class Internal:
    """Tasks, actors and jobs of Ray itself, such as job supervisors."""

    task_attempts: int = 0
    failed_attempts: int = 0
    actors: int = 0
    jobs: int = 0

    @property
    def total(self) -> int:
        return self.task_attempts + self.actors + self.jobs


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What went wrong. The fields are those of `_digest`."""

    failed_attempts: int = 0
    failed_tasks: int = 0
    unfinished_tasks: int = 0
    """Tasks that were running when the cluster ended."""
    groups: list[Group] = field(default_factory=list)
    groups_left_out: int = 0
    dead_actors: int = 0
    """All dead actors, whatever the cause."""
    actors: list[DeadActor] = field(default_factory=list)
    actors_left_out: int = 0
    nodes: list[DepartedNode] = field(default_factory=list)
    headline: Headline | None = None
    largest_cause: str | None = None
    """The error of the most frequent cause of failures."""
    cause_began_ns: int | None = None
    internal: Internal = Internal()


@cached_per_session
def diagnose(request: SessionRequest) -> Diagnosis:
    """The diagnosis of a session, as observed at the requested moment."""
    groups = failure_groups(request)
    counts = count_failures(request)
    actors, nodes = dead_actors(request), departed_nodes(request)
    cause = next(iter(causes(groups)), None)
    findings = Findings(counts.failed_attempts, groups, nodes, jobs_of(request))
    return Diagnosis(
        failed_attempts=counts.failed_attempts,
        failed_tasks=counts.failed_tasks,
        unfinished_tasks=counts.unfinished_tasks,
        groups=findings.ordered_groups()[:MOST_GROUPS],
        groups_left_out=max(0, len(groups) - MOST_GROUPS),
        dead_actors=actors.total,
        actors=actors.failed,
        actors_left_out=actors.left_out,
        nodes=nodes,
        headline=with_memory(request, findings.headline()),
        largest_cause=cause.error if cause else None,
        cause_began_ns=cause.first_ns if cause else None,
        internal=_internal(request),
    )


def _internal(request: SessionRequest) -> Internal:
    view = View(request.view.at)
    counts, each = request.tables.task_counts(view), "attempts"
    if counts is None:
        counts, each = request.tables.source("tasks", view), "1"
    ((attempts, failed),) = request.tables.rows(
        f"""
        select coalesce(sum({each}), 0)::bigint, coalesce(sum({each}) filter (state = 'FAILED'), 0)::bigint
        from {counts} where is_internal and type <> 'DRIVER_TASK'
        """
    )
    actors, jobs = (
        request.tables.rows(f"select count(*) from {request.tables.source(table, view)} where is_internal")[0][0]
        for table in ("actors", "jobs")
    )
    return Internal(attempts, failed, actors, jobs)


def answer(request: SessionRequest) -> Response:
    """What went wrong: failed tasks by error and function, dead actors, nodes that left."""
    completeness, found = completeness_report(request).all.as_json(), diagnose(request)
    body: dict[str, Any] = {
        "session": request.open.session.name,
        "completeness": completeness,
        **asdict(found),
        "headline": found.headline and {"title": found.headline.title, "text": found.headline.text},
    }
    for group in body["groups"]:
        trace: dict[str, Any] = group["example"]["trace"]
        trace["message"] = trace["lines"][trace["decisive"]] if trace["lines"] else ""
    return plain_json(body)


routes = [SessionRoute("/_digest", answer, content=json_of(OBJECT))]
