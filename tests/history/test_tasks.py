"""Tasks, rule by rule: from events to rows."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_history.history.read.views import View
from ray_history.history.registry import CLUSTER_TERMINATED
from tests.history.rebuilt import (
    ACTOR,
    JOB,
    NIL,
    NODE,
    OTHER_NODE,
    START,
    WORKER,
    Event,
    Rebuilt,
    actor_task,
    actor_task_id,
    b64,
    function,
    job,
    job_life,
    lifecycle,
    ms,
    ns,
    polled_jobs,
    profile,
    rebuild,
    span,
    stamp,
    task,
    task_id,
    worker,
    worker_alive,
    worker_dead,
)

ONE, TWO = task_id(1), task_id(2)
RAN = (("PENDING_ARGS_AVAIL", 1), ("PENDING_NODE_ASSIGNMENT", 2), ("SUBMITTED_TO_WORKER", 3), ("RUNNING", 4))


@pytest.fixture
def built(tmp_path: Path) -> Callable[..., Rebuilt]:
    return lambda *events, **more: rebuild(tmp_path, events, **more)


Built = Callable[..., Rebuilt]


def test_the_node_is_that_of_the_worker_not_of_the_sender(built: Built) -> None:
    """Ray 2.54 adds the sender's node to every event."""
    row = built(
        task(ONE),
        lifecycle(ONE, *RAN[:2], node=OTHER_NODE),
        lifecycle(ONE, RAN[2], node=NODE, worker=WORKER),
        lifecycle(ONE, RAN[3], node=NODE, workerPid=17),
        lifecycle(ONE, ("FINISHED", 5), node=OTHER_NODE),
    ).row("tasks")
    assert (row["node_id"], row["worker_id"], row["worker_pid"]) == (NODE, WORKER, 17)
    owned = [task(ONE), lifecycle(ONE, *RAN[:3], ("FINISHED", 5), node=OTHER_NODE, worker=WORKER)]
    extended = built(worker(), base=built(*owned))
    assert extended.row("tasks")["node_id"] == built(worker(), *owned).row("tasks")["node_id"] == NODE


# States --------------------------------------------------------------------------------------------------------------


def test_the_state_is_the_last_by_rank_not_by_clock(built: Built) -> None:
    row = built(task(ONE), lifecycle(ONE, ("FINISHED", 5)), lifecycle(ONE, ("RUNNING", 60))).row("tasks")
    assert row["state"] == "FINISHED"
    assert (row["start_time_ms"], row["end_time_ms"]) == (ms(60), ms(5))


def test_the_state_is_the_last_of_those_entered(built: Built) -> None:
    reached = {
        ("PENDING_ARGS_AVAIL",): "PENDING_ARGS_AVAIL",
        ("PENDING_NODE_ASSIGNMENT", "PENDING_ARGS_AVAIL"): "PENDING_NODE_ASSIGNMENT",
        ("RUNNING", "SUBMITTED_TO_WORKER"): "RUNNING",
        ("RUNNING", "RUNNING_IN_RAY_GET"): "RUNNING_IN_RAY_GET",
        ("RUNNING_IN_RAY_WAIT", "RUNNING_IN_RAY_GET"): "RUNNING_IN_RAY_WAIT",
        ("GETTING_AND_PINNING_ARGS", "SUBMITTED_TO_WORKER"): "GETTING_AND_PINNING_ARGS",
        ("GETTING_AND_PINNING_ARGS", "RUNNING"): "RUNNING",
        ("GETTING_AND_PINNING_ARGS", "FINISHED"): "FINISHED",
        ("FINISHED", "FAILED"): "FAILED",
        ("A_STATE_OF_A_LATER_RAY",): "NIL",
        (): "NIL",
    }
    events = [
        told
        for number, states in enumerate(reached)
        for told in (task(task_id(number)), lifecycle(task_id(number), *((state, 1) for state in states)))
    ]
    assert [row["state"] for row in built(*events).rows("tasks")] == list(reached.values())


def test_states_are_listed_with_their_first_time_in_the_order_of_rays_numbers(built: Built) -> None:
    row = built(
        task(ONE), lifecycle(ONE, ("RUNNING", 4), ("PENDING_ARGS_AVAIL", 1)), lifecycle(ONE, ("RUNNING", 3.5))
    ).row("tasks")
    assert row["events"] == [
        {"state": "PENDING_ARGS_AVAIL", "created_ms": ms(1)},
        {"state": "RUNNING", "created_ms": ms(3.5)},
    ]
    assert row["creation_time_ms"] == ms(1)


def test_milliseconds_are_rounded_as_by_ray(built: Built) -> None:
    tables = built(
        task(ONE),
        lifecycle(
            ONE,
            stateTransitions=[
                {"state": "RUNNING", "timestamp": "2026-11-15T20:00:00.471999979Z"},
                {"state": "FINISHED", "timestamp": "2026-11-15T20:00:00.472Z"},
            ],
        ),
    )
    assert tables.columns("tasks", "running_ns, finished_ns") == [(START + 471_999_979, START + 472_000_000)]
    row = tables.row("tasks")
    assert (row["start_time_ms"], row["end_time_ms"]) == (START // 1_000_000 + 472, START // 1_000_000 + 472)


# Errors and retries --------------------------------------------------------------------------------------------------


def test_only_the_failed_attempt_has_an_error_and_colours_are_removed(built: Built) -> None:
    retried = ("TASK_EXECUTION_EXCEPTION", "User exception:\n\x1b[36mray::f()\x1b[39m (pid=1)\nValueError: 你好")
    rows = built(
        task(ONE),
        lifecycle(ONE, *RAN, ("FAILED", 5), error=retried),
        task(ONE, attempt=1),
        lifecycle(ONE, ("RUNNING", 6), ("FINISHED", 7), attempt=1),
    ).rows("tasks")
    first, second = sorted(rows, key=lambda row: int(row["attempt_number"]))
    assert (first["state"], first["error_type"]) == ("FAILED", "TASK_EXECUTION_EXCEPTION")
    assert first["error_message"] == "User exception:\nray::f() (pid=1)\nValueError: 你好"
    assert (second["state"], second["error_type"], second["error_message"]) == ("FINISHED", None, None)


def test_an_attempt_that_did_not_fail_shows_no_error(built: Built) -> None:
    row = built(task(ONE), lifecycle(ONE, *RAN, ("FINISHED", 5), error=("WORKER_DIED", "no"))).row("tasks")
    assert (row["state"], row["error_type"], row["error_message"]) == ("FINISHED", None, None)


def test_an_error_survives_events_without_one(built: Built) -> None:
    row = built(
        task(ONE), lifecycle(ONE, ("FAILED", 5), error=("OUT_OF_MEMORY", "oom")), lifecycle(ONE, ("RUNNING", 6), at=9)
    ).row("tasks")
    assert (row["error_type"], row["error_message"]) == ("OUT_OF_MEMORY", "oom")


def test_the_last_error_counts(built: Built) -> None:
    row = built(
        task(ONE),
        lifecycle(ONE, ("FAILED", 5), error=("WORKER_DIED", ""), at=6),
        lifecycle(ONE, ("FAILED", 5), error=("NODE_DIED", "the node"), at=5),
    ).row("tasks")
    assert (row["error_type"], row["error_message"]) == ("WORKER_DIED", "")


# Decided by the control plane, without an event ----------------------------------------------------------------------


def test_the_death_of_a_worker_fails_its_tasks(built: Built) -> None:
    row = built(
        task(ONE),
        lifecycle(ONE, *RAN, worker=WORKER, node=NODE),
        worker_alive(0),
        worker_dead(9, "INTENDED_USER_EXIT", "it left"),
    ).row("tasks")
    assert (row["state"], row["error_type"], row["end_time_ms"]) == ("FAILED", "WORKER_DIED", ms(9) - 2)
    assert row["error_message"] == (
        f"Worker running the task ({WORKER}) died with exit_type: 3 with error_message: it left"
    )


def test_the_end_of_a_job_fails_its_unfinished_tasks(built: Built) -> None:
    row = built(
        task(ONE),
        lifecycle(ONE, ("PENDING_NODE_ASSIGNMENT", 2)),
        job(),
        job_life("CREATED", 0),
        job_life("FINISHED", 8),
    ).row("tasks")
    assert (row["state"], row["error_type"], row["end_time_ms"]) == ("FAILED", "WORKER_DIED", ms(8))
    assert row["error_message"] == f"Job finishes ({JOB}) as driver exits. Marking all non-terminal tasks as failed."


def test_the_polled_end_of_a_job_fails_its_unfinished_tasks(built: Built) -> None:
    seen = polled_jobs({"job_id": JOB, "type": "SUBMISSION", "status": "STOPPED", "end_time": ms(7)})
    events = [task(ONE), lifecycle(ONE, ("PENDING_NODE_ASSIGNMENT", 2)), job()]
    row = built(*events, documents=[seen]).row("tasks")
    assert (row["state"], row["error_type"], row["end_time_ms"]) == ("FAILED", "WORKER_DIED", ms(7))
    assert row["error_message"] == f"Job finishes ({JOB}) as driver exits. Marking all non-terminal tasks as failed."
    row = built(*events, job_life("FINISHED", 8), documents=[seen]).row("tasks")
    assert row["end_time_ms"] == ms(8)


def test_the_end_of_an_earlier_driver_fails_its_unfinished_tasks(built: Built) -> None:
    row = built(
        task(ONE),
        lifecycle(ONE, ("RUNNING", 2)),
        job(submission="twice"),
        job_life("FINISHED", 8),
        job("03000000", submission="twice"),
    ).row("tasks")
    assert (row["state"], row["end_time_ms"]) == ("FAILED", ms(8))


def test_the_death_of_a_worker_or_job_does_not_fail_ended_tasks(built: Built) -> None:
    row = built(
        task(ONE), lifecycle(ONE, *RAN, ("FINISHED", 5), worker=WORKER), worker_dead(9), job(), job_life("FINISHED", 8)
    ).row("tasks")
    assert (row["state"], row["end_time_ms"], row["error_message"]) == ("FINISHED", ms(5), None)


@pytest.mark.parametrize("later", ["in the same build", "in an extension"])
def test_a_reported_end_replaces_a_forced_one(built: Built, later: str) -> None:
    before = [task(ONE), lifecycle(ONE, *RAN, worker=WORKER), worker_dead(9), job(), job_life("FINISHED", 10)]
    end = lifecycle(ONE, ("FINISHED", 8.5))
    if later == "in an extension":
        base = built(*before)
        assert base.row("tasks")["state"] == "FAILED"
        row = built(end, base=base).row("tasks")
    else:
        row = built(*before, end).row("tasks")
    assert (row["state"], row["end_time_ms"]) == ("FINISHED", ms(8.5))
    assert (row["error_type"], row["error_message"]) == (None, None)


def test_a_later_report_of_a_workers_death_fails_its_tasks(built: Built) -> None:
    base = built(task(ONE), lifecycle(ONE, *RAN, worker=WORKER), *(task(task_id(n)) for n in range(10, 30)))
    assert {row["state"] for row in base.rows("tasks")} == {"RUNNING", "NIL"}
    extended = built(worker_dead(9), base=base)
    assert {row["state"] for row in extended.rows("tasks")} == {"FAILED", "NIL"}


# Where it ran and what it wrote --------------------------------------------------------------------------------------


def test_unset_fields_of_a_later_event_change_nothing(built: Built) -> None:
    row = built(
        task(ONE),
        lifecycle(ONE, ("RUNNING", 4), workerPid=17),
        lifecycle(ONE, ("SUBMITTED_TO_WORKER", 3), node=NODE, worker=WORKER, workerPid=0, at=9),
        lifecycle(ONE, ("FINISHED", 5), at=10),
    ).row("tasks")
    assert (row["node_id"], row["worker_id"], row["worker_pid"]) == (NODE, WORKER, 17)
    owned = [task(ONE), lifecycle(ONE, *RAN[:3], ("FINISHED", 5), node=OTHER_NODE, worker=WORKER)]
    extended = built(worker(), base=built(*owned))
    assert extended.row("tasks")["node_id"] == built(worker(), *owned).row("tasks")["node_id"] == NODE


def test_log_positions_are_merged_from_several_events(built: Built) -> None:
    begin = {"stdoutFile": "/l/w.out", "stderrFile": "/l/w.err", "stdoutStart": "31", "stderrStart": "0"}
    row = built(
        task(ONE),
        lifecycle(ONE, log={"stdoutEnd": "41", "stderrEnd": "43"}, at=9),
        lifecycle(ONE, ("RUNNING", 4), log=begin),
    ).row("tasks")
    assert row["task_log_info"] == {
        "stdout_file": "/l/w.out",
        "stderr_file": "/l/w.err",
        "stdout_start": 31,
        "stdout_end": 41,
        "stderr_start": 0,
        "stderr_end": 43,
    }


def test_a_task_that_wrote_nothing_has_no_log_positions(built: Built) -> None:
    assert built(task(ONE), lifecycle(ONE, *RAN)).row("tasks")["task_log_info"] is None


def test_spans_are_listed_once_and_in_order(built: Built) -> None:
    shown = built(
        task(ONE),
        profile(ONE, span("task:execute", 4.2, 4.8), span("task::work", 4, 5, '{"name": "work"}')),
        profile(ONE, span("task:deserialize_arguments", 4, 4.2), span("task:execute", 4.2, 4.8)),
        profile(ONE),
    ).row("tasks")["profiling_data"]
    assert [spans["event_name"] for spans in shown["events"]] == [
        "task:deserialize_arguments",
        "task:execute",
        "task::work",
    ]
    assert shown["events"][2] == {
        "event_name": "task::work",
        "start_time": ns(4) / 1e6,
        "end_time": ns(5) / 1e6,
        "extra_data": {"name": "work"},
    }
    assert (shown["component_type"], shown["component_id"]) == ("worker", WORKER)


def test_extra_data_that_is_not_json_is_unchanged(built: Built) -> None:
    shown = built(task(ONE), profile(ONE, span("x", 1, 2, "{torn"))).row("tasks")["profiling_data"]
    assert shown["events"][0]["extra_data"] == "{torn"


def test_the_last_state_of_the_debugger_counts(built: Built) -> None:
    row = built(
        task(ONE),
        lifecycle(ONE, ("RUNNING", 4), isDebuggerPaused=False, at=6),
        lifecycle(ONE, ("RUNNING", 4), isDebuggerPaused=True, at=5),
    ).row("tasks")
    assert row["is_debugger_paused"] is False


# Names and ids -------------------------------------------------------------------------------------------------------


def test_nil_ids_are_null_except_for_the_parent_of_a_task(built: Built) -> None:
    row = built(
        task(ONE, parentTaskId=b64(NIL["task"]), placementGroupId=b64(NIL["placement_group"])),
    ).row("tasks")
    assert (row["placement_group_id"], row["actor_id"], row["node_id"]) == (None, None, None)
    assert row["parent_task_id"] == NIL["task"]


def test_ids_can_have_any_of_five_spellings(built: Built) -> None:
    writings: list[Callable[[bytes], str]] = [
        lambda raw: raw.hex(),
        lambda raw: raw.hex().upper(),
        lambda raw: base64.b64encode(raw).decode(),
        lambda raw: base64.urlsafe_b64encode(raw).decode(),
        lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]
    actor_id, group, node_id = "fbefbeff" * 4, "fbefbe" * 6, "fbefbeff" * 7
    events = []
    for number, written in enumerate(writings):
        one = written(bytes.fromhex(actor_task_id(number, actor_id)))
        more = {"actorId": written(bytes.fromhex(actor_id)), "placementGroupId": written(bytes.fromhex(group))}
        events.append(actor_task(ONE, taskId=one, jobId=written(bytes.fromhex(actor_id[-8:])), **more))
        events.append(lifecycle(ONE, ("RUNNING", 1), taskId=one, nodeId=written(bytes.fromhex(node_id)), worker=WORKER))
    rows = built(*events).rows("tasks")
    assert [row["task_id"] for row in rows] == [actor_task_id(n, actor_id) for n in range(len(writings))]
    assert {
        (row["state"], row["job_id"], row["actor_id"], row["placement_group_id"], row["node_id"]) for row in rows
    } == {("RUNNING", actor_id[-8:], actor_id, group, node_id)}


def test_an_id_in_two_spellings_is_one_task(built: Built) -> None:
    life = lifecycle(ONE, ("RUNNING", 1))
    life["taskLifecycleEvent"]["taskId"] = ONE
    assert built(task(ONE), life).row("tasks")["state"] == "RUNNING"


def test_an_id_of_zeros_in_base64_is_not_taken_for_hex(built: Built) -> None:
    assert built(task("00" * 24)).row("tasks")["task_id"] == "00" * 24


def test_an_unreadable_id_is_unchanged(built: Built) -> None:
    row = built(task(ONE, taskId="?not an id?", jobId="job-1")).row("tasks")
    assert (row["task_id"], row["job_id"]) == ("?not an id?", "job-1")


def test_an_event_without_a_task_id_makes_no_task(built: Built) -> None:
    assert built(task(ONE, taskId=""), lifecycle(ONE, ("RUNNING", 1), taskId="")).rows("tasks") == []


def test_the_repr_name_of_an_actor_names_its_tasks_unless_they_have_a_name(built: Built) -> None:
    cases = [("Counter(v=0)", "Counter.inc"), ("Counter(v=0)", "mine"), ("", "Counter.inc")]
    events = []
    for number, (repr_name, name) in enumerate(cases):
        one = actor_task_id(number)
        events += [actor_task(one, actorTaskName=name), lifecycle(one, ("RUNNING", 1), actorReprName=repr_name)]
    rows = built(*events).rows("tasks")
    assert [row["name"] for row in rows] == ["Counter(v=0).inc", "mine", "Counter.inc"]
    assert {(row["func_or_class_name"], row["type"]) for row in rows} == {("Counter.inc", "ACTOR_TASK")}


def test_a_later_name_replaces_the_one_made_from_the_repr_name(built: Built) -> None:
    one = actor_task_id(1)
    base = built(actor_task(one), lifecycle(one, ("RUNNING", 1)))
    extended = built(lifecycle(one, ("RUNNING", 1), actorReprName="Me", at=3), base=base)
    assert extended.row("tasks")["name"] == "Me.inc"


def test_a_creation_task_belongs_to_the_actor_it_creates(built: Built) -> None:
    creation = "ff" * 8 + ACTOR
    row = built(
        task(creation, taskType="ACTOR_CREATION_TASK", taskFunc=function("__init__", "pkg.mod.Counter")),
    ).row("tasks")
    assert (row["actor_id"], row["func_or_class_name"]) == (ACTOR, "Counter.__init__")


def test_functions_of_all_languages_are_named(built: Built) -> None:
    functions: list[tuple[Event, str]] = [
        (function("outer.<locals>.inner"), "inner"),
        (function("run", "a.b.Trainer"), "Trainer.run"),
        ({"javaFunctionDescriptor": {"className": "io.ray.Demo", "functionName": "go"}}, "io.ray.Demo.go"),
        ({"cppFunctionDescriptor": {"functionName": "ns::go"}}, "ns::go"),
        ({}, ""),
    ]
    rows = built(*(task(task_id(n), taskFunc=descriptor) for n, (descriptor, _) in enumerate(functions))).rows("tasks")
    assert [row["func_or_class_name"] for row in rows] == [name for _, name in functions]


def test_rays_own_tasks_are_internal(built: Built) -> None:
    marks = {
        ("JobSupervisor", "run"): True,
        ("_StatsActor", "get_datasets"): True,
        ("_StatsActor", "update"): False,
        ("TrainStateActor", "get_train_runs"): True,
        ("Counter", "inc"): False,
    }
    tables = built(*(actor_task(actor_task_id(n), actorFunc=function(m, c)) for n, (c, m) in enumerate(marks)))
    assert [mark for _, mark in tables.columns("tasks", "task_id, is_internal")] == list(marks.values())


# Attempts without a definition ---------------------------------------------------------------------------------------


def test_an_attempt_without_a_definition_of_a_task_that_has_one_is_hidden(built: Built) -> None:
    rows = built(task(ONE), lifecycle(ONE, *RAN), lifecycle(ONE, ("PENDING_ARGS_AVAIL", 9), attempt=1)).rows("tasks")
    assert [row["attempt_number"] for row in rows] == [0]


def test_a_hidden_attempt_is_listed_once_it_has_a_definition(built: Built) -> None:
    base = built(task(ONE), lifecycle(ONE, *RAN), lifecycle(ONE, ("PENDING_ARGS_AVAIL", 9), attempt=1))
    rows = built(task(ONE, attempt=1), base=base).rows("tasks")
    assert sorted((row["attempt_number"], row["state"]) for row in rows) == [(0, "RUNNING"), (1, "PENDING_ARGS_AVAIL")]


def test_a_task_can_come_from_the_events_of_its_executor_alone(built: Built) -> None:
    one = actor_task_id(1)
    row = built(
        lifecycle(one, ("RUNNING", 4), workerPid=17),
        profile(one, span("task:execute", 4.1, 4.9), span("task::Counter.inc", 4, 5)),
    ).row("tasks")
    assert (row["state"], row["name"], row["func_or_class_name"]) == ("FINISHED", "Counter.inc", "Counter.inc")
    assert (row["type"], row["actor_id"], row["job_id"]) == ("ACTOR_TASK", ACTOR, JOB)
    assert (row["start_time_ms"], row["end_time_ms"]) == (ms(4), ms(5))


def test_a_reported_end_replaces_an_implied_one(built: Built) -> None:
    before = (lifecycle(ONE, ("RUNNING", 4)), profile(ONE, span("task::work", 4, 5)))
    base = built(*before)
    assert base.row("tasks")["state"] == "FINISHED"
    failed = lifecycle(ONE, ("FAILED", 6), error=("TASK_EXECUTION_EXCEPTION", "bad"))
    for row in (built(failed, base=base).row("tasks"), built(*before, failed).row("tasks")):
        assert (row["state"], row["end_time_ms"], row["error_message"]) == ("FAILED", ms(6), "bad")


def test_spans_do_not_end_a_task_with_a_definition(built: Built) -> None:
    row = built(task(ONE), lifecycle(ONE, *RAN), profile(ONE, span("task::work", 4, 5))).row("tasks")
    assert row["state"] == "RUNNING"


def test_spans_alone_make_no_listed_task(built: Built) -> None:
    assert built(profile(ONE, span("submit_task", 4, 5))).rows("tasks") == []


def test_the_type_of_a_task_follows_from_its_id(built: Built) -> None:
    kinds = {
        "ff" * 20 + JOB: "DRIVER_TASK",
        "ff" * 8 + ACTOR: "ACTOR_CREATION_TASK",
        task_id(7): "NORMAL_TASK",
        actor_task_id(7): "ACTOR_TASK",
    }
    rows = built(*(lifecycle(one, ("RUNNING", 1)) for one in kinds)).rows("tasks")
    assert {row["task_id"]: row["type"] for row in rows} == kinds


# Views ---------------------------------------------------------------------------------------------------------------


def test_a_closed_view_ends_open_tasks(built: Built) -> None:
    tables = built(
        task(ONE, taskName="a"),
        lifecycle(ONE, *RAN, node=NODE, worker=WORKER),
        task(TWO, taskName="b"),
        lifecycle(TWO, ("PENDING_NODE_ASSIGNMENT", 2)),
        task(task_id(3), taskName="c"),
        lifecycle(task_id(3), *RAN, ("FINISHED", 5)),
    )
    rows = {row["name"]: row for row in tables.rows("tasks", View(closed_at=ns(100)))}
    running, pending, finished = rows["a"], rows["b"], rows["c"]
    assert (running["state"], running["error_type"], running["end_time_ms"]) == ("FAILED", "NODE_DIED", ms(100))
    assert running["error_message"] == f"{CLUSTER_TERMINATED} The task was RUNNING."
    assert (pending["state"], pending["error_type"]) == ("FAILED", "WORKER_DIED")
    assert pending["error_message"] == f"{CLUSTER_TERMINATED} The task was PENDING_NODE_ASSIGNMENT."
    assert finished == next(row for row in tables.rows("tasks") if row["name"] == "c")


def test_a_moment_view_shows_nothing_later(built: Built) -> None:
    tables = built(
        task(ONE),
        lifecycle(ONE, *RAN, ("FAILED", 9), error=("OUT_OF_MEMORY", "oom"), node=NODE),
        profile(ONE, span("task:deserialize_arguments", 4, 4.5), span("task:execute", 4.5, 8)),
    )
    assert tables.rows("tasks", View(at=ns(0.5))) == []
    states = {second: tables.row("tasks", View(at=ns(second)))["state"] for second in (1, 2.5, 3, 4, 8.9, 9, 50)}
    assert list(states.values()) == [
        "PENDING_ARGS_AVAIL",
        "PENDING_NODE_ASSIGNMENT",
        "SUBMITTED_TO_WORKER",
        "RUNNING",
        "RUNNING",
        "FAILED",
        "FAILED",
    ]
    midway = tables.row("tasks", View(at=ns(5)))
    assert (midway["end_time_ms"], midway["error_type"], midway["error_message"]) == (None, None, None)
    assert [spans["event_name"] for spans in midway["profiling_data"]["events"]] == ["task:deserialize_arguments"]
    assert tables.row("tasks", View(at=ns(9))) == tables.row("tasks")


def test_a_moment_view_shows_no_node_before_the_task_was_submitted(built: Built) -> None:
    log = {"stdoutFile": "/l/w.out", "stdoutStart": "1", "stdoutEnd": "9"}
    tables = built(
        task(ONE),
        lifecycle(ONE, *RAN, ("FINISHED", 9), node=NODE, worker=WORKER, workerPid=17, log=log),
        profile(ONE, span("task:execute", 4.5, 8)),
    )
    told = "node_id worker_id worker_pid task_log_info profiling_data"
    for second, expected in (
        (2, (None, None, None, None, {})),
        (3, (NODE, WORKER, None, None, {})),
    ):
        row = tables.row("tasks", View(at=ns(second)))
        assert tuple(row[name] for name in told.split()) == expected
    running = tables.row("tasks", View(at=ns(5)))
    assert (running["worker_pid"], running["task_log_info"]["stdout_file"]) == (17, "/l/w.out")


def test_a_task_without_times_is_listed_at_every_moment(built: Built) -> None:
    tables = built(task(ONE), lifecycle(ONE, node=NODE, at=3))
    assert tables.row("tasks", View(at=ns(50))) == tables.row("tasks")


def test_a_moment_view_before_a_forced_end_shows_none(built: Built) -> None:
    tables = built(task(ONE), lifecycle(ONE, *RAN, worker=WORKER), worker_dead(9))
    assert tables.row("tasks", View(at=ns(8)))["state"] == "RUNNING"
    assert tables.row("tasks", View(at=ns(9)))["error_type"] == "WORKER_DIED"


def test_a_view_before_the_end_is_not_closed(built: Built) -> None:
    tables = built(task(ONE), lifecycle(ONE, *RAN))
    assert tables.row("tasks", View(at=ns(50), closed_at=ns(100)))["state"] == "RUNNING"
    assert tables.row("tasks", View(at=ns(100), closed_at=ns(100)))["state"] == "FAILED"


def test_a_definition_of_an_unknown_type_keeps_its_name_in_extended_tables(built: Built) -> None:
    base = built(task(ONE, taskType=None), lifecycle(ONE, *RAN))
    row = built(lifecycle(ONE, ("FINISHED", 5)), base=base).row("tasks")
    assert (row["name"], row["func_or_class_name"], row["type"]) == ("work", "work", "NORMAL_TASK")


def test_clocks_of_other_nodes_do_not_change_the_rank(built: Built) -> None:
    row = built(
        task(ONE, at=99),
        lifecycle(ONE, ("FINISHED", 1), node=OTHER_NODE, worker=WORKER),
        lifecycle(ONE, ("RUNNING", 80), at=80, nodeId=""),
    ).row("tasks")
    assert (row["state"], row["node_id"]) == ("FINISHED", OTHER_NODE)
    assert stamp(80).startswith("2026-11-15T20:01:20")
