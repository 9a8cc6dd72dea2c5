"""What went wrong: groups, causes, dead actors, nodes that left, and the headline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.history.rebuilt import (
    ACTOR,
    JOB,
    NODE,
    OTHER_NODE,
    Event,
    actor,
    actor_life,
    actor_step,
    job,
    job_life,
    node,
    node_life,
)
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, end_long_ago, failed, of_input, raised, ran, waited, write_session
from tests.support.captured import captured, write_archive


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("digest")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(folder)
    with served(store, folder / "cache") as running:
        yield running


def digest_of(folder: Path, events: list[Event], **more: Any) -> dict[str, Any]:
    store = write_session(folder, events, **more)
    with served(store, folder / "cache") as server:
        diagnosis: dict[str, Any] = server.get(f"/s/default/written/{SESSION}/_digest").json
    return diagnosis


def groups(diagnosis: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (group["error"], group["function"]): (group["attempts"], group["downstream"]) for group in diagnosis["groups"]
    }


S = f"/s/default/demo/{captured().session}"


def test_every_failed_attempt_of_a_captured_session_is_in_one_group(capture: Served) -> None:
    diagnosis = capture.get(f"{S}/_digest").json
    listed = capture.get(
        f"{S}/api/v0/tasks?raw=1&limit=10000&filter_keys=state&filter_predicates==&filter_values=FAILED"
    ).rows
    assert diagnosis["failed_attempts"] == len(listed) == sum(sum(counts) for counts in groups(diagnosis).values())
    assert diagnosis["failed_tasks"] == len({row["task_id"] for row in listed})
    by_id = {(row["task_id"], row["attempt_number"]): row for row in listed}
    for group in diagnosis["groups"]:
        example = group["example"]
        row = by_id[example["task_id"], example["attempt_number"]]
        assert group["function"] in (row["func_or_class_name"], row["name"])


def test_the_groups_of_a_captured_session_are_what_its_programs_did(capture: Served) -> None:
    found = groups(capture.get(f"{S}/_digest").json)
    assert found["RuntimeError", "flaky"] == (2, 0)
    assert found["RuntimeError", "BadInit.__init__"] == (1, 1), "the call to the actor that could not be made"
    assert found["WORKER_DIED", "killer"] == (2, 0)
    assert found["KeyError", "Counter.boom"] == (1, 0), "by the class, not by what the actor calls itself"
    assert found["UserCodeException", "Map(bad)"] == (1, 0), "by the name that Ray Data gives, not _map_task"


def test_tasks_that_succeeded_on_retry_are_counted(capture: Served) -> None:
    diagnosis = {group["function"]: group for group in capture.get(f"{S}/_digest").json["groups"]}
    assert (diagnosis["flaky"]["tasks"], diagnosis["flaky"]["recovered"]) == (1, 1)
    assert (diagnosis["raiser"]["tasks"], diagnosis["raiser"]["recovered"]) == (1, 0)


def test_actors_that_ended_as_planned_are_not_shown(capture: Served) -> None:
    diagnosis = capture.get(f"{S}/_digest").json
    assert [(dead["class_name"], dead["cause"]) for dead in diagnosis["actors"]] == [
        ("Counter", "WORKER_DIED"),
        ("BadInit", "CREATION_FAILED"),
        ("Restarter", "WORKER_DIED"),
    ]
    assert diagnosis["actors"][1]["reason"] == "RuntimeError: bad init"
    assert diagnosis["dead_actors"] > 3


def test_the_headline_of_a_captured_session(capture: Served) -> None:
    diagnosis = capture.get(f"{S}/_digest").json
    assert diagnosis["headline"] == {
        "title": "fx-fail failed at 20:57:25 after failing raised ValueError at 20:57:24",
        "text": '"x" in failing caused 1 of 20 failed attempts.',
    }


def test_tasks_that_were_running_at_the_end_are_no_failures(capture: Served) -> None:
    diagnosis = capture.get(f"{S}/_digest").json
    listed = capture.get(f"{S}/api/v0/tasks?raw=1&limit=10000").rows
    assert diagnosis["unfinished_tasks"] == sum(row["state"] not in ("FINISHED", "FAILED") for row in listed) > 0


def test_follow_up_failures_are_counted_with_their_cause(tmp_path: Path) -> None:
    cause = raised("load")
    diagnosis = digest_of(
        tmp_path,
        [
            *failed(1, "load", 1, 2, cause),
            *failed(2, "load", 1, 3, raised("load", "ValueError: another message")),
            *failed(3, "use", 2, 4, of_input("use", cause)),
            *failed(4, "use", 2, 5, of_input("use", of_input("use", cause))),
            *failed(5, "wait", 2, 6, waited("wait", cause)),
            *failed(6, "use", 2, 7, of_input("use", waited("wait", cause))),
            *failed(7, "other", 2, 8, raised("other", "KeyError: 'k'")),
        ],
    )
    assert groups(diagnosis) == {("ValueError", "load"): (2, 4), ("KeyError", "other"): (1, 0)}
    assert diagnosis["groups"][0]["first_ns"] < diagnosis["groups"][0]["last_ns"]


def test_a_follow_up_failure_without_its_cause_is_a_group_of_its_own(tmp_path: Path) -> None:
    gone = "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task."
    text = of_input("crash", "").replace("ray.exceptions.RayTaskError: ", gone)
    diagnosis = digest_of(
        tmp_path, [*failed(1, "use", 1, 2, of_input("use", raised("lost_task"))), *failed(2, "crash", 1, 2, text)]
    )
    assert groups(diagnosis) == {("ValueError", "use"): (1, 0), ("WorkerCrashedError", "crash"): (1, 0)}
    assert {group["function"]: group["of_input"] for group in diagnosis["groups"]} == {"use": False, "crash": True}


def test_exceptions_of_any_name_are_grouped_by_it(tmp_path: Path) -> None:
    diagnosis = digest_of(
        tmp_path,
        [
            *failed(1, "a", 1, 2, raised("a", "app.errors.Boom: it\nsecond line: of it")),
            *failed(2, "b", 1, 2, raised("b", "KeyboardInterrupt")),
            *failed(3, "c", 1, 2, "no trace at all"),
            *failed(4, "d", 1, 2, "Task was killed due to the node running low on memory.\nMore.", "OUT_OF_MEMORY"),
        ],
    )
    assert set(groups(diagnosis)) == {
        ("Boom", "a"),
        ("KeyboardInterrupt", "b"),
        ("TASK_EXECUTION_EXCEPTION", "c"),
        ("OUT_OF_MEMORY", "d"),
    }
    decisive = {group["function"]: group["example"]["trace"]["message"] for group in diagnosis["groups"]}
    assert decisive == {
        "a": "app.errors.Boom: it",
        "b": "KeyboardInterrupt",
        "c": "no trace at all",
        "d": "Task was killed due to the node running low on memory.",
    }


def test_a_lost_node_is_the_headline_if_no_job_failed(tmp_path: Path) -> None:
    diagnosis = digest_of(
        tmp_path,
        [
            node(NODE),
            node_life("ALIVE", 0),
            node(OTHER_NODE, nodeName="gpu-3"),
            node_life("ALIVE", 0, OTHER_NODE),
            node_life(
                "DEAD", 60, OTHER_NODE,
                deathInfo={"reason": "UNEXPECTED_TERMINATION", "reasonMessage": "health check failed"},
            ),
            *failed(1, "score", 1, 60, "Its node died.", "NODE_DIED", node=OTHER_NODE),
            *ran(2, "score", 1, 90),
        ],
    )  # fmt: skip
    (lost,) = diagnosis["nodes"]
    assert (lost["node_id"], lost["expected"]) == (OTHER_NODE, False)
    assert lost["reason"] == "Unexpected termination: health check failed"
    assert diagnosis["headline"] == {
        "title": "Node gpu-3 was lost at 20:01:00",
        "text": 'The only failed attempt was in "score" on node gpu-3, which was lost at 20:01:00.',
    }


def test_a_planned_departure_is_no_loss(tmp_path: Path) -> None:
    gone = {"reason": "AUTOSCALER_DRAIN_IDLE", "reasonMessage": "idle for 300 s"}
    diagnosis = digest_of(
        tmp_path, [node(), node_life("ALIVE", 0), node_life("DEAD", 60, deathInfo=gone), *ran(1, "fine", 1, 90)]
    )
    assert [left["expected"] for left in diagnosis["nodes"]] == [True]
    assert diagnosis["headline"] is None


def test_without_lasting_failures_there_is_no_headline(tmp_path: Path) -> None:
    diagnosis = digest_of(
        tmp_path,
        [
            job(),
            job_life("CREATED", 0),
            *failed(1, "flaky", 1, 2, raised("flaky")),
            *ran(1, "flaky", 3, 4, attempt=1),
            job_life("FINISHED", 9),
        ],
    )
    assert groups(diagnosis) == {("ValueError", "flaky"): (1, 0)}
    assert diagnosis["headline"] is None


def test_failures_decided_by_ray_are_one_cause_for_all_functions(tmp_path: Path) -> None:
    events = [*failed(1, "alone", 1, 2, raised("alone")), *failed(2, "alone", 1, 3, raised("alone"))]
    for number, (name, end) in enumerate([("a", 9), ("b", 5), ("b", 8)], 3):
        events += failed(number, name, 4, end, "The node was low on memory.", "OUT_OF_MEMORY")
    diagnosis = digest_of(tmp_path, events)
    assert [group["function"] for group in diagnosis["groups"]] == ["b", "a", "alone"], "the largest cause comes first"
    assert diagnosis["headline"] == {
        "title": "Tasks began to run out of memory at 20:00:05",
        "text": '3 of 5 failed attempts had this cause, in 2 functions, most of them in "b".',
    }


def test_groups_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.server.ui.session.failures.MOST_GROUPS", 2)
    monkeypatch.setattr("ray_history.server.ui.session.diagnosis.MOST_GROUPS", 2)
    events: list[Event] = []
    for number, end in enumerate((9, 8, 7, 6), 1):
        events += failed(number, f"f{number}", 1, end, "It died.", "WORKER_DIED")
    diagnosis = digest_of(tmp_path, events)
    assert (len(diagnosis["groups"]), diagnosis["groups_left_out"]) == (2, 2)
    assert diagnosis["headline"]["title"] == "Workers began to die at 20:00:06"
    assert diagnosis["headline"]["text"].startswith("4 of 4 failed attempts had this cause, in 4 functions")


def test_tasks_actors_and_jobs_of_ray_are_counted_separately(tmp_path: Path) -> None:
    cause = {"actorDiedErrorContext": {"reason": "NODE_DIED", "errorMessage": "Its node has died."}}
    dead = [actor_life(actor_step("ALIVE", 1, NODE, pid=5)), actor_life(actor_step("DEAD", 7, NODE, deathCause=cause))]
    own = [*failed(2, "run", 1, 5, "It died.", "WORKER_DIED"), *ran(3, "ping", 1, 2)]
    for event in own:
        if "taskDefinitionEvent" in event:
            event["taskDefinitionEvent"]["taskFunc"]["pythonFunctionDescriptor"]["className"] = "JobSupervisor"
    events = [
        *failed(1, "mine", 1, 5, "It died.", "WORKER_DIED"),
        *own,
        actor(className="JobSupervisor", rayNamespace="SUPERVISOR_ACTOR_RAY_NAMESPACE"),
        *dead,
        job(entrypoint="/x/ray/dashboard/dashboard.py"),
        job_life("CREATED", 0),
    ]
    diagnosis = digest_of(tmp_path, events)
    assert [group["function"] for group in diagnosis["groups"]] == ["mine"]
    assert (diagnosis["failed_attempts"], diagnosis["actors"], diagnosis["dead_actors"]) == (1, [], 0)
    assert diagnosis["internal"] == {"task_attempts": 2, "failed_attempts": 1, "actors": 1, "jobs": 1}


def test_dead_actors_have_the_cause_that_ray_reports(tmp_path: Path) -> None:
    cause = {"actorDiedErrorContext": {"reason": "NODE_DIED", "errorMessage": "Its node has died."}}
    diagnosis = digest_of(
        tmp_path,
        [
            actor(className="Store"),
            actor_life(actor_step("ALIVE", 1, NODE, pid=5)),
            actor_life(actor_step("DEAD", 7, NODE, deathCause=cause)),
        ],
    )
    (dead,) = diagnosis["actors"]
    assert (dead["actor_id"], dead["class_name"], dead["job_id"]) == (ACTOR, "Store", JOB)
    assert (dead["cause"], dead["reason"]) == ("NODE_DIED", "Its node has died.")


def test_secrets_in_error_texts_are_redacted(tmp_path: Path) -> None:
    diagnosis = digest_of(tmp_path, failed(1, "f", 1, 2, raised("f", "ValueError: DB_PASSWORD=hunter2 refused")))
    assert "hunter2" not in str(diagnosis)
    assert "<redacted>" in diagnosis["groups"][0]["example"]["trace"]["message"]
