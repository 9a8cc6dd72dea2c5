"""Groups of failed attempts: joined, and with the follow-up failures of their cause."""

from __future__ import annotations

from typing import Any

import pytest

from ray_history.server.ui.session import failures
from ray_history.server.ui.session.failures import Group


def row(error: str, function: str, attempts: int = 1, *, cause: str | None = None, **changes: Any) -> Any:
    example = {
        "task_id": function, "attempt_number": 0, "name": function, "type": "NORMAL_TASK", "job_id": "01",
        "actor_id": None, "node_id": "n", "worker_id": "w", "error": "",
    }  # fmt: skip
    values: dict[str, Any] = {
        "error": error, "function": function, "cause": cause, "raised": error, "of_input": False, "attempts": attempts,
        "tasks": attempts, "recovered": 0, "first_ns": 1, "last_ns": 2, "node_id": "n", "jobs": ["01"],
        "example": example,
    }  # fmt: skip
    return failures._Row(**values | changes)


def counts(rows: list[Any]) -> dict[tuple[str, str], tuple[int, int]]:
    groups = failures._with_followers(rows)
    return {(group.error, group.function): (group.attempts, group.downstream) for group in groups}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("E", "a", 2), row("E", "b", 3)], {("E", "a"): (2, 0), ("E", "b"): (3, 0)}),
        ([row("E", "a", 2), row("E", "b", 3, cause="a")], {("E", "a"): (2, 3)}),
        ([row("E", "b", 3, cause="a"), row("E", "a", 2)], {("E", "a"): (2, 3)}),
        ([row("E", "a", 2), row("F", "b", 3, cause="a")], {("E", "a"): (2, 0), ("F", "b"): (3, 0)}),
        ([row("E", "b", 3, cause="gone"), row("E", "b", 1, cause="lost")], {("E", "b"): (4, 0)}),
        ([row("E", "a"), row("E", "a", 4, raised=None)], {("E", "a"): (5, 0)}),
    ],
    ids=["separate", "follower", "in any order", "another error", "no cause", "same key"],
)
def test_followers_are_added_to_the_group_of_their_cause(
    rows: list[Any], expected: dict[tuple[str, str], tuple[int, int]]
) -> None:
    assert counts(rows) == expected


def test_a_cause_is_found_by_the_name_of_its_task() -> None:
    cause = row("E", "Class.method")
    cause = cause._replace(example=cause.example | {"name": "pretty name"})
    assert counts([cause, row("E", "b", 3, cause="pretty name")]) == {("E", "Class.method"): (1, 3)}


def test_joined_groups_have_the_example_of_the_first_failure() -> None:
    one = Group.from_row(row("E", "a", 2, first_ns=5, last_ns=6, node_id="x", jobs=["02"], of_input=True))
    other = Group.from_row(row("E", "a", 3, first_ns=1, last_ns=9, node_id="y", jobs=["01", "02"], recovered=1))
    joined = one.joined(other)
    assert joined == other.joined(one)
    assert (joined.attempts, joined.tasks, joined.recovered) == (5, 5, 1)
    assert (joined.first_ns, joined.last_ns, joined.node_id, joined.jobs) == (1, 9, None, ["01", "02"])
    assert not joined.of_input
