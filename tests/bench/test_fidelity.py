"""The comparison of a live dashboard's answers with ours: what counts as equal, and what cannot count."""

from __future__ import annotations

from typing import Any

import pytest

from bench.fidelity import document, reasons
from bench.fidelity.comparison import Comparison
from bench.fidelity.rules import route

ANSWERED, OBSERVED = 1_800_000_010.0, 1_800_000_020.0
EARLY, LATE = 1_800_000_000_000, 1_800_000_030_000


def compared(live: Any, ours: Any, first: Any = None, url: str = "/api/v0/tasks") -> Comparison:
    comparison = Comparison(url, ANSWERED, OBSERVED)
    comparison.compare(live if first is None else first, live, ours)
    return comparison


def task(identity: str, **more: Any) -> dict[str, Any]:
    return {"task_id": identity, "attempt_number": 0, "name": "leaf", "creation_time_ms": EARLY, **more}


def test_rows_are_matched_by_their_id() -> None:
    comparison = compared([task("a"), task("b", name="other")], [task("b", name="other"), task("a")])
    assert (comparison.equal, comparison.total) == (8, 8)


def test_every_leaf_of_a_row_that_only_one_side_has_is_unequal() -> None:
    comparison = compared([task("a"), task("b")], [task("a"), task("c")])
    assert (comparison.equal, comparison.total) == (4, 12)
    assert [(found.leaves, found.path) for found in comparison.differences] == [(4, "[]"), (4, "[]")]


@pytest.mark.parametrize(
    ("live", "ours"), [(1, 2), (1, True), (1, "1"), (None, ""), ({}, []), ([], None), ("a", "<absent>")]
)
def test_unequal_leaves(live: Any, ours: Any) -> None:
    comparison = compared({"x": live}, {"x": ours})
    assert (comparison.equal, comparison.total) == (0, 1)


def test_leaves_that_drift_between_two_live_answers_are_not_scored() -> None:
    comparison = compared({"x": 2, "y": 3}, {"x": 5, "y": 3}, first={"x": 1, "y": 3})
    assert (comparison.equal, comparison.total, comparison.drifting) == (1, 1, 1)


def test_rows_that_began_after_the_other_side_looked_are_set_apart() -> None:
    later = task("b", creation_time_ms=LATE)
    for live, ours in (([task("a"), later], [task("a")]), ([task("a")], [task("a"), later])):
        comparison = compared(live, ours)
        assert (comparison.equal, comparison.total, comparison.rows_apart, comparison.leaves_apart) == (4, 4, 1, 4)


def test_a_row_that_changed_after_the_live_answer_is_set_apart_where_it_differs() -> None:
    comparison = compared(
        [task("a", state="RUNNING", end_time_ms=None)], [task("a", state="FINISHED", end_time_ms=LATE)]
    )
    assert (comparison.equal, comparison.total, comparison.rows_apart, comparison.leaves_apart) == (4, 4, 1, 2)


def test_what_moved_after_the_live_answer_may_enter_or_leave_a_list() -> None:
    worker = "ab" * 28
    comparison = Comparison("/api/v0/tasks", ANSWERED, OBSERVED, {"b": LATE / 1000, worker: LATE / 1000})
    comparison.compare([task("a"), task("b")], [task("a"), task("b")], [task("a")])
    comparison.compare(["x.log"], ["x.log"], ["x.log", f"worker-{worker}-01000000-7.out"])
    assert (comparison.equal, comparison.total, comparison.rows_apart) == (5, 5, 2)


def test_leaves_without_a_truth_are_not_scored() -> None:
    comparison = compared({"cpu": 1.0, "ip": "x"}, {"cpu": 2.0, "ip": "x"}, url="/nodes?view=summary")
    assert (comparison.equal, comparison.total, comparison.unscored) == (1, 1, 1)


def test_values_without_an_id_are_compared_as_a_multiset() -> None:
    comparison = compared(["a", "b", "b"], ["b", "a", "c"])
    assert (comparison.equal, comparison.total) == (2, 4)


def test_every_recorded_difference_has_a_reason() -> None:
    places = {
        (place["route"], place["path"], f"{found['ray']} {found['scenario']}")
        for found in document.results()
        for place in found["differences"]
    }
    assert {place for place in places if reasons.reason(*place) == reasons.UNEXPLAINED} == set()


def test_the_scores_in_the_documentation_are_the_recorded_ones() -> None:
    assert document.PAGE.read_text() == document.page(), "run `python -m bench.fidelity docs`"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/api/v0/tasks?detail=1", "/api/v0/tasks"),
        ("/api/v0/tasks?detail=1&filter_keys=state&filter_values=X", "/api/v0/tasks filtered"),
        ("/api/v0/tasks/summarize?filter_keys=job_id&summary_by=lineage", "/api/v0/tasks/summarize by lineage"),
        ("/api/jobs/", "/api/jobs/"),
        ("/api/jobs/a%20b/logs", "/api/jobs/{id}/logs"),
        ("/nodes?view=summary", "/nodes summary"),
        ("/api/v0/logs/file?node_id=x&pid=5", "/api/v0/logs/file by pid"),
    ],
)
def test_answers_are_grouped_by_route(url: str, name: str) -> None:
    assert route(url) == name
