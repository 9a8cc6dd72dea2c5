"""The state API's listings: `/api/v0/{tasks, actors, nodes, jobs, workers, …}`.

Rows are chosen, counted and written as JSON by SQL. Filters apply before limits; as in Ray they compare text without
case and know each column's type. Beyond Ray: any `limit`, `offset` and `cursor`, `sort` by a column, `order`, and
`exclude_internal`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response

from ray_history.history.read.json_rows import may_hold_secret, row
from ray_history.server.api import cursor
from ray_history.server.completeness import warnings as losses
from ray_history.server.http.query_params import MOST_DIGITS, Filter, boolean, filters, integer, one_of
from ray_history.server.http.responses import ApiError, Streamed, growing_json, listed_json
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.manager import LITTLE, MUCH
from ray_history.server.sessions.routes import (
    FLAG,
    NUMBER,
    TEXT,
    TIMEOUT,
    VIEW,
    Parameter,
    SessionRoute,
    array_of,
    component,
    json_of,
    one_of_texts,
)

_COUNTS_KEPT = 1000
_FEW = 100
"""Rows up to which planning a query takes longer than making them."""
_ALL_FROM_SOURCE = 10_000
"""Rows of which Ray's sources send all, so that it lists the first by key; of more they send any."""
_WIDE = 1_000
"""Tasks that are sorted as they are; of more only their keys are: a million whole ones do not fit into memory."""
_AT_ONCE = 20_000
"""Rows that are made however slowly they are read: a slow reader then holds text, not a running query."""
_HELD = 1024
"""Rows that are made before the first are sent."""
_SOME = 256
"""Of more, rows that are sent at a time: text that fits into a processor's cache is sooner passed on."""
ALIASES = {"task_type": "type", "task_name": "name"}
"""KubeRay's server knows these two by other names."""


_WORKER_TIMES = ("start_time_ms", "end_time_ms", "worker_launch_time_ms", "worker_launched_time_ms")
_AT_SOURCE = {"name": "told_name"}
"""Ray looks for tasks of a name where they come from, by the plain one; rows show that of their actor's `repr`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One listing: its table, what it is sorted by, and what can be filtered, with each column's type."""

    table: str
    key: str
    text: str
    """Columns that are text."""
    numbers: str = ""
    flags: str = ""
    at_source: tuple[str, ...] = ()
    """Filters that Ray applies where the rows come from: they count into `total`."""
    then: str = ""
    """What rows of the same key are sorted by, so that answers and pages never differ by chance."""
    times: Mapping[str, str] = field(default_factory=dict)
    """What rows can be sorted by besides, as SQL."""
    first: str = ""
    """What Ray sorts them by, if not simply by the key."""

    @property
    def filterable(self) -> list[str]:
        return sorted(f"{self.text} {self.numbers} {self.flags}".split())

    @property
    def sortable(self) -> dict[str, str]:
        return {name: name for name in (*self.filterable, self.key)} | dict(self.times)


LISTINGS = {
    listing.table: listing
    for listing in (
        Listing(
            "tasks",
            "task_id",
            "actor_id error_type func_or_class_name job_id language name node_id parent_task_id placement_group_id "
            "state task_id type worker_id",
            "attempt_number worker_pid",
            "is_debugger_paused is_internal",
            at_source=("task_id", "job_id", "actor_id", "name", "state"),
            then=", attempt_number",
            times={
                "creation_time_ms": "pending_args_avail_ns",
                "start_time_ms": "running_ns",
                "end_time_ms": "coalesce(failed_ns, finished_ns)",
                "duration": "coalesce(failed_ns, finished_ns) - running_ns",
            },
        ),
        Listing(
            "actors",
            "actor_id",
            "actor_id class_name job_id name node_id placement_group_id ray_namespace repr_name state",
            "pid",
            "is_internal",
            times={"start_time_ms": "start_ns", "end_time_ms": "end_ns", "duration": "end_ns - start_ns"},
        ),
        Listing(
            "nodes",
            "node_id",
            "node_id node_ip node_name state",
            flags="is_head_node",
            times={"start_time_ms": "start_ns", "end_time_ms": "end_ns", "duration": "end_ns - start_ns"},
        ),
        Listing(
            "jobs",
            "job_id",
            "job_id status submission_id type",
            flags="is_internal",
            then=", submission_id",
            first="job_id nulls first",
            times={"start_time": "start_ms", "end_time": "end_ms", "duration": "end_ms - start_ms"},
        ),
        Listing(
            "workers",
            "worker_id",
            "exit_type ip node_id worker_id worker_type",
            "debugger_port num_paused_threads pid",
            "is_alive",
            times={name: f"nullif({name}, 0)" for name in _WORKER_TIMES},
        ),
        Listing(
            "placement_groups",
            "placement_group_id",
            "creator_job_id name placement_group_id state",
            flags="is_detached",
            times={"creation_time_ms": "created_ns", "end_time_ms": "end_ns"},
        ),
        Listing(
            "runtime_envs",
            "creation_time_ms",
            "error node_id runtime_env",
            flags="success",
            then=", node_id, runtime_env",
            first="creation_time_ms desc nulls first",
        ),
        Listing(
            "cluster_events",
            "event_ns",
            "event_id severity source_type",
            then=", event_id",
            times={"time": "event_ns"},
        ),
    )
}


def list_rows(request: SessionRequest, table: str) -> Response:
    """The rows of the state API's listing."""
    tables, query = request.tables, request.query
    listing = LISTINGS[table]
    limit = integer(query, "limit", 100, least=0)
    page_of = cursor.begun(request)
    offset = page_of.offset if page_of else integer(query, "offset", 0, least=0)
    integer(query, "timeout", 30, least=0)  # nothing here takes long enough for it
    detail = boolean(query, "detail", default=False)
    asked_for = filters(query, ALIASES)
    without_drivers = table == "tasks" and boolean(query, "exclude_driver", default=True)
    where, values = conditions(listing, asked_for)

    def listed(rows: str) -> str:
        users = without_internal(request, table, rows)
        return f"(from {users} where not is_driver)" if without_drivers else users

    def texts(chosen: str, *, few: bool, one: bool = False) -> str:
        prepared = table == "tasks" and detail and request.redact and not few
        environments = tables.environments() if prepared else ()
        made = row(table, detail=detail, redact=request.redact, few=few, environments=environments)
        clean = prepared and tables.are_clean()
        suspect = "true" if one else may_hold_secret(table, detail=detail, clean=clean)  # one is sooner looked through
        return f"select encode({made}), {suspect if request.redact else 'false'} from ({chosen})"

    if _is_one(listing, asked_for):  # a few attempts: told at once, and counted as they come
        alone = f"where {where}{_order(listing, query, by_key=True)}"
        found = tables.fetch_task(
            asked_for[0].value,
            request.view,
            lambda rows: texts(f"from {listed(rows)} {alone}", few=True, one=True),
            values,
        )
        head, tail = _envelope(
            request, table, len(found), len(found), page_of.next(limit, len(found)) if page_of else None
        )
        return listed_json(head, _texts(found[offset : offset + limit]), tail)
    rows = listed(_source(request, table, asked_for))
    chosen = f"from {rows} where {where or 'true'}"
    total, filtered = _counted(request, rows, listing, asked_for)
    head, tail = _envelope(request, table, total, filtered, page_of.next(limit, filtered) if page_of else None)
    order = _order(listing, query, by_key=filtered <= min(limit, _AT_ONCE) or total <= _ALL_FROM_SOURCE)
    by_keys = table == "tasks" and "sort" in query and limit > _WIDE

    def page(limit: int, offset: int) -> tuple[str, list[object]]:
        part = f"{order} limit {limit} offset {offset}"
        # Which rows first, then their texts: otherwise those of rows that nobody asked for are made and sorted too.
        if not by_keys:
            return texts(chosen + part, few=limit <= _FEW), values
        keys = f"select task_id, attempt_number {chosen}{part}"
        wide = f"select wide.* from ({chosen}) as wide semi join ({keys}) as keys using (task_id, attempt_number)"
        return texts(wide + order, few=False), values * 2

    expected = min(limit, max(filtered - offset, 0))
    some = _HELD if expected <= _HELD else _SOME

    def at_once() -> Generator[list[tuple[bytes, bool]]]:
        first = tables.first_tasks(limit + limit // 4, request.view) if table == "tasks" else None
        made = 0
        if first and limit > _FEW and not (where or order or offset):
            # Read by one core: others would read, and make, groups of rows behind those that are asked for.
            for rows in tables.fetch_some(f"{texts(f'from {listed(first)}', few=False)} limit {limit}", [], some):
                made += len(rows)
                yield rows
        if made < expected or not made:  # more than a few are not listed
            yield from tables.fetch_some(*page(limit - made, offset + made), some)

    if expected <= _AT_ONCE:
        made = at_once()
        first = next(made)
        if len(first) == expected:
            made.close()
            return listed_json(head, _texts(first), tail)
        return growing_json(head, map(_texts, chain([first], made)), tail)

    def pages_by_keys() -> Iterator[list[tuple[bytes, bool]]]:
        end = min(offset + limit, filtered)
        for at in range(offset, end, _AT_ONCE):
            yield tables.fetch(*page(min(_AT_ONCE, end - at), at))

    pages = pages_by_keys() if by_keys else request.open.stream(*page(limit, offset), MUCH if detail else LITTLE)

    def parts() -> Generator[bytes]:
        yield head
        separator = b""
        for rows in pages:
            yield separator + b", ".join(_texts(rows))
            separator = b", "
        yield tail

    return Streamed(parts())


def _envelope(
    request: SessionRequest, table: str, total: int, filtered: int, following: cursor.Following | None
) -> tuple[bytes, bytes]:
    """What stands before and after the rows."""
    nothing = None if table == "runtime_envs" else ""  # as Ray does
    warning = msgspec.json.encode(losses.warning(request, table) or nothing).decode()
    head = (
        '{"result": true, "msg": "", "data": {"result": {'
        f'"total": {total}, "num_after_truncation": {total}, "num_filtered": {filtered}, "result": ['
    )
    more = f', "next_cursor": {msgspec.json.encode(following.token).decode()}' if following else ""
    return head.encode(), f'], "partial_failure_warning": {warning}, "warnings": null{more}}}}}}}'.encode()


def _is_one(listing: Listing, asked_for: list[Filter]) -> bool:
    """Whether nothing but a row's own key is asked for, in a listing whose total counts what matches."""
    if len(asked_for) != 1 or listing.key not in listing.at_source:
        return False
    (only,) = asked_for
    return (only.key, only.predicate) == (listing.key, "=") and _is_exact(only.key, only.value)


def without_internal(request: SessionRequest, table: str, rows: str) -> str:
    """SQL: the rows, with `exclude_internal` without those of Ray's own: job supervisors, and what polling causes."""
    if not boolean(request.query, "exclude_internal", default=False) or "is_internal" not in LISTINGS[table].flags:
        return rows
    return f"(from {rows} where not is_internal)"


def _source(request: SessionRequest, table: str, asked_for: list[Filter]) -> str:
    """SQL: the rows of a table, as far as they can match."""
    for each in asked_for:
        if table == "tasks" and each.key == "task_id" and each.predicate == "=":
            return request.tables.task(each.value, request.view)
    return request.tables.source(table, request.view)


def _counted(request: SessionRequest, rows: str, listing: Listing, asked_for: list[Filter]) -> tuple[int, int]:
    """Rows before and after filters. Conditions stand in `where`, so that Parquet's statistics spare most work."""
    key = (rows, tuple(asked_for))
    known = request.open.counts.get(key)
    if known is None:
        total = _count(request, rows, *conditions_at_source(listing, asked_for))
        same = is_counted_at_source(listing, asked_for)
        filtered = total if same else _count(request, rows, *conditions(listing, asked_for))
        known = total, filtered
        if len(request.open.counts) < _COUNTS_KEPT:
            request.open.counts[key] = known
    return known


def _count(request: SessionRequest, rows: str, where: str, values: list[object]) -> int:
    ((number,),) = request.tables.rows(f"select count(*) from {rows} where {where or 'true'}", values)
    return int(number)


def is_counted_at_source(listing: Listing, request: list[Filter]) -> bool:
    """Whether Ray counts nothing but what matches."""
    return all(each.key in listing.at_source and each.key not in _AT_SOURCE for each in request)


def conditions_at_source(listing: Listing, request: list[Filter]) -> tuple[str, list[object]]:
    """SQL for the filters that Ray applies where the rows come from, and its parameters."""
    return conditions(listing, [each for each in request if each.key in listing.at_source], _AT_SOURCE)


def conditions(
    listing: Listing, request: list[Filter], columns: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, list[object]]:
    """SQL for the filters, and its parameters; `columns` are where others are looked at than are named."""
    sql: list[str] = []
    values: list[object] = []
    for condition in request:
        key = condition.key
        if key not in listing.filterable:
            raise ApiError(
                400,
                f"The given filter column {key[:60]} is not supported. Supported filter columns: {listing.filterable}",
            )
        compare = "=" if condition.predicate == "=" else "is distinct from"
        if key in listing.numbers.split():
            values.append(_number(condition))
            sql.append(f"{key} {compare} ?")
        elif key in listing.flags.split():
            values.append(_flag(condition))
            sql.append(f"{key} {compare} ?")
        elif _is_exact(key, condition.value):
            values.append(condition.value)  # lets Parquet's statistics and bloom filters leave out what cannot match
            sql.append(f"{key} {compare} ?")
        else:
            values.append(condition.value.lower())
            sql.append(f"lower({columns.get(key, key)}::varchar) {compare} ?")
    return " and ".join(sql), values


def _is_exact(key: str, value: str) -> bool:
    """Ids are stored in lower case, states and types in upper case: comparing them needs no conversion. Ids of
    submitted jobs and of cluster events are as their makers wrote them."""
    if key.endswith("_id") and key not in ("submission_id", "event_id"):
        return value == value.lower()
    return key in ("state", "type", "error_type", "language", "worker_type", "exit_type") and value == value.upper()


def _number(condition: Filter) -> int:
    try:
        number = int(condition.value)
    except ValueError:
        raise ApiError(
            400, f"Invalid filter `{condition.key} {condition.value[:40]}` for a int type column; give an integer"
        ) from None
    if abs(number) >= 10**MOST_DIGITS:
        raise ApiError(400, f"the number of filter {condition.key} is too long; it takes at most {MOST_DIGITS} digits")
    return number


def _flag(condition: Filter) -> bool:
    text = condition.value.lower()
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise ApiError(
        400, f"Invalid filter `{condition.key} {condition.value[:40]}` for a boolean type column; give true or false"
    )


def _texts(rows: Iterable[tuple[bytes, bool]]) -> list[bytes]:
    """Rows as JSON; free text of the suspect ones is looked through for what looks like a secret."""
    return [msgspec.json.encode(redacted(msgspec.json.decode(text))) if suspect else text for text, suspect in rows]


def _order(listing: Listing, query: QueryParams, *, by_key: bool) -> str:
    column = query.get("sort", "")
    if column and column not in listing.sortable:
        raise ApiError(400, f"sort is {column[:40]!r}; it takes one of {', '.join(sorted(listing.sortable))}")
    order = one_of(query, "order", ("asc", "desc"), "asc")
    if column:
        return f" order by {listing.sortable[column]} {order} nulls last, {listing.key}{listing.then}"
    # Which of very many rows a truncated listing holds is undefined in Ray; sorting a million for it would be waste. Of
    # a whole listing that is streamed it would be worse: all rows would have to be held at once, and they do not fit.
    if not by_key:
        return ""
    first = listing.first if listing.first and not query.get("order") else f"{listing.key} {order}"
    return f" order by {first}{listing.then}"


FILTERS = (
    Parameter("filter_keys", array_of(TEXT), "Columns to filter by, one per filter."),
    Parameter("filter_predicates", array_of(one_of_texts("=", "!=")), "Comparisons, one per filter."),
    Parameter("filter_values", array_of(TEXT), "Values to compare with, one per filter."),
)
EXCLUDE_DRIVER = Parameter("exclude_driver", FLAG, "Exclude the tasks of drivers.")
EXCLUDE_INTERNAL = Parameter(
    "exclude_internal", FLAG, "Exclude what Ray starts itself, such as job supervisors, and what polling causes."
)
_PAGING = (
    Parameter("limit", NUMBER, "Maximum number of rows."),
    Parameter("offset", NUMBER, "Number of rows to skip."),
    Parameter("cursor", TEXT, "Page to send: empty for the first, then the `next_cursor` of the page before."),
    Parameter("detail", FLAG, "Include all columns."),
    Parameter("sort", TEXT, "Column to sort by."),
    Parameter("order", one_of_texts("asc", "desc"), "Sort order."),
    TIMEOUT,
)


def _route(table: str) -> SessionRoute:
    flags = LISTINGS[table].flags
    exclusions = [EXCLUDE_DRIVER] if table == "tasks" else []
    exclusions += [EXCLUDE_INTERNAL] if "is_internal" in flags.split() else []
    return SessionRoute(
        f"/api/v0/{table}",
        partial(list_rows, table=table),
        parameters=(*VIEW, *_PAGING, *exclusions, *FILTERS),
        content=json_of(component(f"list_of_{table}")),
        forwarded=True,
    )


routes = [_route(table) for table in LISTINGS]
