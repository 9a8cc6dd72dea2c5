"""What the last polled listing of unfinished tasks adds to their events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray_history.history.read.views import View
from tests.history.rebuilt import (
    NODE,
    WORKER,
    Event,
    Row,
    job_life,
    lifecycle,
    listed_task,
    ms,
    node,
    ns,
    polled,
    profile,
    rebuild,
    span,
    task,
    task_id,
    worker,
    worker_alive,
    worker_dead,
)

ONE, TWO = task_id(1), task_id(2)


SUBMITTED = (("PENDING_ARGS_AVAIL", 1), ("PENDING_NODE_ASSIGNMENT", 1), ("SUBMITTED_TO_WORKER", 2))
RUNNING = (*SUBMITTED, ("RUNNING", 2.5))
SENT = [task(ONE, at=1), lifecycle(ONE, *SUBMITTED)]
"""What the owner of a task sent; its executor was killed before it sent anything."""


def only(place: Path, events: list[Event], *rows: Row, view: View | None = None, **more: Any) -> Row:
    return rebuild(place, events, [polled("tasks", *rows)], **more).row("tasks", view or View())


def test_what_a_killed_worker_did_not_send_comes_from_the_poll(tmp_path: Path) -> None:
    log = {"stdout_file": "worker-1.out", "stdout_start": 10, "stderr_file": "worker-1.err", "stderr_start": 20}
    row = only(tmp_path, SENT, listed_task(ONE, *RUNNING, task_log_info=log))
    assert (row["state"], row["node_id"], row["worker_id"], row["worker_pid"]) == ("RUNNING", NODE, WORKER, 17)
    assert (row["start_time_ms"], row["creation_time_ms"]) == (ms(2.5), ms(1))
    assert row["task_log_info"] == log


def test_polled_times_are_shown_as_they_were_polled(tmp_path: Path) -> None:
    """As a float of nanoseconds, half of them would be a millisecond earlier."""
    steps = [("PENDING_ARGS_AVAIL", 1), ("RUNNING", 2.001), ("RUNNING_IN_RAY_GET", 2.002), ("FAILED", 2.003)]
    row = only(tmp_path, [], listed_task(ONE, *steps))
    assert [step["created_ms"] for step in row["events"]] == [ms(at) for _, at in steps]
    assert (row["start_time_ms"], row["end_time_ms"]) == (ms(2.001), ms(2.003))


def test_events_win_wherever_they_have_a_value(tmp_path: Path) -> None:
    other = "0d" * 28
    ran = lifecycle(ONE, ("RUNNING", 2.0001234), ("FINISHED", 3), node=other, worker=other, workerPid=18)
    row = only(tmp_path, [*SENT, ran], listed_task(ONE, *RUNNING, name="another", call_site="here"))
    assert (row["state"], row["name"], row["node_id"], row["worker_pid"]) == ("FINISHED", "work", other, 18)
    assert (row["start_time_ms"], row["end_time_ms"]) == (ms(2.0001234), ms(3))
    assert row["call_site"] == "here"  # no event has it


def test_a_failure_in_the_poll_does_not_change_how_a_task_ended(tmp_path: Path) -> None:
    judged = listed_task(ONE, *RUNNING, ("FAILED", 2.7), error_type="WORKER_DIED", error_message="Job finishes")
    row = only(tmp_path, [*SENT, lifecycle(ONE, ("RUNNING", 2.5), ("FINISHED", 3))], judged)
    assert (row["state"], row["error_type"], row["error_message"]) == ("FINISHED", None, None)


def test_a_task_that_only_the_poll_has_exists_with_what_is_known(tmp_path: Path) -> None:
    seen = {
        "component_type": "worker",
        "component_id": WORKER,
        "node_ip_address": "192.0.2.2",
        "events": [
            {"start_time": ms(2.5) + 0.25, "end_time": ms(2.6) + 0.5, "extra_data": {"a": 1}, "event_name": "ray.get"}
        ],
    }
    live = listed_task(TWO, *RUNNING, profiling_data=seen, fallback_strategy=None, label_selector={"zone": "a"})
    row = only(tmp_path, [], live)
    assert row.pop("creation_time_ms") == ms(1)
    assert row.pop("start_time_ms") == ms(2.5)
    environment = row.pop("runtime_env_info")
    assert environment["serialized_runtime_env"] == "{}"
    assert row.pop("fallback_strategy") == {"options": []}
    assert row == {name: value for name, value in live.items() if name in row}


def spans_of(*names: str) -> Row:
    """As the dashboard lists them."""
    listed = [
        {"start_time": ms(2.5) + number, "end_time": ms(2.6), "extra_data": {}, "event_name": name}
        for number, name in enumerate(names)
    ]
    return {"component_type": "worker", "component_id": WORKER, "node_ip_address": "192.0.2.2", "events": listed}


def test_the_longer_list_of_spans_counts_and_none_is_lost(tmp_path: Path) -> None:
    """Ray 2.52 sends the outermost span alone."""
    sent = profile(ONE, span("task::work", 2.5, 2.6))
    whole = listed_task(ONE, *RUNNING, profiling_data=spans_of("task::work", "task:execute", "ray.get"))
    shorter = listed_task(ONE, *RUNNING, profiling_data=spans_of("another"))

    def names(built: Any) -> list[str]:
        return [event["event_name"] for event in built.row("tasks")["profiling_data"]["events"]]

    assert names(rebuild(tmp_path, [*SENT, sent], [polled("tasks", shorter)])) == ["task::work"]
    first = rebuild(tmp_path, [*SENT, sent], [polled("tasks", whole)])
    assert set(names(first)) == {"task::work", "task:execute", "ray.get"}
    more = [lifecycle(ONE, ("FINISHED", 3))]
    assert names(rebuild(tmp_path, more, [polled("tasks", whole)], base=first)) == names(first)
    without = rebuild(tmp_path, more, [polled("tasks")], base=first)
    assert names(without) == ["task::work"], "what events said is still there"


def test_a_poll_that_adds_nothing_leaves_no_trace(tmp_path: Path) -> None:
    ran = lifecycle(ONE, ("RUNNING", 2.5), node=NODE, worker=WORKER, workerPid=17)
    built = rebuild(tmp_path, [*SENT, ran], [polled("tasks", listed_task(ONE, *RUNNING))])
    assert built.tables.rows("select polled_columns from observed_tasks") == [(None,)]


def test_a_polled_task_fails_with_its_worker_and_its_job(tmp_path: Path) -> None:
    died = [node(), worker(), worker_alive(1), worker_dead(4, "SYSTEM_ERROR", "killed")]
    row = only(tmp_path, [*SENT, *died], listed_task(ONE, *RUNNING))
    assert (row["state"], row["error_type"]) == ("FAILED", "WORKER_DIED")
    assert "killed" in row["error_message"]
    ended = only(tmp_path, [*SENT, job_life("FINISHED", 9)], listed_task(ONE, *RUNNING))
    assert (ended["state"], ended["end_time_ms"]) == ("FAILED", ms(9))


def test_a_task_that_only_the_poll_has_may_have_finished_before_its_worker_died(tmp_path: Path) -> None:
    died = [node(), worker(), worker_alive(1), worker_dead(4), job_life("FINISHED", 9)]
    alone = rebuild(tmp_path, died, [polled("tasks", listed_task(ONE, *RUNNING))])
    assert (alone.row("tasks")["state"], alone.row("tasks")["error_type"]) == ("RUNNING", None)
    again = rebuild(tmp_path, [worker_dead(4)], [polled("tasks", listed_task(ONE, *RUNNING))], base=alone)
    assert again.row("tasks") == alone.row("tasks")
    told = rebuild(tmp_path, SENT, [polled("tasks", listed_task(ONE, *RUNNING))], base=again)
    assert told.row("tasks")["state"] == "FAILED", "its owner would have reported that it finished"


def test_a_moment_shows_polled_values_from_their_time_on(tmp_path: Path) -> None:
    before = only(tmp_path, SENT, listed_task(ONE, *RUNNING), view=View(ns(2.2)))
    assert (before["state"], before["worker_id"], before["worker_pid"]) == ("SUBMITTED_TO_WORKER", WORKER, None)
    after = only(tmp_path, SENT, listed_task(ONE, *RUNNING), view=View(ns(2.6)))
    assert (after["state"], after["worker_pid"]) == ("RUNNING", 17)


def test_another_attempt_that_the_poll_defines_hides_undefined_ones(tmp_path: Path) -> None:
    row = only(tmp_path, [lifecycle(ONE, ("RUNNING", 1))], listed_task(ONE, *RUNNING, attempt=1))
    assert row["attempt_number"] == 1


def test_an_index_that_is_extended_forgets_what_an_older_poll_said(tmp_path: Path) -> None:
    """The newest listing replaces the one before; the events that arrived meanwhile win over both."""
    spans = profile(ONE, span("task::work", 2.5, 3))
    finished = [lifecycle(ONE, ("RUNNING", 2.4), ("FINISHED", 3), node=NODE), spans]
    before, after = listed_task(ONE, *RUNNING, name="x"), listed_task(TWO, *RUNNING)
    first = rebuild(tmp_path, SENT, [polled("tasks", before, listed_task(task_id(3), *RUNNING))])
    assert [row["state"] for row in first.rows("tasks")] == ["RUNNING", "RUNNING"]
    extended = rebuild(tmp_path, finished, [polled("tasks", after)], base=first)
    at_once = rebuild(tmp_path, [*SENT, *finished], [polled("tasks", after)])
    assert extended.rows("tasks") == at_once.rows("tasks")
    assert extended.facts["tasks"] == at_once.facts["tasks"] == 2
    again = rebuild(tmp_path, [], [polled("tasks", before)], base=extended)
    assert again.rows("tasks") == rebuild(tmp_path, [*SENT, *finished], [polled("tasks", before)]).rows("tasks")


def test_damaged_rows_of_a_poll_are_unknown(tmp_path: Path) -> None:
    odd = [3, None, {"task_id": 7, "events": "x"}, {"task_id": ONE, "attempt_number": "x", "events": [{"state": 1}, 2]}]
    states = {row["state"] for row in rebuild(tmp_path, SENT, [polled("tasks", *odd)]).rows("tasks")}  # type: ignore[arg-type]
    assert states <= {"SUBMITTED_TO_WORKER", "NIL"}
