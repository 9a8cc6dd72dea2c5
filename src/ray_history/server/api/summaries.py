"""How many tasks and actors are in which state: `/api/v0/tasks/summarize` and `/api/v0/actors/summarize`.

By function name they are counted and written by SQL. `summary_by=lineage` makes a tree with a node for every task. Ray
looks at 10,000 tasks at most, here all are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, cast

import msgspec
from starlette.responses import Response

from ray_history.history.registry import TABLES
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
from ray_history.server.completeness import warnings as losses
from ray_history.server.http.query_params import Filter, filters, integer, one_of
from ray_history.server.http.responses import ApiError, streamed_json
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import TIMEOUT, VIEW, Parameter, SessionRoute, component, json_of, one_of_texts

MOST_IN_A_TREE = 1_200_000
"""Attempts; each takes about 300 bytes of memory until the answer is sent, and 300 bytes of the answer."""

_NAME = "coalesce(nullif(name, ''), func_or_class_name, '')"
_STATE = "coalesce(state, 'NIL')"
_PARENT = "case when not starts_with(parent_task_id, repeat('f', 40)) then nullif(parent_task_id, '') end"

_COUNTED = frozenset(("func_or_class_name", "is_internal", "job_id", "name", "state", "type"))
"""Columns by which tasks are counted ahead."""

_TOTALS = ", ".join(
    f"coalesce(sum(attempts) filter ({which}), 0)::bigint"
    for which in ("true", "type = 'NORMAL_TASK'", "type = 'ACTOR_TASK'", "type = 'ACTOR_CREATION_TASK'")
)
"""Of all attempts, and of those of each kind."""


def summarize_tasks(request: SessionRequest) -> Response:
    """Counts by name and state, or the tree of who called whom."""
    summary_by = one_of(request.query, "summary_by", ("func_name", "task_name", "lineage"), "func_name")
    integer(request.query, "timeout", 30, least=0)  # nothing here takes long enough for it
    wanted = parse_filters(request.query)
    tasks = _without_drivers(request, request.tables.source("tasks", request.view))
    matching, values = _matching("tasks", tasks, wanted)
    warnings = []
    summary: Iterable[str]
    if summary_by == "lineage":
        by_type = f"(select type, count(*) as attempts from {matching} group by type)"
        ((filtered, *kinds),) = request.tables.rows(f"select {_TOTALS} from {by_type}", values)
        top = _tree(request, matching, values, filtered)
        summary = tree_json(top)
        if lost := filtered - count_attempts(top):
            warnings.append(
                f"{lost} of {filtered} task attempts are not in the tree: the task or actor that they belong below is "
                "filtered out or unknown."
            )
    else:
        summary, (filtered, *kinds) = _by_name(request, *_met(request, matching, values, wanted))
    functions, methods, creations = kinds
    total = _total(request, "tasks", tasks, wanted, filtered)
    totals = {
        "total_tasks": functions,
        "total_actor_tasks": methods,
        "total_actor_scheduled": creations,
        "summary_by": "lineage" if summary_by == "lineage" else "func_name",
    }
    return _answer(request, "tasks", summary, totals, total, filtered, warnings)


def summarize_actors(request: SessionRequest) -> Response:
    """Counts by class and state."""
    integer(request.query, "timeout", 30, least=0)
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
    totals = {"total_actors": filtered, "summary_by": "class"}
    return _answer(request, "actors", _object(rows), totals, total, filtered, [])


def _total(request: SessionRequest, table: str, rows: str, wanted: tuple[Filter, ...], filtered: int) -> int:
    """Rows that Ray would have looked at, if `filtered` match."""
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


def _met(
    request: SessionRequest, tasks: str, values: list[object], wanted: tuple[Filter, ...]
) -> tuple[str, list[object]]:
    """SQL: tasks counted by what stands in their columns, with the lowest id of each group; ahead, if they are."""
    attempts, first = "count(*)", "min(task_id)"
    counts = request.tables.task_counts(request.view)
    if counts is not None and _COUNTED.issuperset(condition.key for condition in wanted):
        attempts, first = "sum(attempts)::bigint", "min(first_task_id)"
        tasks, values = _matching("tasks", _without_drivers(request, counts), wanted)
    columns = f"name, func_or_class_name, state, type, {attempts} as attempts, {first} as first"
    return f"select {columns} from {tasks} group by all", values


def _by_name(request: SessionRequest, met: str, values: list[object]) -> tuple[Iterator[str], tuple[int, ...]]:
    """In the order of task ids, as Ray meets them: a name has the type of its first task."""
    rows = request.tables.fetch(_counted(met, _NAME), values)
    names = {name: without for *_, name in rows if (without := shown(request, name)) != name}
    if names:
        known = ", ".join(f"{text(name)}: {text(without)}" for name, without in names.items())
        rows = request.tables.fetch(_counted(met, f"coalesce(map {{{known}}}[{_NAME}], {_NAME})"), values)
    return _object([row[:1] for row in rows]), (rows[0][1:5] if rows else (0, 0, 0, 0))


def _counted(met: str, name: str) -> str:
    """SQL: the text of each name's counts, the totals of all, and the name. All tasks are read once, and what is made
    of their columns is made of the few that differ."""
    return f"""
        with met as materialized ({met}),
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


def _tree(request: SessionRequest, tasks: str, values: list[object], count: int) -> list[Node]:
    if count > MOST_IN_A_TREE:
        raise ApiError(
            400,
            f"a tree of {count} task attempts; at most {MOST_IN_A_TREE} are taken. Choose one job "
            "(filter_keys=job_id&filter_predicates==&filter_values=...), or summary_by=func_name",
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
    again = f"(select task_id from {tasks} where attempt_number > 0)"
    # Only tasks that were tried again are sorted: sorting all takes 270 MB of a million.
    pages = chain(
        request.tables.stream(f"{attempts} where task_id not in {again}", values * 2),
        request.tables.stream(f"{attempts} where task_id in {again} order by task_id, attempt_number", values * 2),
    )
    parents = {parent for (parent,) in request.tables.rows(f"select distinct {_PARENT} from {tasks}", values)}
    return build_tree(cast(Iterator[Attempt], chain.from_iterable(pages)), parents, lambda name: shown(request, name))


def _object(members: list[tuple[Any, ...]]) -> Iterator[str]:
    yield "{"
    yield ", ".join(chain.from_iterable(members))
    yield "}"


def _answer(
    request: SessionRequest,
    table: str,
    summary: Iterable[str],
    totals: Mapping[str, int | str],
    total: int,
    filtered: int,
    warnings: list[str],
) -> Response:
    def parts() -> Iterator[str]:
        yield f'{{"result": true, "msg": "", "data": {{"result": {{"total": {total}, "num_after_truncation": {total}, '
        yield f'"num_filtered": {filtered}, "result": {{"node_id_to_summary": {{"cluster": {{"summary": '
        yield from summary
        yield f", {_json(totals)[1:]}}}}}, "
        lost = losses.warning(request, table)
        yield f'"partial_failure_warning": {_json(lost)}, "warnings": {_json(warnings or None)}}}}}}}'

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
