"""Failed task attempts, grouped by error and function, each group with the follow-up failures that it caused.

An attempt that failed because another task had failed (an input could not be computed, a task that it waited for
raised) is counted in the group of that task. Its error text names the task in which the error occurred first, so chains
of any length lead to their cause at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ray_history.history.read.views import View
from ray_history.history.sql import text
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.ui.session.tracebacks import MARK, NOT_COMPUTED, RAISED, Traceback, parse_traceback

MOST_GROUPS = 200
_LONGEST_TEXT = 40_000

_FAILURE_GROUPS = """
        with failed as (
            select
                *,
                case when type = 'NORMAL_TASK' and starts_with(func_or_class_name, '_') then coalesce(name, '')
                    else coalesce(nullif(func_or_class_name, ''), name, '') end as function,
                regexp_extract_all(error_message, {mark}, 1)[-1] as origin,
                split(regexp_extract_all(error_message, {raised}, 1)[-1], '.')[-1] as raised,
                contains(error_message, {not_computed}) as of_input
            from {tasks}
            where state = 'FAILED' and is_user_task(type, is_internal)
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
                'error': left(coalesce(error_message, ''), {longest})
            }}, (failed_ns, task_id))
        from failed
        group by 1, 2, 3, 4
        order by min(failed_ns), 1, 2
        """
"""The groups before follow-up failures are added to their causes, in the columns of `_Row`."""

_COUNTS = """
        select
            count(*) filter (state = 'FAILED'),
            count(distinct case when state = 'FAILED' then task_id end),
            count(*) filter (state not in ('FINISHED', 'FAILED'))
        from {tasks}
        where state <> 'FINISHED' and is_user_task(type, is_internal)
        """


class _Row(NamedTuple):
    error: str
    function: str
    cause: str | None
    """The task in which the error occurred first, if it is another one."""
    raised: str | None
    of_input: bool
    attempts: int
    tasks: int
    recovered: int
    first_ns: int
    last_ns: int
    node_id: str | None
    jobs: list[str]
    example: dict[str, Any]


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
    trace: Traceback = field(default_factory=lambda: Traceback([], 0))


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts that failed in the same way."""

    error: str
    function: str
    attempts: int
    tasks: int
    recovered: int
    """Tasks of the group that succeeded in a later attempt."""
    first_ns: int
    last_ns: int
    node_id: str | None
    """The node of all attempts; None if they ran on several."""
    jobs: list[str]
    of_input: bool
    """Failed because of an input, and the text does not name its task."""
    example: Example
    downstream: int = 0
    """Attempts that failed because of this group."""

    @classmethod
    def from_row(cls, row: _Row) -> Group:
        return cls(
            row.error,
            row.function,
            row.attempts,
            row.tasks,
            row.recovered,
            row.first_ns,
            row.last_ns,
            row.node_id,
            row.jobs,
            row.of_input,
            Example(**row.example),
        )

    @property
    def has_recovered(self) -> bool:
        """Whether each of its tasks succeeded in a later attempt."""
        return self.recovered == self.tasks

    @property
    def total(self) -> int:
        return self.attempts + self.downstream

    def joined(self, other: Group) -> Group:
        """Both groups as one, with the example of the earlier one."""
        first = self if self.first_ns <= other.first_ns else other
        return replace(
            first,
            attempts=self.attempts + other.attempts,
            tasks=self.tasks + other.tasks,
            recovered=self.recovered + other.recovered,
            last_ns=max(self.last_ns, other.last_ns),
            node_id=self.node_id if self.node_id == other.node_id else None,
            jobs=sorted({*self.jobs, *other.jobs}),
            of_input=self.of_input and other.of_input,
            downstream=self.downstream + other.downstream,
        )


def failure_groups(request: SessionRequest) -> list[Group]:
    """All groups, the largest first. Only the first `MOST_GROUPS` have a traceback: no others are shown."""
    tasks = request.tables.source("tasks", View(request.view.at))
    rows = request.tables.fetch(
        _FAILURE_GROUPS.format(
            tasks=tasks,
            mark=text(MARK),
            raised=text(RAISED),
            not_computed=text(NOT_COMPUTED),
            longest=_LONGEST_TEXT,
        )
    )
    groups = _with_followers([_Row._make(row) for row in rows])
    groups.sort(key=lambda group: (-group.total, group.first_ns))
    return [_with_traceback(request, group) for group in groups[:MOST_GROUPS]] + groups[MOST_GROUPS:]


_Key = tuple[str, str]
"""The error and the function of a group."""


def _with_followers(rows: list[_Row]) -> list[Group]:
    """The groups of causes, with their follow-up failures added.

    If the cause has no group, because its events are missing, its followers are a group of their own.
    """
    groups: dict[_Key, Group] = {}
    for row in rows:
        if not row.cause:
            _add(groups, Group.from_row(row))
    by_name = {(group.error, group.example.name): key for key, group in groups.items()}
    for row in rows:
        if not row.cause:
            continue
        cause = row.raised or "", row.cause
        key = cause if cause in groups else by_name.get(cause)
        if key is None:
            _add(groups, Group.from_row(row))
        else:
            groups[key] = replace(groups[key], downstream=groups[key].downstream + row.attempts)
    return list(groups.values())


def _add(groups: dict[_Key, Group], group: Group) -> None:
    key = (group.error, group.function)
    groups[key] = groups[key].joined(group) if key in groups else group


def _with_traceback(request: SessionRequest, group: Group) -> Group:
    # Names are redacted after grouping: without their secrets different ones may be equal.
    example = group.example
    trace = parse_traceback(request.redacted(example.error))
    example = replace(example, name=request.redacted(example.name), error="", trace=trace)
    return replace(group, function=request.redacted(group.function), example=example)


class Counts(NamedTuple):
    failed_attempts: int
    failed_tasks: int
    unfinished_tasks: int
    """Tasks that were running when the cluster ended."""


def count_failures(request: SessionRequest) -> Counts:
    tasks = request.tables.source("tasks", View(request.view.at))
    (row,) = request.tables.rows(_COUNTS.format(tasks=tasks))
    counts = Counts._make(row)
    return counts if request.open.ended_ns is not None else counts._replace(unfinished_tasks=0)
