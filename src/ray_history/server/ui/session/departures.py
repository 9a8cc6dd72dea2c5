"""Actors that died unexpectedly, and nodes that left before the session ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ray_history.history.read.views import View
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.node_names import node_names
from ray_history.server.ui.session.tracebacks import parse_traceback

MOST_ACTORS = 50
MOST_NODES = 100
_LONGEST_TEXT = 40_000

_INTENDED = ("RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED", "OWNER_DIED")
"""Causes of death in sessions without failures."""


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
class DeadActors:
    total: int
    """Dead actors, whatever the cause."""
    failed: list[DeadActor]
    """Those that died unexpectedly, at most `MOST_ACTORS`."""
    left_out: int


@dataclass(frozen=True, slots=True)
class DepartedNode:
    node_id: str
    name: str
    end_ns: int | None
    expected: bool
    """Whether the departure was planned."""
    reason: str


def dead_actors(request: SessionRequest) -> DeadActors:
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
    actors = [DeadActor(*row) for row in rows]
    failed = [actor for actor in actors if actor.cause not in _INTENDED and "exit type: INTENDED_" not in actor.reason]
    return DeadActors(
        len(actors),
        [_presentable(request, actor) for actor in failed[:MOST_ACTORS]],
        max(0, len(failed) - MOST_ACTORS),
    )


def _presentable(request: SessionRequest, actor: DeadActor) -> DeadActor:
    """The actor without secrets, and of a traceback only the decisive line."""
    trace = parse_traceback(actor.reason)
    is_traceback = "Traceback" in actor.reason or "(pid=" in actor.reason
    return replace(
        actor,
        class_name=request.redacted(actor.class_name),
        name=request.redacted(actor.name),
        reason=request.redacted(trace.decisive_line if is_traceback else " ".join(trace.lines)),
    )


def departed_nodes(request: SessionRequest) -> list[DepartedNode]:
    """Nodes that left before the session ended, the first one first."""
    rows = request.tables.rows(
        f"""
        select node_id, '', end_ns,
            planned_departure, coalesce(state_message, '')
        from {request.tables.source("nodes", View(request.view.at))}
        where state = 'DEAD'
        order by end_ns nulls last, node_id
        limit {MOST_NODES}
        """
    )
    names = node_names(request)
    nodes = [DepartedNode(*row) for row in rows]
    return [
        replace(node, name=names.get(node.node_id, node.node_id[:8]), reason=request.redacted(node.reason))
        for node in nodes
    ]
