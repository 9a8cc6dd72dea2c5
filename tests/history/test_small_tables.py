"""The small tables, rule by rule: actors, nodes, workers, jobs and others."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ray_history.history.read.json_rows import row
from ray_history.history.read.views import View
from ray_history.history.registry import CLUSTER_TERMINATED
from tests.history.rebuilt import (
    ACTOR,
    JOB,
    NODE,
    OTHER_NODE,
    OTHER_WORKER,
    START,
    WORKER,
    Event,
    Rebuilt,
    Row,
    actor,
    actor_life,
    actor_step,
    b64,
    document,
    event,
    exported_submission,
    function,
    job,
    job_life,
    lifecycle,
    logged_submission,
    ms,
    node,
    node_life,
    ns,
    polled,
    polled_jobs,
    rebuild,
    stamp,
    task,
    task_id,
    worker,
    worker_alive,
    worker_dead,
)

Built = Callable[..., Rebuilt]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return lambda *events, **more: rebuild(tmp_path, events, **more)


def some(row: Row, names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names.split())


# Actors --------------------------------------------------------------------------------------------------------------

ALIVE = actor_step("ALIVE", 2, NODE, WORKER, 17)


def dead(at: float, **context: Any) -> Event:
    return actor_step("DEAD", at, deathCause={"actorDiedErrorContext": context})


def test_an_actor_has_the_node_and_worker_of_its_last_start(built: Built) -> None:
    row = built(
        node(),
        actor(name="named", isDetached=True),
        actor_life(actor_step("PENDING_CREATION", 1), ALIVE),
        actor_life(actor_step("RESTARTING", 3), actor_step("ALIVE", 4, OTHER_NODE, OTHER_WORKER, 18, reprName="me")),
    ).row("actors")
    assert some(row, "state node_id pid name is_detached") == ("ALIVE", OTHER_NODE, 18, "named", True)
    assert some(row, "repr_name num_restarts class_name death_cause") == ("me", "1", "Counter", None)


def test_restarts_are_counted_by_reason(built: Built) -> None:
    reasons = ["ACTOR_FAILURE", "LINEAGE_RECONSTRUCTION", "NODE_PREEMPTION", "NODE_PREEMPTION"]
    steps = [actor_step("RESTARTING", at, restartReason=reason) for at, reason in enumerate(reasons)]
    row = built(actor(), actor_life(*steps), actor_life(*steps[:2], at=1)).row("actors")
    counted = "num_restarts num_restarts_due_to_lineage_reconstruction num_restarts_due_to_node_preemption"
    assert some(row, counted) == ("4", "1", "2")


def test_an_actor_died_at_the_first_report_of_its_death(built: Built) -> None:
    tables = built(
        actor(),
        actor_life(ALIVE, dead(5, errorMessage="worker died")),
        actor_life(dead(9, errorMessage="the job ended too"), at=9),
    )
    assert tables.columns("actors", "state, end_ns, exit_detail") == [("DEAD", ns(5), "the job ended too")]


def test_a_dead_actor_can_be_restarted(built: Built) -> None:
    tables = built(
        actor(),
        actor_life(ALIVE, dead(5, errorMessage="out of scope")),
        actor_life(actor_step("RESTARTING", 6, restartReason="LINEAGE_RECONSTRUCTION"), actor_step("ALIVE", 7)),
    )
    assert some(tables.row("actors"), "state death_cause num_restarts") == ("ALIVE", None, "1")
    assert tables.columns("actors", "start_ns, end_ns") == [(ns(2), None)]
    assert tables.row("actors", View(at=ns(5.5)))["state"] == "DEAD"


def test_each_cause_of_death_has_the_shape_of_rays_api(built: Built) -> None:
    told: list[tuple[Event, Row]] = [
        (
            {
                "actorDiedErrorContext": {
                    "errorMessage": "gone",
                    "ownerId": b64("02000000" + "ff" * 24),
                    "ownerIpAddress": "192.0.2.2",
                    "nodeIpAddress": "192.0.2.3",
                    "pid": 17,
                    "rayNamespace": "ns",
                    "className": "Counter",
                    "actorId": b64(ACTOR),
                    "reason": "NODE_DIED",
                    "name": "",
                    "neverStarted": False,
                    "nodeDeathInfo": {"reason": "UNEXPECTED_TERMINATION", "reasonMessage": "no heartbeat"},
                }
            },
            {
                "actor_died_error_context": {
                    "error_message": "gone",
                    "owner_id": "02000000" + "ff" * 24,
                    "owner_ip_address": "192.0.2.2",
                    "node_ip_address": "192.0.2.3",
                    "pid": 17,
                    "ray_namespace": "ns",
                    "class_name": "Counter",
                    "actor_id": ACTOR,
                    "reason": "NODE_DIED",
                    "name": "",
                    "never_started": False,
                    "node_death_info": {"reason": "UNEXPECTED_TERMINATION", "reason_message": "no heartbeat"},
                }
            },
        ),
        (
            {
                "creationTaskFailureContext": {
                    "formattedExceptionString": "E",
                    "serializedException": "",
                    "language": "PYTHON",
                }
            },
            {
                "creation_task_failure_context": {
                    "formatted_exception_string": "E",
                    "serialized_exception": "",
                    "language": "PYTHON",
                }
            },
        ),
        (
            {"runtimeEnvFailedContext": {"errorMessage": "pip"}},
            {"runtime_env_failed_context": {"error_message": "pip"}},
        ),
        (
            {"actorUnschedulableContext": {"errorMessage": "no"}},
            {"actor_unschedulable_context": {"error_message": "no"}},
        ),
        (
            {"oomContext": {"errorMessage": "oom", "failImmediately": True}},
            {"oom_context": {"error_message": "oom", "fail_immediately": True}},
        ),
    ]
    ids = [f"{number:024x}" + JOB for number in range(len(told))]
    tables = built(
        *(actor(one) for one in ids),
        *(
            actor_life(actor_step("DEAD", 3, deathCause=cause), actor=one)
            for one, (cause, _) in zip(ids, told, strict=True)
        ),
    )
    shown = {row["actor_id"]: row["death_cause"] for row in tables.rows("actors")}
    assert shown == {one: cause for one, (_, cause) in zip(ids, told, strict=True)}
    details = [detail for _, detail in tables.columns("actors", "actor_id, exit_detail")]
    assert details == ["gone", "E", "pip", "no", "oom"]


def test_an_actor_that_never_started_is_closed_as_never_started(built: Built) -> None:
    tables = built(actor(), actor_life(actor_step("PENDING_CREATION", 1)))
    assert some(tables.row("actors"), "state node_id pid") == ("PENDING_CREATION", None, 0)
    closed = tables.row("actors", View(closed_at=ns(9)))
    assert closed["state"] == "DEAD"
    assert closed["death_cause"]["actor_died_error_context"]["never_started"] is True


def test_actors_with_only_a_definition_or_only_a_lifecycle_are_listed(built: Built) -> None:
    other = "ab" * 12 + JOB
    rows = {row["actor_id"]: row for row in built(actor(), actor_life(ALIVE, actor=other)).rows("actors")}
    assert rows[ACTOR]["state"] == "DEPENDENCIES_UNREADY"
    assert some(rows[other], "state job_id class_name") == ("ALIVE", JOB, "")


def test_a_closed_view_adds_no_cause_to_a_death_without_one(built: Built) -> None:
    tables = built(actor(), actor_life(ALIVE, actor_step("DEAD", 5)))
    assert tables.row("actors", View(closed_at=ns(9))) == tables.row("actors")


# Actors without events ------------------------------------------------------------------------------------------------

LISTED = {
    "actor_id": ACTOR,
    "class_name": "Counter",
    "state": "DEAD",
    "job_id": JOB,
    "name": "named",
    "node_id": NODE,
    "pid": 17,
    "ray_namespace": "ns",
    "serialized_runtime_env": '{"pip": ["x"]}',
    "required_resources": {"CPU_group_1": 0.5},
    "death_cause": {"actor_died_error_context": {"error_message": "gone", "pid": 17}},
    "is_detached": True,
    "placement_group_id": "ab" * 18,
    "repr_name": "Counter(1)",
    "num_restarts": "2",
    "num_restarts_due_to_lineage_reconstruction": "1",
    "num_restarts_due_to_node_preemption": "0",
    "call_site": "here",
    "label_selector": {"zone": "a"},
    "fallback_strategy": None,
}
"""A row of Ray's `/api/v0/actors?detail=1`."""

PAGE = {
    "actorId": ACTOR,
    "jobId": JOB,
    "address": {"nodeId": NODE, "ipAddress": "192.0.2.2", "port": 20055, "workerId": WORKER},
    "name": "named",
    "className": "Counter",
    "state": "DEAD",
    "numRestarts": "2",
    "timestamp": float(ms(7)),
    "pid": 17,
    "startTime": ms(2),
    "endTime": ms(7),
    "reprName": "Counter(1)",
    "labelSelector": {"zone": "a"},
    "exitDetail": "gone",
    "requiredResources": {"CPUGroup1": 0.5},
    "gpus": [],
}
"""An actor of Ray's `/logical/actors` and `/nodes/{id}`."""


def actors_page(*actors: Row) -> Event:
    return document(
        "endpoint", "restful__logical__actors", {"data": {"actors": {row["actorId"]: row for row in actors}}}
    )


def node_page(*actors: Row, node: str = NODE) -> Event:
    detail = {"now": ms(8) / 1000, "actors": {row["actorId"]: row for row in actors}}
    return document("endpoint", f"restful__nodes__{node}", {"data": {"detail": detail}})


CREATION = "ff" * 8 + ACTOR
CREATED: list[Event] = [
    task(
        CREATION,
        taskType="ACTOR_CREATION_TASK",
        taskName="named:Counter.__init__",
        taskFunc=function("__init__", "Counter"),
    ),
    lifecycle(CREATION, ("PENDING_ARGS_AVAIL", 1), ("RUNNING", 1.5), ("FINISHED", 2), worker=WORKER, workerPid=17),
]


def test_an_actor_without_events_is_as_it_was_listed(built: Built) -> None:
    tables = built(documents=[polled("actors", LISTED)])
    assert tables.row("actors") == LISTED
    (error,) = tables.columns("actors", "exit_detail, start_ns")
    assert error == ("gone", None)


def test_an_actor_without_events_is_known_from_the_page_of_its_node(built: Built) -> None:
    tables = built(node(), documents=[node_page(PAGE)])
    row = tables.row("actors")
    known = "actor_id class_name state job_id name node_id pid placement_group_id repr_name num_restarts"
    expected = LISTED | {"placement_group_id": None}
    assert some(row, known) == some(expected, known)
    unknown = "ray_namespace serialized_runtime_env required_resources death_cause is_detached call_site label_selector"
    assert some(row, unknown) == (None,) * 7
    assert tables.columns("actors", "worker_id, port, ip_address, start_ns, end_ns, exit_detail") == [
        (WORKER, 20055, "192.0.2.2", ns(2), ns(7), "gone")
    ]
    assert some(tables.row("actors", View(at=ns(5))), "state death_cause") == ("ALIVE", None)
    assert tables.rows("actors", View(at=ns(1))) == []


def test_the_last_page_of_an_actor_counts(built: Built) -> None:
    address = PAGE["address"] | {"nodeId": OTHER_NODE}
    earlier = PAGE | {"state": "ALIVE", "timestamp": float(ms(2)), "endTime": 0, "address": address}
    row = built(documents=[node_page(PAGE), node_page(earlier, node=OTHER_NODE)]).row("actors")
    assert some(row, "state node_id") == ("DEAD", NODE)


def test_a_newer_page_of_a_node_counts_before_the_page_of_all_actors(built: Built) -> None:
    earlier = PAGE | {"state": "ALIVE", "timestamp": float(ms(2)), "endTime": 0, "requiredResources": {"CPU": 2.0}}
    row = built(documents=[actors_page(earlier), node_page(PAGE)]).row("actors")
    assert some(row, "state required_resources") == ("DEAD", {"CPU": 2.0})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, ("DEAD", 17, WORKER, 20055, "gone")),
        ({"state": "ALIVE", "num_restarts": "3", "pid": 18, "death_cause": None}, ("ALIVE", 18, None, None, None)),
        ({"state": "RESTARTING", "num_restarts": "3", "pid": 0, "death_cause": None}, ("RESTARTING", 0, *[None] * 3)),
        ({"state": "PENDING_CREATION", "death_cause": None}, ("ALIVE", 17, WORKER, 20055, None)),
        ({"num_restarts": "1", "pid": 16}, ("ALIVE", 17, WORKER, 20055, None)),
    ],
)
def test_a_listing_that_is_ahead_of_the_pages_counts_before_them(built: Built, row: Row, expected: Any) -> None:
    alive = PAGE | {"state": "ALIVE", "timestamp": float(ms(2)), "endTime": 0, "exitDetail": "-"}
    tables = built(documents=[actors_page(alive), node_page(alive), polled("actors", LISTED | row)])
    assert tables.columns("actors", "state, pid, worker_id, port, exit_detail") == [expected]
    assert tables.columns("actors", "state, pid, worker_id", View(at=ns(5))) == [("ALIVE", 17, WORKER)]


def test_an_actor_without_events_is_known_from_the_task_that_created_it(built: Built) -> None:
    tables = built(*CREATED)
    row = tables.row("actors")
    assert some(row, "actor_id class_name name job_id state pid required_resources") == (
        ACTOR,
        "Counter",
        "named",
        JOB,
        "ALIVE",
        17,
        {"CPU": 1.0},
    )
    assert some(row, "node_id ray_namespace is_detached death_cause repr_name") == (None,) * 5
    assert tables.columns("actors", "worker_id, start_ns, end_ns") == [(WORKER, ns(2), None)]
    assert tables.row("actors", View(at=ns(1.7)))["state"] == "PENDING_CREATION"
    assert tables.rows("actors", View(at=ns(0.5))) == []
    assert tables.row("actors", View(closed_at=ns(9)))["state"] == "DEAD"


def test_an_actor_whose_constructor_failed_is_dead(built: Built) -> None:
    failed = lifecycle(CREATION, ("PENDING_ARGS_AVAIL", 1), ("FAILED", 3), error=("TASK_EXECUTION_EXCEPTION", "no"))
    tables = built(CREATED[0], failed)
    assert tables.columns("actors", "state, end_ns, exit_detail") == [("DEAD", ns(3), "no")]


def test_the_process_that_events_of_ray_2_52_do_not_name_is_that_of_the_same_worker(built: Built) -> None:
    started = [actor(), actor_life(actor_step("ALIVE", 2, NODE, WORKER))]
    assert built(*started).row("actors")["pid"] == 0
    assert some(built(*started, *CREATED).row("actors"), "state pid") == ("ALIVE", 17)
    earlier = PAGE | {"state": "ALIVE", "timestamp": float(ms(1)), "endTime": 0}
    paged = built(*started, documents=[node_page(earlier)])
    assert paged.columns("actors", "worker_id, pid, port") == [(WORKER, PAGE["pid"], 20055)]
    moved = [actor(), actor_life(actor_step("ALIVE", 2, NODE, OTHER_WORKER))]
    assert built(*moved, *CREATED, documents=[node_page(earlier)]).row("actors")["pid"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_each_source_of_an_actor_fills_what_better_ones_lack(built: Built, seed: int) -> None:
    shuffled = random.Random(seed)
    exported = [actor(name="exported"), actor_life(ALIVE)]
    documents = [polled("actors", LISTED), actors_page(PAGE | {"reprName": "page"}), node_page(PAGE)]
    shuffled.shuffle(documents)
    events = [*CREATED, *exported]
    shuffled.shuffle(events)
    row, alone = built(*events, documents=documents).row("actors"), built(*exported).row("actors")
    ended = {"state", "death_cause"}  # the page is newer than the last event
    assert {name: value for name, value in alone.items() if value and name not in ended}.items() <= row.items()
    assert some(row, "state name call_site repr_name") == ("DEAD", "exported", "here", "Counter(1)")
    without = [one for one in events if one not in exported]
    assert built(*without, documents=documents).row("actors") == LISTED
    pages = [one for one in documents if "v0__actors" not in one["name"]]
    row = built(*without, documents=pages).row("actors")
    assert some(row, "state repr_name required_resources pid") == ("DEAD", "page", {"CPUGroup1": 0.5}, 17)
    row = built(*without, documents=[node_page(PAGE)]).row("actors")
    assert some(row, "state repr_name required_resources pid") == ("DEAD", "Counter(1)", {"CPU": 1.0}, 17)


# Nodes ---------------------------------------------------------------------------------------------------------------


def test_a_node_has_its_resources_until_it_is_dead(built: Built) -> None:
    resources = {"CPU": 2.0, "node:__internal_head__": 1.0}
    tables = built(node(), node_life("ALIVE", 0, resources=resources), node_life("DEAD", 9))
    row = tables.row("nodes")
    assert some(row, "state is_head_node resources_total node_ip labels") == (
        "DEAD",
        True,
        resources,
        "192.0.2.2",
        {"zone": "a"},
    )
    assert some(row, "start_time_ms end_time_ms") == (ms(0), ms(9))
    before = tables.row("nodes", View(at=ns(5)))
    assert some(before, "state end_time_ms") == ("ALIVE", 0)


def test_the_state_message_of_a_dead_node_is_that_of_ray(built: Built) -> None:
    worded = {
        "EXPECTED_TERMINATION": "Expected termination: told",
        "UNEXPECTED_TERMINATION": "Unexpected termination: told",
        "AUTOSCALER_DRAIN_PREEMPTED": "Terminated due to preemption: told",
        "AUTOSCALER_DRAIN_IDLE": "Terminated due to idle (no Ray activity): told",
        "UNSPECIFIED": "told",
    }
    ids = [f"{number:056x}" for number in range(len(worded))]
    tables = built(
        *(
            node_life("DEAD", 9, one, deathInfo={"reason": reason, "reasonMessage": "told"})
            for one, reason in zip(ids, worded, strict=True)
        )
    )
    shown = [row["state_message"] for row in sorted(tables.rows("nodes"), key=lambda row: str(row["node_id"]))]
    assert shown == list(worded.values())


def test_a_draining_node_is_marked(built: Built) -> None:
    tables = built(node(), node_life("ALIVE", 0), node_life("ALIVE", 5, aliveSubState="DRAINING"))
    assert tables.columns("nodes", "state, is_draining") == [("ALIVE", True)]
    assert tables.columns("nodes", "is_draining", View(at=ns(4))) == [(False,)]


POLLED_NODE = {
    "node_id": OTHER_NODE,
    "node_ip": "192.0.2.9",
    "is_head_node": False,
    "state": "DEAD",
    "state_message": "Expected termination",
    "node_name": "n",
    "resources_total": {"CPU": 4.0},
    "labels": {},
    "start_time_ms": ms(1),
    "end_time_ms": ms(5),
}


def test_a_node_that_was_only_polled_is_listed(built: Built) -> None:
    tables = built(documents=[polled("nodes", POLLED_NODE)])
    assert tables.row("nodes") == POLLED_NODE
    assert tables.rows("nodes", View(at=ns(0))) == []
    assert some(tables.row("nodes", View(at=ns(3))), "state state_message end_time_ms") == ("ALIVE", None, 0)


def test_a_node_that_was_polled_as_dead_is_dead(built: Built) -> None:
    tables = built(node(OTHER_NODE), node_life("ALIVE", 1, OTHER_NODE), documents=[polled("nodes", POLLED_NODE)])
    assert some(tables.row("nodes"), "state end_time_ms node_ip") == ("DEAD", ms(5), "192.0.2.2")


def test_a_closed_view_ends_what_was_alive(built: Built) -> None:
    tables = built(node(), node_life("ALIVE", 0), worker(), worker_alive(1), job(), actor(), actor_life(ALIVE))
    end = View(closed_at=ns(60))
    assert some(tables.row("nodes", end), "state state_message end_time_ms") == ("DEAD", CLUSTER_TERMINATED, ms(60))
    assert some(worker_row(tables, WORKER, end), "is_alive exit_type") == (
        False,
        "SYSTEM_ERROR",
    )
    assert some(tables.row("jobs", end), "status message end_time") == (
        "FAILED",
        f"{CLUSTER_TERMINATED} The job was RUNNING.",
        ms(60),
    )


# Workers -------------------------------------------------------------------------------------------------------------


def worker_row(tables: Rebuilt, worker: str, view: View | None = None) -> Row:
    (found,) = (row for row in tables.rows("workers", view or View()) if row["worker_id"] == worker)
    return found


def test_a_worker_has_the_times_of_its_life(built: Built) -> None:
    tables = built(
        node(), worker(), worker_alive(1), worker_dead(5, "USER_ERROR", "it said"), worker_dead(7, "SYSTEM_ERROR")
    )
    assert tables.row("workers") == {
        "worker_id": WORKER,
        "is_alive": False,
        "worker_type": "WORKER",
        "exit_type": "USER_ERROR",
        "node_id": NODE,
        "ip": "192.0.2.2",
        "pid": 11446,
        "exit_detail": "it said",
        "worker_launch_time_ms": ms(1) - 100,
        "worker_launched_time_ms": ms(1) - 50,
        "start_time_ms": ms(1),
        "end_time_ms": ms(5) - 2,
        "debugger_port": None,
        "num_paused_threads": None,
    }
    alive = tables.row("workers", View(at=ns(3)))
    assert some(alive, "is_alive exit_type end_time_ms") == (True, None, 0)


POLLED_WORKER = {
    "worker_id": WORKER,
    "is_alive": False,
    "worker_type": "WORKER",
    "exit_type": "INTENDED_USER_EXIT",
    "node_id": NODE,
    "ip": "192.0.2.2",
    "pid": 5,
    "exit_detail": "left",
    "worker_launch_time_ms": 18446744073709551615,
    "worker_launched_time_ms": ms(1),
    "start_time_ms": ms(2),
    "end_time_ms": ms(6),
    "debugger_port": None,
    "num_paused_threads": 0,
}


def test_workers_of_an_older_ray_come_from_polling(built: Built) -> None:
    tables = built(documents=[polled("workers", POLLED_WORKER)])
    assert tables.row("workers") == POLLED_WORKER
    assert tables.rows("workers", View(at=ns(1))) == []
    assert some(tables.row("workers", View(at=ns(3))), "is_alive exit_type exit_detail end_time_ms") == (
        True,
        None,
        None,
        0,
    )


def test_the_polled_death_of_a_worker_fails_its_tasks(built: Built) -> None:
    tables = built(
        worker(),
        worker_alive(2),
        task(task_id(1)),
        lifecycle(task_id(1), ("RUNNING", 3), worker=WORKER),
        documents=[polled("workers", POLLED_WORKER)],
    )
    assert some(tables.row("workers"), "is_alive exit_type pid") == (False, "INTENDED_USER_EXIT", 11446)
    assert some(tables.row("tasks"), "state end_time_ms") == ("FAILED", ms(6))


def test_a_driver_is_a_worker_made_from_its_job(built: Built) -> None:
    row = built(node(), job(at=3)).row("workers")
    assert some(row, "worker_id worker_type pid node_id ip is_alive") == (
        JOB + "ff" * 24,
        "DRIVER",
        11631,
        NODE,
        "192.0.2.2",
        True,
    )


def test_a_driver_ends_with_its_job(built: Built) -> None:
    alive = POLLED_WORKER | {"worker_id": JOB + "ff" * 24, "worker_type": "DRIVER", "is_alive": True, "end_time_ms": 0}
    for documents in ([], [polled("workers", alive)]):
        tables = built(job(at=1), job_life("CREATED", 1), job_life("FINISHED", 5), documents=documents)
        closed = View(closed_at=ns(99))
        for view in (View(), closed, View(at=ns(5))):
            assert some(tables.row("workers", view), "is_alive end_time_ms exit_type") == (False, ms(5), None)
        assert some(tables.row("workers", View(at=ns(4))), "is_alive end_time_ms") == (True, 0)


def test_the_end_of_an_unknown_driver_makes_no_worker(built: Built) -> None:
    assert built(job_life("FINISHED", 5)).rows("workers") == []


def test_the_task_of_a_driver_ends_with_its_job(built: Built) -> None:
    own = "ff" * 20 + JOB
    events = [job(), task(own, taskType="DRIVER_TASK"), lifecycle(own, ("RUNNING", 1), worker=JOB + "ff" * 24)]
    row = built(*events, job_life("FINISHED", 5)).row("tasks")
    assert some(row, "state end_time_ms") == ("FAILED", ms(5))
    assert row["error_message"].startswith("Job finishes")


def test_polling_adds_details_to_a_driver(built: Built) -> None:
    seen = POLLED_WORKER | {"worker_id": JOB + "ff" * 24, "worker_type": "DRIVER"}
    row = built(job(), documents=[polled("workers", seen)]).row("workers")
    assert row == seen


def test_a_detailed_snapshot_is_preferred(built: Built) -> None:
    short = document(
        "endpoint", "restful__api__v0__workers", {"data": {"result": {"result": [{"worker_id": WORKER, "pid": 1}]}}}
    )
    assert built(documents=[short, polled("workers", POLLED_WORKER)]).row("workers")["pid"] == 5


# Jobs ----------------------------------------------------------------------------------------------------------------


def submission_event(state: str, at: float, **fields: Any) -> Event:
    step = {"state": state, "timestamp": stamp(at), **fields}
    return event("SUBMISSION_JOB_LIFECYCLE_EVENT", {"submissionId": "sub", "stateTransitions": [step]}, at)


def submission_definition(at: float) -> Event:
    config = {"serializedRuntimeEnv": '{"pip": ["x"]}', "metadata": {"team": "a"}}
    return event(
        "SUBMISSION_JOB_DEFINITION_EVENT", {"submissionId": "sub", "entrypoint": "python s.py", "config": config}, at
    )


POLLED_JOB = {
    "type": "SUBMISSION",
    "job_id": JOB,
    "submission_id": "sub",
    "driver_info": {"id": JOB, "node_ip_address": "192.0.2.7", "pid": "11631"},
    "status": "RUNNING",
    "entrypoint": "python polled.py",
    "message": "Job is currently running.",
    "error_type": None,
    "start_time": ms(1),
    "end_time": None,
    "metadata": {"polled": "yes"},
    "runtime_env": {},
    "driver_agent_http_address": "http://192.0.2.7:52365",
    "driver_node_id": NODE,
    "driver_exit_code": None,
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"entrypoint": "/usr/lib/python3/site-packages/ray/dashboard/dashboard.py --port 8265"}, True),
        ({"config": {"rayNamespace": "_ray_internal_dashboard", "metadata": {}}}, True),
        ({"config": {"rayNamespace": "mine", "metadata": {}}}, False),
    ],
)
def test_rays_own_drivers_are_internal(built: Built, fields: dict[str, Any], expected: bool) -> None:
    tables = built(job(**fields), job_life("CREATED", 1)).tables
    assert tables.rows(f"select is_internal from {tables.source('jobs')}") == [(expected,)]


def run_command(at: float, *, pid: int = 11631, **end: Any) -> Event:
    """The command of `ray-history run`, as a document; it ended at a time."""
    body = {"arguments": ["python", "job.py"], "pid": pid, "started": START / 1e9, "ended": ns(at) / 1e9}
    return document("command", NODE, body | {"exit_code": None, "signal": "", "stopped_by": ""} | end, NODE)


@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        ({"exit_code": 0}, "SUCCEEDED", None),
        ({"exit_code": 1}, "FAILED", "The command exited with code 1."),
        ({"signal": "SIGKILL"}, "FAILED", "The command was ended by SIGKILL."),
        (
            {"exit_code": 1, "stopped_by": "SIGINT"},
            "STOPPED",
            "Stopped by SIGINT. The command exited with code 1.",
        ),
    ],
)
@pytest.mark.parametrize("finished", [[], [job_life("FINISHED", 8)]])
def test_the_end_of_a_command_decides_its_job(
    built: Built, finished: list[Event], end: dict[str, Any], status: str, message: str | None
) -> None:
    """Ray calls a driver a success however it ended, and often does not report its end at all."""
    tables = built(job(), job_life("CREATED", 1), *finished, documents=[run_command(9, **end)])
    expected = (status, message, ms(8 if finished else 9), end.get("exit_code"))
    assert some(tables.row("jobs"), "status message end_time driver_exit_code") == expected
    assert some(tables.row("jobs", View(closed_at=ns(10))), "status message") == (status, message)
    assert some(tables.row("jobs", View(at=ns(5))), "status message end_time") == ("RUNNING", None, None)


def test_a_command_decides_no_job_but_its_own(built: Built) -> None:
    other = "03000000"
    drivers = [job(), job_life("CREATED", 1), job(other, driverPid="77"), job_life("CREATED", 2, other)]

    def status(pid: int, *events: Event) -> dict[str, str]:
        rows = built(*events, documents=[run_command(9, pid=pid, exit_code=1)]).rows("jobs")
        return {row["job_id"]: row["status"] for row in rows}

    assert status(77, *drivers) == {JOB: "RUNNING", other: "FAILED"}
    assert status(5, *drivers) == {JOB: "RUNNING", other: "RUNNING"}, "a shell that ran both"
    assert status(5, *drivers[:2]) == {JOB: "FAILED"}, "a shell that ran it"
    assert status(5, job(submission="sub"), job_life("CREATED", 1)) == {JOB: "RUNNING"}


def test_a_command_whose_end_is_not_known_decides_nothing(built: Built) -> None:
    rebuilt = built(job(), job_life("CREATED", 1), documents=[run_command(9)])
    assert rebuilt.row("jobs")["status"] == "RUNNING"
    assert rebuilt.facts["exit_code"] is None
    assert rebuilt.facts["command"] == "python job.py"


def test_a_job_without_a_submission_runs_until_its_driver_ends(built: Built) -> None:
    tables = built(node(), job(), job_life("CREATED", 1), job_life("FINISHED", 8))
    row = tables.row("jobs")
    assert some(row, "type status submission_id entrypoint metadata") == (
        "DRIVER",
        "SUCCEEDED",
        None,
        "python job.py",
        {"owner": "me"},
    )
    assert some(row, "start_time end_time driver_info runtime_env") == (
        ms(1),
        ms(8),
        {"id": JOB, "node_ip_address": "192.0.2.2", "pid": "11631"},
        {"env_vars": {"A": "1"}},
    )
    assert some(tables.row("jobs", View(at=ns(5))), "status end_time") == ("RUNNING", None)


def test_a_submission_is_one_row_with_its_driver(built: Built) -> None:
    row = built(job(submission="sub"), job_life("CREATED", 2), documents=[polled_jobs(POLLED_JOB)]).row("jobs")
    assert row == POLLED_JOB | {"driver_info": POLLED_JOB["driver_info"]}


def test_the_most_advanced_status_of_all_sources_counts(built: Built) -> None:
    exported = exported_submission("sub", "SUCCEEDED", 9, end_time=str(ms(9)), message="Job finished successfully.")
    row = built(job(submission="sub"), documents=[polled_jobs(POLLED_JOB), exported]).row("jobs")
    assert some(row, "status message end_time") == ("SUCCEEDED", "Job finished successfully.", ms(9))
    assert row["driver_agent_http_address"] == "http://192.0.2.7:52365"


def test_the_log_about_jobs_has_the_end_that_no_other_source_has(built: Built) -> None:
    driver = [job(submission="sub"), job_life("CREATED", 2), job_life("FINISHED", 8)]
    logged = [logged_submission("sub", "", 1), logged_submission("sub", "FAILED. Exit code 3.", 9)]
    row = built(*driver, documents=logged).row("jobs")
    assert some(row, "type status message start_time end_time job_id entrypoint") == (
        *("SUBMISSION", "FAILED", "Exit code 3.", ms(1), ms(9), JOB, "python job.py"),
    )
    tables = built(*driver, documents=[polled_jobs(POLLED_JOB), *logged])
    assert some(tables.row("jobs"), "status end_time start_time") == ("FAILED", ms(9), POLLED_JOB["start_time"])
    assert some(tables.row("jobs", View(at=ns(5))), "status message end_time") == (
        "RUNNING",
        POLLED_JOB["message"],
        None,
    )
    ended = POLLED_JOB | {"status": "FAILED", "end_time": ms(8.7), "message": "Polled."}
    row = built(*driver, documents=[*logged, polled_jobs(ended)]).row("jobs")
    assert some(row, "status end_time message") == ("FAILED", ms(8.7), "Polled.")
    quoted = logged_submission("sub", "SUCCEEDED.", 9)
    quoted["body"]["custom_fields"]["submission_id"] = "sub with"
    assert built(documents=[quoted]).rows("jobs") == []


def test_without_any_source_the_result_of_a_submission_is_unknown(built: Built) -> None:
    tables = built(job(submission="sub"), job_life("CREATED", 2), job_life("FINISHED", 8))
    unknown = "The driver has finished, with an unknown result."
    assert some(tables.row("jobs"), "status message end_time") == ("RUNNING", unknown, ms(8))
    closed = tables.row("jobs", View(closed_at=ns(60)))
    assert some(closed, "status message") == (
        *("FAILED", "The cluster was terminated. Its driver had finished, with an unknown result."),
    )


def test_an_unknown_status_ranks_lowest(built: Built) -> None:
    exported = exported_submission("sub", "SUCCEEDED", 9, end_time=str(ms(9)))
    strange = polled_jobs(POLLED_JOB | {"status": "ALMOST"})
    assert built(job(submission="sub"), documents=[strange, exported]).row("jobs")["status"] == "SUCCEEDED"
    assert built(job(submission="sub"), documents=[strange]).row("jobs")["status"] == "ALMOST"


def test_events_rank_above_the_export_file_and_that_above_polling(built: Built) -> None:
    told = [submission_definition(1), submission_event("RUNNING", 2, message="event")]
    exported = exported_submission("sub", "RUNNING", 2, message="file", start_time=str(ms(1)))
    seen = polled_jobs(POLLED_JOB)
    assert built(*told, documents=[exported, seen]).row("jobs")["message"] == "event"
    assert built(documents=[exported, seen]).row("jobs")["message"] == "file"
    assert built(documents=[seen]).row("jobs")["message"] == "Job is currently running."


def test_a_submission_can_come_from_events_alone(built: Built) -> None:
    tables = built(
        submission_definition(1),
        submission_event("PENDING", 1, message="waiting"),
        submission_event("RUNNING", 2, message="running", driverNodeId=b64(NODE), driverAgentHttpAddress="http://a"),
        submission_event("FAILED", 7, message="bad", errorType="JOB_ENTRYPOINT_COMMAND_ERROR", driverExitCode=3),
    )
    row = tables.row("jobs")
    assert some(row, "job_id submission_id type status message error_type driver_exit_code") == (
        None,
        "sub",
        "SUBMISSION",
        "FAILED",
        "bad",
        "JOB_ENTRYPOINT_COMMAND_ERROR",
        3,
    )
    assert some(row, "start_time end_time entrypoint metadata runtime_env driver_node_id") == (
        ms(1),
        ms(7),
        "python s.py",
        {"team": "a"},
        {"pip": ["x"]},
        NODE,
    )
    midway = tables.row("jobs", View(at=ns(5)))
    assert some(midway, "status message end_time error_type") == ("RUNNING", "running", None, None)


def test_a_polled_end_does_not_apply_to_earlier_moments(built: Built) -> None:
    seen = POLLED_JOB | {"status": "SUCCEEDED", "end_time": ms(9), "message": "Job finished successfully."}
    tables = built(documents=[polled_jobs(seen)])
    assert some(tables.row("jobs", View(at=ns(5))), "status message end_time") == ("RUNNING", None, None)
    assert tables.rows("jobs", View(at=ns(0.5))) == []


def test_a_submission_shows_its_last_driver(built: Built) -> None:
    row = built(job("02000000", submission="sub"), job("03000000", submission="sub")).row("jobs")
    assert some(row, "job_id submission_id type status") == ("03000000", "sub", "SUBMISSION", "RUNNING")


def test_a_submission_ends_with_its_driver_if_it_was_not_polled_later(built: Built) -> None:
    events = job(at=1, submission="sub"), job_life("CREATED", 1), job_life("FINISHED", 5)
    tables = built(*events, documents=[polled_jobs(POLLED_JOB)])
    assert some(tables.row("jobs"), "status end_time") == ("RUNNING", None)
    closed = tables.row("jobs", View(closed_at=ns(99)))
    assert some(closed, "status end_time") == ("FAILED", ms(5))
    assert closed["message"] == f"{CLUSTER_TERMINATED} Its driver had finished, with an unknown result."


def test_tasks_fail_when_the_driver_ended_and_not_when_its_submission_did(built: Built) -> None:
    seen = polled_jobs(POLLED_JOB | {"status": "FAILED", "end_time": ms(9)})
    driver = POLLED_WORKER | {"worker_id": JOB + "ff" * 24, "worker_type": "DRIVER", "end_time_ms": ms(7)}
    under_way = [task(task_id(1)), lifecycle(task_id(1), ("PENDING_ARGS_AVAIL", 1), ("PENDING_NODE_ASSIGNMENT", 2))]
    listed = polled("workers", driver)
    for documents, end in (([seen], 9), ([seen, listed], 7), ([listed, seen], 7)):
        assert some(built(*under_way, documents=documents).row("tasks"), "state end_time_ms") == ("FAILED", ms(end))
    alive = polled("workers", driver | {"is_alive": True, "end_time_ms": 0})
    assert built(*under_way, documents=[alive]).row("tasks")["state"] == "PENDING_NODE_ASSIGNMENT"
    reported = built(*under_way, job(submission="sub"), job_life("FINISHED", 5), documents=[seen, listed])
    assert some(reported.row("tasks"), "state end_time_ms") == ("FAILED", ms(5))
    assert some(reported.row("jobs"), "status end_time") == ("FAILED", ms(9))


def test_a_submission_without_a_driver_is_listed(built: Built) -> None:
    exported = exported_submission(
        "sub", "FAILED", 3, message="no resources", start_time=str(ms(1)), end_time=str(ms(3))
    )
    row = built(documents=[exported]).row("jobs")
    assert some(row, "job_id driver_info submission_id status start_time end_time") == (
        None,
        None,
        "sub",
        "FAILED",
        ms(1),
        ms(3),
    )


POLLED_DRIVER = POLLED_JOB | {
    "type": "DRIVER",
    "job_id": "05000000",
    "submission_id": None,
    "driver_info": {"id": "05000000", "node_ip_address": "192.0.2.7", "pid": "12"},
    "status": "SUCCEEDED",
    "message": None,
    "end_time": ms(6),
    "metadata": {},
    "driver_agent_http_address": None,
    "driver_node_id": None,
}


def test_jobs_without_events_are_as_polled(built: Built) -> None:
    tables = built(documents=[polled_jobs(POLLED_JOB, POLLED_DRIVER)])
    assert tables.rows("jobs") == sorted([POLLED_JOB, POLLED_DRIVER], key=lambda row: str(row["job_id"]))
    assert [row["job_id"] for row in tables.rows("jobs", View(at=ns(0.5)))] == []
    midway = {row["job_id"]: row for row in tables.rows("jobs", View(at=ns(5)))}
    assert some(midway["05000000"], "status end_time") == ("RUNNING", None)


@pytest.mark.parametrize("number", range(6))
def test_each_source_of_a_driver_fills_what_the_others_lack(built: Built, number: int) -> None:
    events = [job(at=1), job_life("CREATED", 1), job_life("FINISHED", 8)]
    seen = POLLED_DRIVER | {"job_id": JOB, "end_time": ms(6), "driver_info": {"id": JOB, "pid": "9"}}
    shuffled = list(itertools.permutations(events))[number]
    assert built(*shuffled, documents=[polled_jobs(seen)]).row("jobs") == built(
        *events, documents=[polled_jobs(seen)]
    ).row("jobs")
    for missing in events:
        row = built(*(one for one in shuffled if one != missing), documents=[polled_jobs(seen)]).row("jobs")
        assert some(row, "job_id type status start_time end_time") == (JOB, "DRIVER", "SUCCEEDED", ms(1), ms(6))
        assert row["driver_info"]["pid"] == ("9" if missing == events[0] else "11631")
        assert row["entrypoint"] == ("python polled.py" if missing == events[0] else "python job.py")


def test_metadata_that_was_polled_as_null_stays_null(built: Built) -> None:
    exported = exported_submission("sub", "RUNNING", 2, start_time=str(ms(1)))
    seen = polled_jobs(POLLED_JOB | {"metadata": None})
    assert built(documents=[seen]).row("jobs")["metadata"] is None
    assert built(documents=[exported, seen]).row("jobs")["metadata"] is None
    assert built(documents=[exported]).row("jobs")["metadata"] == {}
    exported["body"]["event_data"]["metadata"] = {"team": "a"}
    assert built(documents=[exported, seen]).row("jobs")["metadata"] == {"team": "a"}


def test_an_invalid_runtime_environment_affects_no_other_field(built: Built) -> None:
    config = {"serializedRuntimeEnv": "{torn", "metadata": {}}
    row = built(job(config=config)).row("jobs")
    assert some(row, "job_id runtime_env entrypoint") == (JOB, {}, "python job.py")


def test_events_without_a_job_id_make_no_job(built: Built) -> None:
    assert built(job(jobId=""), job_life("CREATED", 1, "")).rows("jobs") == []


# Placement groups ----------------------------------------------------------------------------------------------------

GROUP = "a1" * 18


def group_events() -> list[Event]:
    bundles = [{"bundleIndex": index, "unitResources": {"CPU": 1.0}, "labelSelector": {}} for index in range(2)]
    definition = {
        "placementGroupId": b64(GROUP),
        "name": "pg",
        "creatorJobId": b64(JOB),
        "isDetached": True,
        "bundles": bundles,
        "strategy": "PACK",
        "creationRequestReceivedNs": str(ns(1)),
    }
    steps = [
        {"state": "PENDING", "timestamp": stamp(1), "schedulingState": "QUEUED"},
        {
            "state": "CREATED",
            "timestamp": stamp(2),
            "schedulingState": "FINISHED",
            "schedulingAttempt": 1,
            "bundlePlacements": [{"bundleIndex": index, "nodeId": b64(NODE)} for index in range(2)],
        },
        {"state": "REMOVED", "timestamp": stamp(9), "schedulingState": "REMOVED"},
    ]
    return [
        event("PLACEMENT_GROUP_DEFINITION_EVENT", definition, 1),
        event("PLACEMENT_GROUP_LIFECYCLE_EVENT", {"placementGroupId": b64(GROUP), "stateTransitions": steps}, 9),
    ]


POLLED_GROUP = {
    "placement_group_id": GROUP,
    "name": "polled",
    "creator_job_id": JOB,
    "state": "CREATED",
    "bundles": [],
    "is_detached": False,
    "stats": {"creation_request_received_ns": str(ns(1)), "scheduling_attempt": 7},
    "topology_strategy": {},
    "topology_assignments": {},
}


def test_a_placement_group_can_come_from_events(built: Built) -> None:
    tables = built(*group_events())
    row = tables.row("placement_groups")
    assert some(row, "placement_group_id name creator_job_id state is_detached") == (GROUP, "pg", JOB, "REMOVED", True)
    assert [some(bundle, "node_id unit_resources") for bundle in row["bundles"]] == [(NODE, {"CPU": 1.0})] * 2
    assert tables.columns("placement_groups", "created_ns, end_ns") == [(ns(1), ns(9))]
    earlier = tables.row("placement_groups", View(at=ns(1.5)))
    assert earlier["state"] == "PENDING"
    assert {bundle["node_id"] for bundle in earlier["bundles"]} == {""}
    assert tables.rows("placement_groups", View(at=ns(0.5))) == []


def test_a_placement_group_can_come_from_polling(built: Built) -> None:
    tables = built(documents=[polled("placement_groups", POLLED_GROUP)])
    assert tables.row("placement_groups") == POLLED_GROUP
    assert tables.rows("placement_groups", View(at=ns(0.5))) == []


def test_events_describe_a_placement_group_and_polling_its_statistics(built: Built) -> None:
    row = built(*group_events(), documents=[polled("placement_groups", POLLED_GROUP)]).row("placement_groups")
    assert some(row, "name state is_detached stats") == ("pg", "REMOVED", True, POLLED_GROUP["stats"])


def test_the_columns_of_ray_2_56_are_as_stored(built: Built) -> None:
    older = {name: value for name, value in POLLED_GROUP.items() if not name.startswith("topology")}
    older |= {"label_domain_key": {"k": "v"}, "label_domain_assignments": {"a": "b"}}
    tables = built(documents=[polled("placement_groups", older)]).tables
    line = row("placement_groups", detail=True, version=(2, 56))
    ((text,),) = tables.rows(f"select {line} from {tables.source('placement_groups')}")
    assert json.loads(text) == older


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((2, 52), []),
        ((2, 54), []),
        ((2, 55), ["fallback_strategy"]),
        ((2, 56), ["fallback_strategy", "label_domain_assignments", "label_domain_key"]),
        ((2, 57), ["fallback_strategy", "topology_assignments", "topology_strategy"]),
        (None, ["fallback_strategy", "topology_assignments", "topology_strategy"]),
    ],
)
def test_rows_have_the_columns_of_their_version_of_ray(
    built: Built, version: tuple[int, int] | None, expected: list[str]
) -> None:
    tables = built(task(task_id(1)), lifecycle(task_id(1), ("RUNNING", 1)), actor(), *group_events()).tables
    names = set()
    for table in ("tasks", "actors", "placement_groups"):
        for few in (True, False):
            line = row(table, detail=True, few=few, version=version)
            ((text,),) = tables.rows(f"select {line} from {tables.source(table)}")
            names |= {name for name in json.loads(text) if name.startswith(("fallback", "label_domain", "topology"))}
    assert sorted(names) == expected


# The rest ------------------------------------------------------------------------------------------------------------


def test_runtime_environments_are_as_polled(built: Built) -> None:
    seen = {
        "runtime_env": {"pip": ["x"]},
        "success": False,
        "creation_time_ms": "1500",
        "node_id": NODE,
        "ref_cnt": 0,
        "error": "no such package",
    }
    assert built(documents=[polled("runtime_envs", seen)]).row("runtime_envs") == seen


def test_a_closed_view_ends_the_setup_of_a_runtime_environment(built: Built) -> None:
    seen = {"runtime_env": {}, "success": None, "node_id": NODE, "error": None, "creation_time_ms": None}
    tables = built(documents=[polled("runtime_envs", seen)])
    assert some(tables.row("runtime_envs"), "success error") == (None, None)
    assert some(tables.row("runtime_envs", View(closed_at=ns(9))), "success error") == (False, CLUSTER_TERMINATED)


def test_a_runtime_environment_is_listed_once_its_node_exists(built: Built) -> None:
    envs = [{"runtime_env": {}, "node_id": of} for of in (NODE, OTHER_NODE, "never told of", None)]
    tables = built(node(), node(OTHER_NODE, at=9), documents=[polled("runtime_envs", *envs)])
    assert len(tables.rows("runtime_envs")) == 4
    then = tables.columns("runtime_envs", "node_id", View(at=ns(5)))
    assert {of for (of,) in then} == {NODE, "never told of", None}


def logged(event_id: str | None, timestamp: object, message: str = "m", **fields: Any) -> Event:
    body = {
        "event_id": event_id,
        "source_type": "JOBS",
        "source_hostname": "vm",
        "source_pid": 5,
        "severity": "INFO",
        "label": "",
        "message": message,
        "timestamp": timestamp,
        "custom_fields": {},
    }
    return document("log_event", "events/event_JOBS.log", body | fields, NODE)


def test_cluster_events_can_have_either_kind_of_timestamp(built: Built) -> None:
    tables = built(
        documents=[logged("A", str(ms(3) // 1000)), logged("B", ms(5) // 1000), logged("C", ms(5) / 1000 + 0.5)]
    )
    assert tables.columns("cluster_events", "event_id, event_ns") == [("A", ns(3)), ("B", ns(5)), ("C", ns(5.5))]
    assert [row["time"] for row in tables.rows("cluster_events")] == [
        "2026-11-15 20:00:03",
        "2026-11-15 20:00:05",
        "2026-11-15 20:00:05",
    ]
    assert tables.columns("cluster_events", "event_id", View(at=ns(4))) == [("A",)]


def test_a_repeated_cluster_event_is_listed_once_with_its_lines_and_job(built: Built) -> None:
    one = logged("A", 1794772803, r"first\nsecond", custom_fields={"job_id": JOB})
    again = one | {"node_id": OTHER_NODE}
    tables = built(documents=[one, again, logged(None, 1794772803), logged("B", "no time")])
    assert [row["message"] for row in tables.rows("cluster_events") if row["event_id"] == "A"] == ["first\nsecond"]
    assert tables.columns("cluster_events", "event_id, job_id") == [("A", JOB), ("B", None)]


def test_neither_order_nor_repetition_changes_cluster_events(built: Built) -> None:
    once = logged("A", 1794772803, "m", label="l", custom_fields={"job_id": JOB})
    told = [once, logged("B", 1794772804, "aa"), logged("B", 1794772805, "bb"), logged("B", None, severity=None)]
    rows = [built(documents=documents).everything()["cluster_events"] for documents in (told, told[::-1])]
    assert rows[0] == rows[1]
    only = built(documents=[once]).everything()["cluster_events"]
    assert [row for row in rows[0] if '"A"' in row] == only
    merged = [("A", "m", ns(3), JOB), ("B", "m", ns(5), None)]
    assert built(documents=told).columns("cluster_events", "event_id, message, event_ns, job_id") == merged


def test_kubernetes_events_are_cluster_events(built: Built) -> None:
    payload = {
        "source": {"platform": "KUBERNETES", "component": "kubelet"},
        "objectKind": "Pod",
        "objectName": "head-0",
        "reason": "Evicted",
        "message": "low on memory",
        "customFields": {"count": "2"},
    }
    row = built(event("PLATFORM_EVENT", payload, 3)).row("cluster_events")
    assert some(row, "source_type severity message time") == (
        "PLATFORM",
        "INFO",
        "low on memory",
        "2026-11-15 20:00:03",
    )
    assert some(row["custom_fields"], "object_kind object_name count source") == (
        "Pod",
        "head-0",
        "2",
        payload["source"],
    )


def test_kubernetes_events_without_an_id_stay_apart(built: Built) -> None:
    told = [event("PLATFORM_EVENT", {"message": message}, at) for message, at in (("first", 3), ("second", 4))]
    nameless = [{name: value for name, value in each.items() if name != "eventId"} for each in told]
    tables = built(*nameless, *nameless)
    assert sorted(tables.columns("cluster_events", "message, event_ns")) == [("first", ns(3)), ("second", ns(4))]


def test_facts_describe_the_session(built: Built) -> None:
    ledger = {"written": 1794772900.5, "alive_until": 1794772899.0, "events": {"received": 7, "stored": 6}}
    facts = built(
        node(),
        node_life("ALIVE", 0, resources={"CPU": 2.0, "GPU": 1.0}),
        node(OTHER_NODE),
        node_life("ALIVE", 1, OTHER_NODE),
        job(at=1),
        actor(at=2),
        task(task_id(1)),
        lifecycle(task_id(1), ("RUNNING", 3), ("FAILED", 50)),
        task(task_id(2)),
        lifecycle(task_id(2), ("PENDING_ARGS_AVAIL", 40), ("PENDING_NODE_ASSIGNMENT", 60)),
        documents=[
            document("endpoint", "restful__api__version", {"ray_version": "2.60.0", "ray_commit": "abc"}),
            document("endpoint", "restful__timezone", {"value": "Europe/London"}),
            document("ledger", NODE, ledger | {"ended": "graceful"}, NODE),
            document("node", NODE, {"event_files": 1, "log_files": 2}, NODE),
        ],
    ).facts
    expected = {
        "ray_version": "2.60.0",
        "ray_commit": "abc",
        "timezone": "Europe/London",
        "start_ns": ns(0),
        "last_ns": ns(60),
        "ended": "graceful",
        "events_received": 7,
        "events_stored": 6,
        "nodes": 2,
        "nodes_with_files": 1,
        "nodes_without_files": 1,
        "cpus": 4.0,
        "gpus": 1.0,
        "actors": 1,
        "jobs": 1,
        "tasks": 2,
        "failed_tasks": 1,
    }
    assert {name: facts[name] for name in expected} == expected


def test_a_session_lasts_until_its_nodes_were_seen_last(built: Built) -> None:
    """A task that runs for hours, or a cluster without work, sends no events."""
    seen = [
        document(
            "endpoint",
            "restful__nodes?view=summary",
            {"data": {"summary": [{"now": START / 1e9 + 70.5}, {"now": None}]}},
        ),
        document("endpoint", f"restful__nodes__{NODE}", {"data": {"detail": {"now": START / 1e9 + 90.25}}}),
        document("endpoint", f"restful__nodes__{OTHER_NODE}", {"data": {"detail": "?"}}),
    ]
    running = [task(task_id(1)), lifecycle(task_id(1), ("RUNNING", 3))]
    assert built(*running, documents=seen[:1]).facts["last_ns"] == ns(70.5)
    assert built(*running, documents=seen).facts["last_ns"] == ns(90.25)
    assert some(built(documents=seen).facts, "start_ns last_ns") == (None, ns(90.25))
    late = lifecycle(task_id(1), ("FINISHED", 100))
    assert built(*running, late, documents=seen).facts["last_ns"] == ns(100)


@pytest.mark.parametrize(("offset", "hours"), [("+00:00", 0), ("+08:00", 8), ("-05:30", -5.5)])
def test_the_log_of_the_gcs_tells_which_jobs_finished(built: Built, offset: str, hours: float) -> None:
    """A script that starts Ray itself stops it at its end: the event about its job is not sent any more."""

    def local(seconds: float) -> str:
        at = datetime.fromtimestamp(START / 1e9 + seconds, UTC) + timedelta(hours=hours)
        return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"

    done = [{"job_id": JOB, "time": local(30)}, {"job_id": "05000000", "time": "?"}]
    log = document("log_end", "gcs_server.out", {"shutdown": "", "last": local(31.5), "finished_jobs": done}, NODE)
    zone = document("endpoint", "restful__timezone", {"offset": offset, "value": "somewhere"})
    over, wanted = View(closed_at=ns(31.5)), "status end_time message"
    tables = built(job(at=1), job_life("CREATED", 1), documents=[log, zone])
    assert tables.facts["last_ns"] == ns(31.5)
    assert some(tables.row("jobs", over), wanted) == ("SUCCEEDED", ms(30), None)
    assert some(tables.row("jobs"), wanted) == ("RUNNING", None, None), "not over, and polled before the log was read"
    assert some(tables.row("jobs", View(at=ns(31))), "status") == ("RUNNING",)
    told = built(job(at=1), job_life("CREATED", 1), job_life("FINISHED", 20), documents=[log, zone])
    assert told.row("jobs", over)["end_time"] == ms(20), "the event is more exact"
    unknown = built(job(at=1), job_life("CREATED", 1), documents=[log])
    assert unknown.row("jobs", over)["status"] == "FAILED"
    submitted = built(job(at=1, submission="mine"), job_life("CREATED", 1), documents=[log, zone])
    message = f"{CLUSTER_TERMINATED} Its driver had finished, with an unknown result."
    assert some(submitted.row("jobs", over), wanted) == ("FAILED", ms(30), message)


@pytest.mark.parametrize(
    ("endings", "ended"),
    [([], None), (["graceful"] * 2, "graceful"), (["graceful", None], "partly graceful"), ([None], "lost")],
)
def test_facts_say_how_the_collectors_ended(built: Built, endings: list[str | None], ended: str | None) -> None:
    ledgers = [document("ledger", f"n{n}", {"ended": ending}, f"n{n}") for n, ending in enumerate(endings)]
    assert built(documents=ledgers).facts["ended"] == ended


def test_a_session_without_events_has_empty_tables(built: Built) -> None:
    tables = built()
    assert {len(rows) for rows in tables.everything().values()} == {0}
    assert some(tables.facts, "start_ns last_ns tasks ended") == (None, None, 0, None)
