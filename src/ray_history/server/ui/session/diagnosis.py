"""What went wrong in a session: failed tasks by error and function, dead actors, lost nodes. Also as JSON, `_digest`.

Everything is counted by SQL over what was observed: tasks that were open when the cluster ended are counted apart, not
as failures, and so is what is Ray's own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from starlette.responses import Response

from ray_history.history.read.views import View
from ray_history.server.http.responses import plain_json
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.sessions.routes import OBJECT, SessionRoute, json_of
from ray_history.server.ui.session.failures import MOST_GROUPS, Group, counted, failure_groups
from ray_history.server.ui.session.headline import Headline, causes, headline
from ray_history.server.ui.session.jobs import jobs_of
from ray_history.server.ui.session.tracebacks import parse_traceback

MOST_ACTORS = 50
MOST_NODES = 100
_LONGEST_TEXT = 40_000

_INTENDED = ("RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED", "OWNER_DIED")
"""Why actors die in a session in which nothing went wrong."""


@dataclass(frozen=True, slots=True)
class DeadActor:
    actor_id: str
    class_name: str
    name: str
    job_id: str
    node_id: str | None
    restarts: int
    end_ns: int | None
    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that was gone before the session was."""

    node_id: str
    name: str
    end_ns: int | None
    expected: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Internal:
    """What is Ray's own (job supervisors, what polling causes), and therefore left out."""

    task_attempts: int = 0
    failed_attempts: int = 0
    actors: int = 0
    jobs: int = 0

    @property
    def total(self) -> int:
        return self.task_attempts + self.actors + self.jobs


@dataclass(frozen=True, slots=True)
class Digest:
    """What went wrong."""

    failed_attempts: int = 0
    failed_tasks: int = 0
    unfinished_tasks: int = 0
    """Open when the cluster ended."""
    groups: list[Group] = field(default_factory=list)
    groups_left_out: int = 0
    dead_actors: int = 0
    """All that were dead, for whatever reason."""
    actors: list[DeadActor] = field(default_factory=list)
    actors_left_out: int = 0
    nodes: list[LostNode] = field(default_factory=list)
    headline: Headline | None = None
    largest_cause: str | None = None
    """The error of what failed most."""
    cause_began_ns: int | None = None
    internal: Internal = Internal()


@cached_per_session
def digest(request: SessionRequest) -> Digest:
    """The digest of a session, as observed at the moment that is asked for."""
    groups = failure_groups(request)
    attempts, tasks, unfinished = counted(request)
    actors, dead, actors_left_out = _actors(request)
    cause = next(iter(causes(groups)), None)
    whole = Digest(
        failed_attempts=attempts,
        failed_tasks=tasks,
        unfinished_tasks=unfinished,
        groups=groups,
        groups_left_out=max(0, len(groups) - MOST_GROUPS),
        dead_actors=dead,
        actors=actors,
        actors_left_out=actors_left_out,
        nodes=_nodes(request),
        largest_cause=cause.groups[0].error if cause else None,
        cause_began_ns=cause.first_ns if cause else None,
        internal=_internal(request),
    )
    return replace(whole, headline=headline(whole, jobs_of(request)), groups=groups[:MOST_GROUPS])


def _actors(request: SessionRequest) -> tuple[list[DeadActor], int, int]:
    """Actors that died of something, how many were dead in all, and how many of the first kind are left out."""
    rows = request.tables.rows(
        f"""
        select
            actor_id, class_name, coalesce(nullif(repr_name, ''), name), job_id, node_id, num_restarts, end_ns,
            coalesce(
                death_cause->>'$.actor_died_error_context.reason',
                case json_keys(death_cause)[1]
                    when 'creation_task_failure_context' then 'CREATION_FAILED'
                    when 'runtime_env_failed_context' then 'RUNTIME_ENV_FAILED'
                    when 'actor_unschedulable_context' then 'UNSCHEDULABLE'
                    when 'oom_context' then 'OUT_OF_MEMORY'
                end,
                'UNKNOWN'
            ) as cause,
            left(coalesce(exit_detail, ''), {_LONGEST_TEXT}) as reason
        from {request.tables.source("actors", View(request.view.at))}
        where state = 'DEAD' and not is_internal
        order by end_ns nulls last, actor_id
        """
    )
    found = [row for row in rows if row[7] not in _INTENDED and "exit type: INTENDED_" not in row[8]]
    actors = [DeadActor(*row) for row in found[:MOST_ACTORS]]
    actors = [
        replace(
            actor,
            class_name=shown(request, actor.class_name),
            name=shown(request, actor.name),
            reason=shown(request, _said(actor.reason)),
        )
        for actor in actors
    ]
    return actors, len(rows), max(0, len(found) - MOST_ACTORS)


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


def _said(reason: str) -> str:
    """The part of Ray's words that differs: of a traceback the line that decides."""
    told = parse_traceback(reason)
    return told.lines[told.decisive] if "Traceback" in reason or "(pid=" in reason else " ".join(told.lines)


def _nodes(request: SessionRequest) -> list[LostNode]:
    rows = request.tables.rows(
        f"""
        select node_id, coalesce(nullif(node_name, ''), node_ip, left(node_id, 8)), end_ns,
            planned_departure, coalesce(state_message, '')
        from {request.tables.source("nodes", View(request.view.at))}
        where state = 'DEAD'
        order by end_ns nulls last, node_id
        limit {MOST_NODES}
        """
    )
    nodes = [LostNode(*row) for row in rows]
    return [replace(node, reason=shown(request, node.reason)) for node in nodes]


# As JSON


def answer(request: SessionRequest) -> Response:
    """What went wrong: failed tasks by error and function, dead actors, lost nodes."""
    body: dict[str, Any] = {"session": request.open.session.name, **asdict(digest(request))}
    for group in body["groups"]:
        lines: dict[str, Any] = group["example"]["trace"]
        lines["message"] = lines["lines"][lines["decisive"]] if lines["lines"] else ""
    return plain_json(body)


routes = [SessionRoute("/_digest", answer, content=json_of(OBJECT))]
