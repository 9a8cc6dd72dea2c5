"""Failed attempts of tasks, grouped by error and function, each group with what failed because of it.

An attempt that failed because another task had (an input could not be computed, a task that it waited for raised) is
counted into the group of that one: its error text names the task in which the error began, so that chains of any length
lead there at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ray_history.history.read.views import View
from ray_history.history.sql import text
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.ui.session.tracebacks import MARK, NOT_COMPUTED, RAISED, Trace, parse_traceback

MOST_GROUPS = 200
_LONGEST_TEXT = 40_000


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


def failure_groups(request: SessionRequest) -> list[Group]:
    """All groups, the largest first; the first `MOST_GROUPS` with a trace, since the others are not shown."""
    found = _folded(_found(request))
    found.sort(key=lambda group: (-group.total, group.first_ns))
    return [_with_trace(request, group) for group in found[:MOST_GROUPS]] + found[MOST_GROUPS:]


_Key = tuple[str, str]


def _found(request: SessionRequest) -> list[tuple[Group, _Key | None]]:
    """Groups, and the group that each may go back to."""
    tasks = request.tables.source("tasks", View(request.view.at))
    rows = request.tables.fetch(
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
            where state = 'FAILED' and type <> 'DRIVER_TASK' and not is_internal
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


def _with_trace(request: SessionRequest, group: Group) -> Group:
    """Made last, since most of the texts are not shown, and since names without secrets may be the same."""
    example = group.example
    told = parse_traceback(shown(request, example.error))
    example = replace(example, name=shown(request, example.name), error="", trace=told)
    return replace(group, function=shown(request, group.function), example=example)


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


def counted(request: SessionRequest) -> tuple[int, int, int]:
    """Failed attempts, tasks that these are of, and tasks that were open when the cluster ended."""
    ((attempts, tasks, unfinished),) = request.tables.rows(
        f"""
        select
            count(*) filter (state = 'FAILED'),
            count(distinct case when state = 'FAILED' then task_id end),
            count(*) filter (state not in ('FINISHED', 'FAILED'))
        from {request.tables.source("tasks", View(request.view.at))}
        where state <> 'FINISHED' and type <> 'DRIVER_TASK' and not is_internal
        """
    )
    return attempts, tasks, unfinished if request.open.ended_ns is not None else 0
