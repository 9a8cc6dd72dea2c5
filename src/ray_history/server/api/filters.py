"""Filters of the state API as SQL: `filter_keys` with its companions, `exclude_driver` and `exclude_internal`.

As in Ray, filters compare text without case and know the type of each column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from starlette.datastructures import QueryParams

from ray_history.history.registry import TABLES, Table
from ray_history.server.http import query_params
from ray_history.server.http.query_params import MAX_DIGITS, Filter, boolean
from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import FLAG, TEXT, Parameter, array_of, one_of_texts

FILTERS = (
    Parameter("filter_keys", array_of(TEXT), "Columns to filter by, one per filter."),
    Parameter("filter_predicates", array_of(one_of_texts("=", "!=")), "Comparisons, one per filter."),
    Parameter("filter_values", array_of(TEXT), "Values to compare with, one per filter."),
)
EXCLUDE_DRIVER = Parameter("exclude_driver", FLAG, "Exclude the tasks of drivers.")
EXCLUDE_INTERNAL = Parameter(
    "exclude_internal", FLAG, "Exclude what Ray starts itself, such as job supervisors, and what polling causes."
)

_ALIASES = {"task_type": "type", "task_name": "name"}
"""Names that KubeRay's history server has for two columns of tasks."""
_COLUMNS_AT_SOURCE = {"name": "told_name"}
"""Ray filters tasks by their plain name, before it replaces the actor's class by its `repr` in the rows."""
_UPPER_CASE = frozenset(("state", "type", "error_type", "language", "worker_type", "exit_type"))
_MIXED_CASE_IDS = frozenset(("submission_id", "event_id"))


def parse_filters(query: QueryParams) -> tuple[Filter, ...]:
    return tuple(query_params.filters(query, _ALIASES))


def without_internal(request: SessionRequest, table: str, rows: str) -> str:
    """SQL: the rows, without Ray's own if the request sets `exclude_internal`."""
    if not boolean(request.query, "exclude_internal", default=False) or not TABLES[table].has_internal_rows:
        return rows
    return f"(from {rows} where not is_internal)"


def counts_only_matches(table: Table, filters: Iterable[Filter]) -> bool:
    """Whether Ray applies all filters at the source, so that `total` counts only rows that match."""
    return all(each.key in table.source_filters and each.key not in _COLUMNS_AT_SOURCE for each in filters)


def source_conditions(table: Table, filters: Iterable[Filter]) -> tuple[str, list[object]]:
    """SQL for the filters that Ray applies at the source of the rows, and its parameters."""
    return conditions(table, [each for each in filters if each.key in table.source_filters], _COLUMNS_AT_SOURCE)


def conditions(
    table: Table, filters: Iterable[Filter], columns: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, list[object]]:
    """SQL for the filters, and its parameters; `columns` replaces columns of text by others."""
    sql: list[str] = []
    values: list[object] = []
    for condition in filters:
        key = condition.key
        compare = "=" if condition.predicate == "=" else "is distinct from"
        column_type = table.filters.get(key)
        if column_type is None:
            raise ApiError(
                400,
                f"The given filter column {key[:60]} is not supported. "
                f"Supported filter columns: {sorted(table.filters)}",
            )
        if column_type is int:
            values.append(_integer(condition))
            sql.append(f"{key} {compare} ?")
        elif column_type is bool:
            values.append(_boolean(condition))
            sql.append(f"{key} {compare} ?")
        elif is_exact(key, condition.value):
            # Without a conversion, Parquet's statistics and bloom filters skip row groups without a match.
            values.append(condition.value)
            sql.append(f"{key} {compare} ?")
        else:
            values.append(condition.value.lower())
            sql.append(f"lower({columns.get(key, key)}::varchar) {compare} ?")
    return " and ".join(sql), values


def is_exact(key: str, value: str) -> bool:
    """Whether the value is in the case in which the column is stored: Ray's ids are lower case, states and types upper
    case."""
    if key.endswith("_id") and key not in _MIXED_CASE_IDS:
        return value == value.lower()
    return key in _UPPER_CASE and value == value.upper()


def _integer(condition: Filter) -> int:
    try:
        number = int(condition.value)
    except ValueError:
        raise ApiError(400, _invalid(condition, "int", "an integer")) from None
    if abs(number) >= 10**MAX_DIGITS:
        raise ApiError(400, f"filter {condition.key}: numbers may have at most {MAX_DIGITS} digits")
    return number


def _boolean(condition: Filter) -> bool:
    text = condition.value.lower()
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise ApiError(400, _invalid(condition, "boolean", "true or false"))


def _invalid(condition: Filter, column_type: str, expected: str) -> str:
    """Ray's message, with the expected value."""
    return (
        f"Invalid filter `{condition.key} {condition.value[:40]}` for a {column_type} type column; expected {expected}"
    )
