"""What went wrong in a session: failed tasks by error and function, dead actors, lost nodes. Also as JSON, `_digest`.

Everything is counted by SQL over what was observed: tasks that were open when the cluster ended are counted apart, not
as failures. An attempt that failed because another task had (an input could not be computed, a task that it waited for
raised) is counted into the group of that one, where its error text names it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from starlette.responses import Response

from ray_history.history.sql import text
from ray_history.history.tables import View

from ..answers import plain_json
from ..handling import Asked, Handler
from ..redaction import shown
from .headline import Headline, headline
from .remembered import remembered
from .session_jobs import jobs_of
from .traces import MARK, NOT_COMPUTED, RAISED, Trace, trace

MOST_GROUPS = 200
MOST_ACTORS = 50
MOST_NODES = 100
_LONGEST_TEXT = 40_000

_INTENDED = ("RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED", "OWNER_DIED")
"""Why actors die in a session in which nothing went wrong."""
_EXPECTED = ("EXPECTED_TERMINATION", "AUTOSCALER_DRAIN_IDLE")


@dataclass(frozen=True, slots=True)
class Example:
    """The first failed attempt of a group."""

    task_id: str
    attempt_number: int
    name: str
    type: str
    job_id: str
    actor_id: str | None
    node_id: str | None
    worker_id: str | None
    error: str
    trace: Trace = field(default_factory=lambda: Trace([], 0))


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts that failed in the same way."""

    error: str
    function: str
    attempts: int
    tasks: int
    recovered: int
    """Tasks of it that succeeded in a later attempt."""
    first_ns: int
    last_ns: int
    node_id: str | None
    """Where they ran, if all ran on one node."""
    jobs: list[str]
    of_input: bool
    """Failed because of an input, and the text does not tell whose."""
    example: Example
    downstream: int = 0
    """Attempts that failed because of these."""

    @property
    def total(self) -> int:
        return self.attempts + self.downstream


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


@remembered
def digest(asked: Asked) -> Digest:
    """The digest of a session, as observed at the moment that is asked for."""
    found = _folded(_failed(asked))
    found.sort(key=lambda group: (-group.total, group.first_ns))
    attempts, tasks, unfinished = _counted(asked)
    actors, dead, left_out = _actors(asked)
    told = Digest(
        failed_attempts=attempts,
        failed_tasks=tasks,
        unfinished_tasks=unfinished,
        groups=[_with_trace(asked, group) for group in found[:MOST_GROUPS]],
        groups_left_out=max(0, len(found) - MOST_GROUPS),
        dead_actors=dead,
        actors=actors,
        actors_left_out=left_out,
        nodes=_nodes(asked),
    )
    return replace(told, headline=headline(told, jobs_of(asked)))


# Tasks


_Key = tuple[str, str]


def _failed(asked: Asked) -> list[tuple[Group, _Key | None]]:
    """Groups, and the group that each may go back to."""
    tasks = asked.tables.source("tasks", View(asked.view.at))
    rows = asked.tables.fetch(
        f"""
        with failed as (
            select
                *,
                case when type = 'NORMAL_TASK' and starts_with(func_or_class_name, '_') then coalesce(name, '')
                    else coalesce(nullif(func_or_class_name, ''), name, '') end as function,
                regexp_extract_all(error_message, {text(MARK)}, 1)[-1] as origin,
                split(regexp_extract_all(error_message, {text(RAISED)}, 1)[-1], '.')[-1] as raised,
                contains(error_message, {text(NOT_COMPUTED)}) as of_input
            from {tasks}
            where state = 'FAILED' and type <> 'DRIVER_TASK'
        ),
        recovered as (select distinct task_id from {tasks} where state = 'FINISHED' and attempt_number > 0)
        select
            case when error_type = 'TASK_EXECUTION_EXCEPTION' then coalesce(raised, error_type)
                else coalesce(error_type, 'UNKNOWN') end,
            function,
            case when origin not in (function, name, func_or_class_name) then origin end as cause,
            raised,
            bool_or(of_input and cause is null),
            count(*),
            count(distinct task_id),
            count(distinct task_id) filter (task_id in (from recovered)),
            min(failed_ns),
            max(failed_ns),
            case when count(distinct node_id) = 1 and count(node_id) = count(*) then min(node_id) end,
            list_sort(list(distinct job_id)),
            arg_min({{
                'task_id': task_id, 'attempt_number': attempt_number, 'name': coalesce(name, ''), 'type': type,
                'job_id': coalesce(job_id, ''), 'actor_id': actor_id, 'node_id': node_id, 'worker_id': worker_id,
                'error': left(coalesce(error_message, ''), {_LONGEST_TEXT})
            }}, (failed_ns, task_id))
        from failed
        group by 1, 2, 3, 4
        order by min(failed_ns), 1, 2
        """
    )
    found = []
    for error, function, cause, raised, of_input, attempts, tasks_, again, first, last, node, jobs, example in rows:
        group = Group(
            error, function, attempts, tasks_, again, first, last, node, jobs, of_input, Example(**example)
        )  # fmt: skip
        found.append((group, (raised or "", cause) if cause else None))
    return found


def _folded(found: list[tuple[Group, _Key | None]]) -> list[Group]:
    """Groups with what goes back to them counted into them.

    The text of an attempt names the origin of its error, so that chains of any length lead to it at once. Where the
    origin is no group (its own events never came), the attempts stay a group of their own.
    """
    roots: dict[_Key, Group] = {}
    later: list[tuple[Group, _Key]] = []
    for group, cause in found:
        if cause is None:
            key = (group.error, group.function)
            roots[key] = _joined(roots[key], group) if key in roots else group
        else:
            later.append((group, cause))
    names = {(group.error, group.example.name): key for key, group in roots.items()}
    for group, cause in later:
        root = cause if cause in roots else names.get(cause)
        if root is not None:
            roots[root] = replace(roots[root], downstream=roots[root].downstream + group.attempts)
        else:
            key = (group.error, group.function)
            roots[key] = _joined(roots[key], group) if key in roots else group
    return list(roots.values())


def _with_trace(asked: Asked, group: Group) -> Group:
    """Made last, since most of the texts are not shown."""
    told = trace(shown(asked, group.example.error))
    return replace(group, example=replace(group.example, error="", trace=told))


def _joined(one: Group, other: Group) -> Group:
    first = one if one.first_ns <= other.first_ns else other
    return replace(
        first,
        attempts=one.attempts + other.attempts,
        tasks=one.tasks + other.tasks,
        recovered=one.recovered + other.recovered,
        last_ns=max(one.last_ns, other.last_ns),
        node_id=one.node_id if one.node_id == other.node_id else None,
        jobs=sorted({*one.jobs, *other.jobs}),
        of_input=one.of_input and other.of_input,
        downstream=one.downstream + other.downstream,
    )


def _counted(asked: Asked) -> tuple[int, int, int]:
    """Failed attempts, tasks that these are of, and tasks that were open when the cluster ended."""
    ((attempts, tasks, unfinished),) = asked.tables.rows(
        f"""
        select
            count(*) filter (state = 'FAILED'),
            count(distinct case when state = 'FAILED' then task_id end),
            count(*) filter (state not in ('FINISHED', 'FAILED'))
        from {asked.tables.source("tasks", View(asked.view.at))}
        where state <> 'FINISHED' and type <> 'DRIVER_TASK'
        """
    )
    return attempts, tasks, unfinished if asked.open.ended_ns is not None else 0


# Actors and nodes


def _actors(asked: Asked) -> tuple[list[DeadActor], int, int]:
    """Actors that died of something, how many were dead in all, and how many of the first kind are left out."""
    rows = asked.tables.rows(
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
        from {asked.tables.source("actors", View(asked.view.at))}
        where state = 'DEAD'
        order by end_ns nulls last, actor_id
        """
    )
    found = [row for row in rows if row[7] not in _INTENDED and "exit type: INTENDED_" not in row[8]]
    actors = [DeadActor(*row) for row in found[:MOST_ACTORS]]
    actors = [replace(actor, reason=shown(asked, _said(actor.reason))) for actor in actors]
    return actors, len(rows), max(0, len(found) - MOST_ACTORS)


def _said(reason: str) -> str:
    """The part of Ray's words that differs: of a traceback the line that decides."""
    told = trace(reason)
    return told.lines[told.decisive] if "Traceback" in reason or "(pid=" in reason else " ".join(told.lines)


def _nodes(asked: Asked) -> list[LostNode]:
    rows = asked.tables.rows(
        f"""
        select node_id, coalesce(nullif(node_name, ''), node_ip, left(node_id, 8)), end_ns,
            coalesce(death_reason in {_EXPECTED!r}, starts_with(state_message, 'Expected termination'), false),
            coalesce(state_message, '')
        from {asked.tables.source("nodes", View(asked.view.at))}
        where state = 'DEAD'
        order by end_ns nulls last, node_id
        limit {MOST_NODES}
        """
    )
    nodes = [LostNode(*row) for row in rows]
    return [replace(node, reason=shown(asked, node.reason)) for node in nodes]


# As JSON


def answer(asked: Asked) -> Response:
    """`_digest`."""
    body: dict[str, Any] = {"session": asked.open.session.name, **asdict(digest(asked))}
    for group in body["groups"]:
        lines: dict[str, Any] = group["example"]["trace"]
        lines["message"] = lines["lines"][lines["decisive"]] if lines["lines"] else ""
    return plain_json(body)


HANDLERS: dict[str, Handler] = {"/_digest": answer}
