"""Filters of the state API as SQL."""

from __future__ import annotations

import pytest

from ray_history.history.registry import TABLES
from ray_history.server.api.filters import conditions, counts_only_matches, is_exact, source_conditions
from ray_history.server.http.query_params import Filter
from ray_history.server.http.responses import ApiError


@pytest.mark.parametrize(
    ("table", "condition", "sql", "value"),
    [
        ("tasks", Filter("task_id", "=", "ab"), "task_id = ?", "ab"),
        ("tasks", Filter("task_id", "!=", "ab"), "task_id is distinct from ?", "ab"),
        ("tasks", Filter("task_id", "=", "AB"), "lower(task_id::varchar) = ?", "ab"),
        ("tasks", Filter("state", "=", "FAILED"), "state = ?", "FAILED"),
        ("tasks", Filter("state", "=", "Failed"), "lower(state::varchar) = ?", "failed"),
        ("tasks", Filter("name", "=", "Work"), "lower(name::varchar) = ?", "work"),
        ("tasks", Filter("worker_pid", "=", "-7"), "worker_pid = ?", -7),
        ("tasks", Filter("is_internal", "!=", "True"), "is_internal is distinct from ?", True),
        ("nodes", Filter("is_head_node", "=", "0"), "is_head_node = ?", False),
        ("jobs", Filter("submission_id", "=", "raysubmit_X"), "lower(submission_id::varchar) = ?", "raysubmit_x"),
    ],
)
def test_a_filter_knows_the_type_and_case_of_its_column(table: str, condition: Filter, sql: str, value: object) -> None:
    assert conditions(TABLES[table], [condition]) == (sql, [value])


def test_filters_are_combined() -> None:
    found = conditions(TABLES["tasks"], [Filter("state", "=", "FAILED"), Filter("worker_pid", "!=", "1")])
    assert found == ("state = ? and worker_pid is distinct from ?", ["FAILED", 1])
    assert conditions(TABLES["tasks"], []) == ("", [])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (Filter("nothing", "=", "1"), "Supported filter columns: ['actor_id', "),
        (Filter("worker_pid", "=", "x"), "Invalid filter `worker_pid x` for a int type column; expected an integer"),
        (Filter("worker_pid", "=", "1" * 19), "numbers may have at most 18 digits"),
        (Filter("is_internal", "=", "2"), "expected true or false"),
    ],
)
def test_an_invalid_filter_is_refused_with_what_to_do(condition: Filter, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        conditions(TABLES["tasks"], [condition])
    assert refused.value.status == 400
    assert message in refused.value.message


def test_ray_filters_tasks_at_the_source_by_their_plain_name() -> None:
    filters = [Filter("name", "=", "work"), Filter("type", "=", "NORMAL_TASK"), Filter("job_id", "=", "01000000")]
    sql, values = source_conditions(TABLES["tasks"], filters)
    assert sql == "lower(told_name::varchar) = ? and job_id = ?"
    assert values == ["work", "01000000"]


@pytest.mark.parametrize(
    ("table", "keys", "counts"),
    [
        ("tasks", [], True),
        ("tasks", ["task_id", "state"], True),
        ("tasks", ["name"], False),
        ("tasks", ["type"], False),
        ("nodes", ["node_id"], False),
    ],
)
def test_the_total_counts_only_matches_if_all_filters_apply_at_the_source(
    table: str, keys: list[str], counts: bool
) -> None:
    assert counts_only_matches(TABLES[table], [Filter(key, "=", "x") for key in keys]) is counts


@pytest.mark.parametrize(
    ("key", "value", "exact"),
    [
        ("node_id", "ab", True),
        ("node_id", "Ab", False),
        ("event_id", "ab", False),
        ("type", "ACTOR_TASK", True),
        ("type", "Actor_Task", False),
        ("name", "work", False),
    ],
)
def test_a_value_in_the_case_of_its_column_is_compared_as_it_is(key: str, value: str, exact: bool) -> None:
    assert is_exact(key, value) is exact
