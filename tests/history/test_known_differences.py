"""Which differences between a live dashboard and the rebuilt tables are explained, and which never are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.known_differences import KNOWN, Comparison
from tests.history.living import Row

WORKER, NODE = "65" * 28, "3a" * 28
OWNER_EVENTS = [("PENDING_ARGS_AVAIL", 100.0), ("SUBMITTED_TO_WORKER", 110.0), ("FINISHED", 130.0)]
EARLIER, LATER = 50.0, 200.0
DIED = {"worker_id": WORKER, "node_id": NODE, "is_alive": False, "exit_type": "SYSTEM_ERROR", "exit_detail": "killed"}
LEFT = {**DIED, "exit_type": "INTENDED_USER_EXIT", "exit_detail": "exit_actor() is called."}
ALIVE = {**DIED, "is_alive": True, "exit_type": None, "exit_detail": None}


def attempt(number: int = 1, begun: float | None = 120.0, **fields: Any) -> Row:
    """A finished attempt; `begun` is when its executor began, and None if no report of it arrived."""
    states = [*OWNER_EVENTS, *([] if begun is None else [("RUNNING", begun)])]
    events = [{"state": state, "created_ms": moment} for state, moment in sorted(states, key=lambda each: each[1])]
    span = {"event_name": "task:execute", "start_time": begun, "end_time": (begun or 0) + 0.5}
    return {
        "task_id": f"{number:048x}",
        "name": "Mortal.pid",
        "state": "FINISHED",
        "type": "ACTOR_TASK",
        "job_id": "02000000",
        "language": "PYTHON",
        "creation_time_ms": 100.0,
        "end_time_ms": 130.0,
        "parent_task_id": "ff" * 24,
        "error_message": None,
        "error_type": None,
        "events": events,
        "profiling_data": {} if begun is None else {"component_id": WORKER, "events": [span]},
        "node_id": NODE,
        "worker_id": WORKER,
        "worker_pid": None if begun is None else 4711,
        "start_time_ms": begun,
        "task_log_info": None,
        "is_debugger_paused": None,
        **fields,
    }


def unexplained(live: list[Row], rebuilt: list[Row], worker: Row = DIED, node_state: str = "ALIVE") -> set[str]:
    """The names of the fields whose difference no rule explains."""

    def listings(rows: list[Row]) -> dict[str, dict[str, Row]]:
        tasks = {row["task_id"]: row for row in rows}
        nodes = {NODE: {"node_id": NODE, "state": node_state}}
        return {"tasks": tasks, "workers": {WORKER: worker}, "nodes": nodes, "jobs": {}}

    found = Comparison(listings(live), listings(rebuilt)).unexplained("tasks", KNOWN)
    return {text.split("): ")[1].split("\n")[0] for text in found}


REPORT = {"events", "profiling_data", "start_time_ms", "worker_pid"}
"""What differs when a report is missing."""


def test_equal_rows_do_not_differ() -> None:
    assert unexplained([attempt()], [attempt()]) == set()


def test_the_last_report_of_a_killed_worker_may_be_missing() -> None:
    assert unexplained([attempt()], [attempt(begun=None)]) == set()
    assert unexplained([attempt(begun=None)], [attempt()]) == set()


def test_a_part_of_it_may_have_arrived() -> None:
    rebuilt = attempt(profiling_data={"component_id": WORKER, "events": []})
    assert unexplained([attempt()], [rebuilt]) == set()


def test_the_last_report_of_a_killed_node_may_be_missing() -> None:
    assert unexplained([attempt()], [attempt(begun=None)], LEFT, node_state="DEAD") == set()


@pytest.mark.parametrize("worker", [LEFT, ALIVE])
def test_a_worker_that_could_send_its_last_report_has_none_missing(worker: Row) -> None:
    assert unexplained([attempt()], [attempt(begun=None)], worker) == REPORT


def test_an_unknown_worker_has_no_missing_report() -> None:
    rows = [attempt(worker_id="3b" * 28, profiling_data={})], [attempt(begun=None, worker_id="3b" * 28)]
    assert unexplained(*rows) == REPORT - {"profiling_data"}


def test_a_report_before_one_that_arrived_must_have_arrived() -> None:
    later = attempt(2, begun=LATER)
    assert unexplained([attempt(), later], [attempt(begun=None), later]) == REPORT
    earlier = attempt(2, begun=EARLIER)
    assert unexplained([attempt(), earlier], [attempt(begun=None), earlier]) == set()


def test_what_the_owner_reported_must_be_equal() -> None:
    rebuilt = attempt(begun=None)
    rebuilt["events"] = rebuilt["events"][:-1]
    assert unexplained([attempt()], [rebuilt]) == REPORT
    assert unexplained([attempt()], [attempt(begun=None, state="RUNNING")]) == {"state"}
    assert unexplained([attempt()], [attempt(begun=None, end_time_ms=131.0)]) == {"end_time_ms"}


def test_a_report_is_missing_or_equal_but_never_different() -> None:
    assert unexplained([attempt()], [attempt(begun=121.0)]) == REPORT - {"worker_pid"}
    assert unexplained([attempt()], [attempt(worker_pid=4712)]) == {"worker_pid"}
    assert unexplained([attempt()], [attempt(begun=None, worker_pid=4712)]) == REPORT
