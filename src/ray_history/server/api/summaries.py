"""Counts of tasks and actors by state: `/api/v0/tasks/summarize` and `/api/v0/actors/summarize`.

By name or function they are counted and written by SQL. `summary_by=lineage` makes a tree with a node for every task.
Ray looks at 10,000 tasks at most; here all are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, cast

import msgspec
from starlette.responses import Response

from ray_history.history.registry import TABLES, Version, minor_version
from ray_history.history.sql import text
from ray_history.server.api.filters import (
    EXCLUDE_INTERNAL,
    FILTERS,
    conditions,
    counts_only_matches,
    parse_filters,
    source_conditions,
    without_internal,
)
from ray_history.server.api.lineage import Attempt, Node, build_tree, count_attempts, tree_json
from ray_history.server.completeness import warnings
from ray_history.server.http.query_params import Filter, filters, integer, one_of
from ray_history.server.http.responses import ApiError, streamed_json
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import TIMEOUT, VIEW, Parameter, SessionRoute, component, json_of, one_of_texts

TREE_MAX = 1_200_000
"""Task attempts in a tree. Each takes about 300 bytes of memory until the answer is sent, and 300 bytes of it."""

_NAME = "coalesce(nullif(name, ''), func_or_class_name, '')"
_FUNCTION = "coalesce(func_or_class_name, '')"
_BY_NAME_SINCE = (2, 57)
"""The first version of Ray that counts tasks by their names. Older ones count by function."""
_FAILED_FIRST_SINCE = (2, 54)
"""The first version of Ray that sorts a tree by failures."""
_STATE = "coalesce(state, 'NIL')"
_PARENT = "case when not starts_with(parent_task_id, repeat('f', 40)) then nullif(parent_task_id, '') end"

_PRECOUNTED = frozenset(("func_or_class_name", "is_internal", "job_id", "name", "state", "type"))
"""Columns by which building an index counts tasks."""

_TOTALS = ", ".join(
    f"coalesce(sum(attempts) filter ({condition}), 0)::bigint"
    for condition in ("true", "type = 'NORMAL_TASK'", "type = 'ACTOR_TASK'", "type = 'ACTOR_CREATION_TASK'")
)


class Totals(NamedTuple):
    """Numbers of attempts, in the order of `_TOTALS`."""

    attempts: int = 0
    functions: int = 0
    methods: int = 0
    creations: int = 0


def summarize_tasks(request: SessionRequest) -> Response:
    """Counts by name (by function before Ray 2.57) and state, or the tree of which task started which."""
    summary_by = one_of(request.query, "summary_by", ("func_name", "task_name", "lineage"), "func_name")
    integer(request.query, "timeout", 30, minimum=0)  # nothing here takes that long
    wanted = parse_filters(request.query)
    tasks = _without_drivers(request, request.tables.source("tasks", request.view))
    matching, values = _matching("tasks", tasks, wanted)
    notes = []
    summary: Iterable[str]
    if summary_by == "lineage":
        by_type = f"(select type, count(*) as attempts from {matching} group by type)"
        totals = Totals(*request.tables.rows(f"select {_TOTALS} from {by_type}", values)[0])
        top = _tree(request, matching, values, totals.attempts)
        summary = tree_json(top)
        if missing := totals.attempts - count_attempts(top):
            notes.append(
                f"{missing} of {totals.attempts} task attempts are not in the tree, because their parent task or actor "
                "is filtered out or unknown."
            )
    else:
        by_function = summary_by == "func_name" and _is_before(request, _BY_NAME_SINCE)
        groups = _groups(request, matching, values, wanted)
        summary, totals = _by_name(request, *groups, _FUNCTION if by_function else _NAME)
    result = {
        "total_tasks": totals.functions,
        "total_actor_tasks": totals.methods,
        "total_actor_scheduled": totals.creations,
        "summary_by": "lineage" if summary_by == "lineage" else "func_name",
    }
    total = _total(request, "tasks", tasks, wanted, totals.attempts)
    return _answer(request, "tasks", summary, result, (total, totals.attempts), notes)


def summarize_actors(request: SessionRequest) -> Response:
    """Counts by class and state."""
    integer(request.query, "timeout", 30, minimum=0)
    actors = without_internal(request, "actors", request.tables.source("actors", request.view))
    wanted = tuple(filters(request.query, {}))
    matching, values = _matching("actors", actors, wanted)
    ((filtered,),) = request.tables.rows(f"select count(*) from {matching}", values)
    total = _total(request, "actors", actors, wanted, filtered)
    rows = request.tables.fetch(
        f"""
        with counted as (
            select coalesce(class_name, '') as class_name, state, count(*) as actors, min(actor_id) as first
            from {matching} group by all
        )
        select concat(to_json(class_name), ': ', to_json({{
            'class_name': class_name,
            'state_counts': map_from_entries(list((state, actors) order by first))
        }}))
        from counted group by class_name order by min(first)
        """,
        values,
    )
    result = {"total_actors": filtered, "summary_by": "class"}
    return _answer(request, "actors", _object(text for (text,) in rows), result, (total, filtered), [])


def _total(request: SessionRequest, table: str, rows: str, wanted: tuple[Filter, ...], filtered: int) -> int:
    """The number of rows that Ray would have looked at, if `filtered` match."""
    if counts_only_matches(TABLES[table], wanted):
        return filtered
    where, values = source_conditions(TABLES[table], wanted)
    ((total,),) = request.tables.rows(f"select count(*) from {rows} where {where or 'true'}", values)
    return int(total)


def _without_drivers(request: SessionRequest, tasks: str) -> str:
    return without_internal(request, "tasks", f"(from {tasks} where type <> 'DRIVER_TASK')")


def _matching(table: str, rows: str, wanted: tuple[Filter, ...]) -> tuple[str, list[object]]:
    where, values = conditions(TABLES[table], wanted)
    return (f"(from {rows} where {where})" if where else rows), values


# By name --------------------------------------------------------------------------------------------------------------


def _groups(
    request: SessionRequest, tasks: str, values: list[object], wanted: tuple[Filter, ...]
) -> tuple[str, list[object]]:
    """SQL: tasks counted by the columns of a summary, with the lowest id of each group; from the index's own counts
    where these have the columns of all filters."""
    attempts, first = "count(*)", "min(task_id)"
    counts = request.tables.task_counts(request.view)
    if counts is not None and _PRECOUNTED.issuperset(condition.key for condition in wanted):
        attempts, first = "sum(attempts)::bigint", "min(first_task_id)"
        tasks, values = _matching("tasks", _without_drivers(request, counts), wanted)
    columns = f"name, func_or_class_name, state, type, {attempts} as attempts, {first} as first"
    return f"select {columns} from {tasks} group by all", values


def _is_before(request: SessionRequest, since: Version) -> bool:
    """Whether the session's Ray is older. An unknown version counts as the newest."""
    version = minor_version(request.open.facts.ray_version)
    return version is not None and version < since


def _by_name(request: SessionRequest, groups: str, values: list[object], key: str) -> tuple[Iterator[str], Totals]:
    """The counts by `key`, the SQL of a name."""
    rows = request.tables.fetch(_named_counts(groups, key), values)
    # Names that differ only in a secret are counted together.
    names = {name: clean for *_, name in rows if (clean := request.redacted(name)) != name}
    if names:
        pairs = ", ".join(f"{text(name)}: {text(clean)}" for name, clean in names.items())
        rows = request.tables.fetch(_named_counts(groups, f"coalesce(map {{{pairs}}}[{key}], {key})"), values)
    return _object(row[0] for row in rows), Totals(*rows[0][1:5]) if rows else Totals()


def _named_counts(groups: str, name: str) -> str:
    """SQL: the text of each name's counts, the totals of all, and the name. In the order of task ids, as in Ray: a name
    has the type of its first task. The tasks are read once: expressions are computed on their few groups."""
    return f"""
        with met as materialized ({groups}),
        counted as (
            select
                {name} as name, {_STATE} as state, sum(attempts)::bigint as attempts,
                min(met.first) as first, arg_min(type, met.first) as type
            from met group by all
        ),
        written as (
            select name, min(first) as first, concat(to_json(name), ': ', to_json({{
                'func_or_class_name': name,
                'type': arg_min(type, first),
                'state_counts': map_from_entries(list((state, attempts) order by first))
            }})) as text
            from counted group by name
        )
        select text, totals.*, name
        from written, (select {_TOTALS} from met) as totals order by first
        """


# By lineage -----------------------------------------------------------------------------------------------------------


def _tree(request: SessionRequest, tasks: str, values: list[object], count: int) -> list[Node]:
    if count > TREE_MAX:
        raise ApiError(
            400,
            f"too many task attempts for a tree: {count}, at most {TREE_MAX}. Select one job "
            "(filter_keys=job_id&filter_predicates==&filter_values=...), or use summary_by=func_name",
        )
    attempts = f"""
        select
            task_id,
            case
                when type in ('ACTOR_TASK', 'ACTOR_CREATION_TASK') then concat('actor:', actor_id)
                else {_PARENT}
            end,
            {_NAME},
            type,
            {_STATE},
            ray_ms(pending_args_avail_ns),
            case when type = 'ACTOR_CREATION_TASK' then coalesce(called, split_part(func_or_class_name, '.', 1)) end,
            case when type = 'ACTOR_CREATION_TASK' then {_PARENT} end
        from {tasks} left join (
            select actor_id, coalesce(nullif(repr_name, ''), class_name) as called
            from {request.tables.source("actors", request.view)}
        ) using (actor_id)
    """
    retried = f"(select task_id from {tasks} where attempt_number > 0)"
    # Only retried tasks are sorted: sorting all takes 270 MB for a million.
    pages = chain(
        request.tables.stream(f"{attempts} where task_id not in {retried}", values * 2),
        request.tables.stream(f"{attempts} where task_id in {retried} order by task_id, attempt_number", values * 2),
    )
    parents = {parent for (parent,) in request.tables.rows(f"select distinct {_PARENT} from {tasks}", values)}
    rows = cast(Iterator[Attempt], chain.from_iterable(pages))
    return build_tree(rows, parents, request.redacted, failed_first=not _is_before(request, _FAILED_FIRST_SINCE))


# Answers --------------------------------------------------------------------------------------------------------------


def _object(members: Iterable[str]) -> Iterator[str]:
    yield "{"
    yield ", ".join(members)
    yield "}"


def _answer(
    request: SessionRequest,
    table: str,
    summary: Iterable[str],
    result: Mapping[str, int | str],
    counts: tuple[int, int],
    notes: list[str],
) -> Response:
    def parts() -> Iterator[str]:
        total, filtered = counts
        yield f'{{"result": true, "msg": "", "data": {{"result": {{"total": {total}, "num_after_truncation": {total}, '
        yield f'"num_filtered": {filtered}, "result": {{"node_id_to_summary": {{"cluster": {{"summary": '
        yield from summary
        yield f", {_json(result)[1:]}}}}}, "
        warning = warnings.warning(request, table)
        yield f'"partial_failure_warning": {_json(warning)}, "warnings": {_json(notes or None)}}}}}}}'

    return streamed_json(parts())


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_SUMMARY = json_of(component("Summary"))

routes = [
    SessionRoute(
        "/api/v0/tasks/summarize",
        summarize_tasks,
        parameters=(
            *VIEW,
            Parameter("summary_by", one_of_texts("func_name", "task_name", "lineage"), "How to group tasks."),
            TIMEOUT,
            EXCLUDE_INTERNAL,
            *FILTERS,
        ),
        content=_SUMMARY,
        forwarded=True,
    ),
    SessionRoute(
        "/api/v0/actors/summarize",
        summarize_actors,
        parameters=(*VIEW, TIMEOUT, EXCLUDE_INTERNAL, *FILTERS),
        content=_SUMMARY,
        forwarded=True,
    ),
]
