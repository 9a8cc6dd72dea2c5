from __future__ import annotations

import pytest

from ray_history.collector.polling.answers import JobRow
from ray_history.collector.polling.endpoints import DATASETS, TRAIN_V1, TRAIN_V2
from ray_history.collector.polling.memory import MAX_GAP, NODES_PER_CYCLE, Change, Pace, SessionMemory


def memory(*jobs: tuple[str, str]) -> SessionMemory:
    found = SessionMemory("session")
    found.update_jobs([JobRow(name, status) for name, status in jobs])
    return found


def test_the_gap_between_requests_doubles_up_to_a_limit_and_shrinks_after_a_change() -> None:
    pace, gaps = Pace(4), []
    for _ in range(6):
        pace.requested(0)
        gaps.append(pace.due)
    assert gaps == [4, 8, 16, 32, 32, 32]
    assert gaps[-1] == MAX_GAP
    pace.changed(10)
    assert pace.due == 14


@pytest.mark.parametrize(
    ("rows", "ended"),
    [
        ([JobRow("01", "RUNNING")], False),
        ([JobRow("01", "SUCCEEDED")], True),
        ([JobRow("01", "FAILED"), JobRow("01", "RUNNING")], False),
        ([JobRow("01", "FAILED"), JobRow("01", "STOPPED")], True),
    ],
)
def test_a_job_has_ended_if_all_its_rows_have(rows: list[JobRow], ended: bool) -> None:
    found = SessionMemory("session")
    found.update_jobs(rows)
    assert found.jobs["01"].ended is ended


def test_an_empty_list_of_jobs_changes_nothing() -> None:
    found = memory(("01", "RUNNING"))
    found.update_jobs([JobRow(None, "PENDING"), JobRow("", "PENDING")])
    assert list(found.jobs) == ["01"]


def test_the_end_of_a_job_makes_train_due() -> None:
    found = memory(("01", "RUNNING"))
    found.train.changed(0)
    assert not found.train_due(final=False)
    found.update_jobs([JobRow("01", "SUCCEEDED")])
    assert found.train_pending == {TRAIN_V1, TRAIN_V2}
    assert found.train_due(final=False)
    for endpoint in (TRAIN_V1, TRAIN_V2):
        found.settle(endpoint, "", Change.UNCHANGED)
    assert not found.train_due(final=False)
    assert found.train_due(final=True)


def test_an_ended_job_is_done_after_an_answer_and_given_up_after_two_empty_ones() -> None:
    found = memory(("01", "SUCCEEDED"), ("02", "SUCCEEDED"))
    found.settle(DATASETS, "01", Change.CHANGED)
    for _ in range(2):
        found.settle(DATASETS, "02", Change.EMPTY)
    found.number = 100
    assert found.jobs_due(final=False) == []
    assert found.jobs_due(final=True) == ["02"]


def test_all_nodes_are_polled_in_turn() -> None:
    found = memory()
    nodes = [f"n{number}" for number in range(2 * NODES_PER_CYCLE + 1)]
    seen: list[str] = []
    for _ in range(3):
        found.number += 1
        seen += found.nodes_due(nodes, final=False)
    assert sorted(seen) == sorted(nodes)
