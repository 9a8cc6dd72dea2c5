"""Events of other versions of Ray, and invalid ones: everything readable is read, and nothing raises an error."""

from __future__ import annotations

import copy
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.history.rebuilt import (
    ACTOR,
    JOB,
    NODE,
    TABLES,
    WORKER,
    Event,
    Rebuilt,
    actor,
    actor_life,
    actor_step,
    b64,
    event,
    exported_submission,
    job,
    job_life,
    lifecycle,
    ms,
    node,
    node_life,
    ns,
    polled,
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
from tests.support.captured import captured

ONE = task_id(1)
Built = Callable[..., Rebuilt]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return lambda *events, **more: rebuild(tmp_path, events, **more)


@cache
def real_events() -> tuple[Event, ...]:
    return tuple(json.loads(line) for lines in captured().events.values() for line in lines)


@cache
def one_of_each() -> tuple[Event, ...]:
    """A few real events of every type, those with most to tell, and the types that no capture has yet."""
    by_type: dict[str, list[Event]] = {}
    for told in real_events():
        by_type.setdefault(told["eventType"], []).append(told)
    chosen = [told for same in by_type.values() for told in sorted(same, key=lambda told: len(json.dumps(told)))[-4:]]
    return (
        *chosen,
        event(
            "PLACEMENT_GROUP_DEFINITION_EVENT",
            {
                "placementGroupId": b64("a1" * 18),
                "name": "pg",
                "creatorJobId": b64(JOB),
                "bundles": [{"bundleIndex": 0, "unitResources": {"my_resource": 1.0}}],
                "creationRequestReceivedNs": str(ns(1)),
            },
        ),
        event(
            "PLACEMENT_GROUP_LIFECYCLE_EVENT",
            {
                "placementGroupId": b64("a1" * 18),
                "stateTransitions": [
                    {
                        "state": "CREATED",
                        "timestamp": stamp(2),
                        "schedulingAttempt": 1,
                        "highestRetryDelayMs": 1.5,
                        "bundlePlacements": [{"bundleIndex": 0, "nodeId": b64(NODE)}],
                    }
                ],
            },
        ),
        event(
            "SUBMISSION_JOB_DEFINITION_EVENT",
            {
                "submissionId": "s",
                "entrypoint": "x",
                "config": {"metadata": {"my_key": "v"}, "serializedRuntimeEnv": "{}"},
            },
        ),
        event(
            "SUBMISSION_JOB_LIFECYCLE_EVENT",
            {
                "submissionId": "s",
                "stateTransitions": [{"state": "FAILED", "timestamp": stamp(3), "errorType": "E", "driverExitCode": 1}],
            },
        ),
        event(
            "PLATFORM_EVENT", {"objectKind": "Pod", "objectName": "p", "customFields": {"my_key": "v"}, "message": "m"}
        ),
        actor("ab" * 16, labelSelector={"my_label": "x"}),
        actor_life(
            actor_step(
                "DEAD",
                4,
                deathCause={
                    "actorDiedErrorContext": {
                        "errorMessage": "gone",
                        "neverStarted": True,
                        "nodeDeathInfo": {"reason": "UNEXPECTED_TERMINATION", "reasonMessage": "m"},
                    }
                },
            ),
            actor="ab" * 16,
        ),
    )


# Names and types -----------------------------------------------------------------------------------------------------

FREE = {
    "labels",
    "resources",
    "requiredResources",
    "labelSelector",
    "metadata",
    "customFields",
    "unitResources",
    "refIds",
}
"""Objects whose keys are the user's."""


def in_snake_case(value: Any) -> Any:
    if isinstance(value, list):
        return [in_snake_case(element) for element in value]
    if isinstance(value, dict):
        return {
            re.sub("([A-Z])", r"_\1", key).lower(): inner if key in FREE else in_snake_case(inner)
            for key, inner in value.items()
        }
    return value


def test_events_with_snake_case_names_make_the_same_tables(built: Built) -> None:
    events = one_of_each()
    assert {told["eventType"] for told in events} >= {"WORKER_LIFECYCLE_EVENT", "TASK_PROFILE_EVENT", "PLATFORM_EVENT"}
    usual, snake = built(*events), built(*map(in_snake_case, events))
    assert snake.everything() == usual.everything()
    assert snake.counts.by_type == usual.counts.by_type
    assert len(usual.everything()["tasks"]) > 5


def with_other_numbers(value: Any, key: str = "") -> Any:
    """Numbers as texts, and texts that are numbers as numbers."""
    if isinstance(value, list):
        return [with_other_numbers(element) for element in value]
    if isinstance(value, dict):
        return {name: inner if name in FREE else with_other_numbers(inner, name) for name, inner in value.items()}
    if isinstance(value, str) and value.isdigit() and key not in ("functionHash", "className"):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def test_numbers_as_texts_and_texts_as_numbers_make_the_same_tables(built: Built) -> None:
    events = one_of_each()
    assert built(*map(with_other_numbers, events)).everything() == built(*events).everything()


def test_unknown_types_are_counted_and_unknown_fields_ignored(built: Built) -> None:
    later = event("OBJECT_LIFECYCLE_EVENT", {"objectId": "x", "stateTransitions": [{}]})
    more = lifecycle(ONE, ("RUNNING", 1), somethingNew={"a": [1]}, stateReason="x") | {"topLevelNews": [1]}
    tables = built(task(ONE, newField=[{}]), more, later, later)
    assert tables.row("tasks")["state"] == "RUNNING"
    assert tables.counts.by_type["OBJECT_LIFECYCLE_EVENT"] == 2
    assert tables.counts.events == 4


def test_a_session_of_ray_2_56(built: Built) -> None:
    unset = {"stdoutFile": "", "stderrFile": "", "stdoutStart": "0", "stderrStart": "0"}
    tables = built(
        node(),
        job(),
        task(ONE),
        lifecycle(ONE, ("RUNNING", 2), node=NODE, worker=WORKER, log=unset | {"stdoutEnd": "0", "stderrEnd": "0"}),
        lifecycle(ONE, ("FINISHED", 3), log=unset | {"stdoutEnd": "41", "stderrEnd": "0"}, at=4),
        documents=[polled("workers", {"worker_id": WORKER, "is_alive": True, "worker_type": "WORKER", "pid": 7})],
    )
    row = tables.row("tasks")
    assert (row["state"], row["task_log_info"]) == ("FINISHED", {"stdout_end": 41})
    assert [(row["worker_type"], row["pid"]) for row in tables.rows("workers")] == [("DRIVER", 11631), ("WORKER", 7)]


# Wrong types ---------------------------------------------------------------------------------------------------------


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*path, key)
        yield from leaves(child, (*path, key))


def put(value: Any, path: tuple[str | int, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def broken(events: tuple[Event, ...], new: Any) -> list[Event]:
    """Each event once per field of its payload, with that field replaced, under ids of its own."""
    made = []
    for told in events:
        for path in leaves(told):
            if path[0] not in ("eventId", "eventType", "sessionName", "sourceType"):
                copied = copy.deepcopy(told)
                put(copied, path, new)
                made.append(copied)
    return made


@pytest.mark.parametrize("new", [None, [1, [2]], {"a": {"b": 1}}, -1.5, "9223372036854775807"], ids=repr)
def test_a_wrong_value_in_any_field_raises_no_error(built: Built, new: Any) -> None:
    events = one_of_each()
    tables = built(*broken(events, new))
    for table in TABLES:
        tables.rows(table)
    assert len(tables.rows("actors")) >= 4


def test_a_wrong_value_affects_only_its_field(built: Built) -> None:
    row = built(
        task(ONE, requiredResources=None, jobId=["x"], callSite={"a": 1}),
        lifecycle(ONE, ("RUNNING", 1), ("FINISHED", 2), node=NODE, worker=WORKER, workerPid=["x"], taskLogInfo="none"),
        profile(ONE, span("x", 1, 2) | {"startTime": "soon"}, span("y", 1, 2)),
    ).row("tasks")
    assert (row["name"], row["state"], row["node_id"], row["worker_pid"]) == ("work", "FINISHED", NODE, None)
    assert [told["event_name"] for told in row["profiling_data"]["events"]] == ["y", "x"]
    assert row["end_time_ms"] == ms(2)


def test_invalid_settings_of_a_runtime_environment_affect_only_themselves(built: Built) -> None:
    config = {"setup_timeout_seconds": "soon", "eager_install": "perhaps", "log_files": ["x"]}
    row = built(task(ONE, serializedRuntimeEnv=json.dumps({"config": config}))).row("tasks")
    told = {"setup_timeout_seconds": 600, "eager_install": True, "log_files": ["x"]}
    assert row["runtime_env_info"]["runtime_env_config"] == told


@pytest.mark.parametrize("strange", [1e300, "nan", "-inf", "long"])
def test_an_invalid_time_of_a_polled_runtime_environment_affects_only_itself(built: Built, strange: Any) -> None:
    row = {"runtime_env": {}, "success": True, "creation_time_ms": strange, "node_id": NODE}
    assert built(documents=[polled("runtime_envs", row)]).row("runtime_envs")["creation_time_ms"] is None


def test_wrong_values_in_rare_events_affect_only_their_fields(built: Built) -> None:
    tables = built(
        actor(isDetached=[1], requiredResources="x"),
        actor_life(actor_step("ALIVE", 2, NODE, WORKER, 3, port={}, reprName="me"), "no transition", None),  # type: ignore[arg-type]
        node(startTimestamp=5),
        node_life("ALIVE", 2, resources=[1], deathInfo="x"),
        worker(pid="many"),
        worker_dead(5),
        job(driverPid={}, config="none"),
        job_life("CREATED", 1),
        job(at=3) | {"timestamp": None},
    )
    (actor_row,) = tables.rows("actors")
    assert (actor_row["state"], actor_row["repr_name"], actor_row["pid"]) == ("ALIVE", "me", 3)
    (node_row,) = tables.rows("nodes")
    assert (node_row["state"], node_row["node_ip"]) == ("ALIVE", "192.0.2.2")
    (job_row,) = tables.rows("jobs")
    assert (job_row["entrypoint"], job_row["status"], job_row["start_time"]) == ("python job.py", "RUNNING", ms(1))
    assert {row["worker_type"]: row["is_alive"] for row in tables.rows("workers")} == {"WORKER": False, "DRIVER": True}


def test_wrong_values_in_documents_raise_no_error(built: Built) -> None:
    strange: list[Any] = [None, 5, "x", [1], {"data": None}, {"data": {"result": {"result": {"a": 1}}}}]
    good = polled("workers", {"worker_id": WORKER, "pid": [1], "is_alive": "maybe", "start_time_ms": "soon"})
    endpoints = [
        "restful__api__v0__nodes",
        "restful__api__v0__placement_groups",
        "restful__api__jobs",
        "restful__timezone",
    ]
    documents = [
        {"source": source, "name": name, "node_id": NODE, "body": body}
        for body in strange
        for source, names in (("endpoint", endpoints), ("log_event", ["e"]), ("export_event", ["x"]), ("ledger", ["n"]))
        for name in names
    ]
    wrong_jobs = polled_jobs(
        {"type": "SUBMISSION", "submission_id": "s", "start_time": {}, "runtime_env": 5, "metadata": []}
    )
    wrong_export = exported_submission("t", "RUNNING", 2, runtime_env_json="{torn", start_time="x", driver_exit_code=[])
    wrong_ledger = {
        "source": "ledger",
        "name": "n",
        "node_id": "n",
        "body": {"written": "x", "events": {"received": "y"}},
    }
    tables = built(documents=[*documents, good, wrong_jobs, wrong_export, wrong_ledger])
    assert [row["worker_id"] for row in tables.rows("workers")] == [WORKER]
    assert [row["submission_id"] for row in tables.rows("jobs")] == ["s", "t"]


def test_states_and_ids_of_other_types_make_no_rows(built: Built) -> None:
    tables = built(actor(actorId=""), node(nodeId=None), worker(workerId=""), worker_alive(1, ""), actor_life(actor=""))
    assert {table: tables.rows(table) for table in ("actors", "nodes", "workers")} == {
        "actors": [],
        "nodes": [],
        "workers": [],
    }
    assert ACTOR not in json.dumps(tables.everything())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(seed=st.integers(0, 1 << 32), replacements=st.lists(values, min_size=1, max_size=20))
def test_a_real_session_with_random_values_raises_no_error(seed: int, replacements: list[Any]) -> None:
    choice = random.Random(seed)
    events = [copy.deepcopy(told) for told in (*choice.sample(real_events(), 100), *one_of_each())]
    for told in events:
        for path in choice.sample(paths := list(leaves(told)), min(2, len(paths))):
            try:
                put(told, path, copy.deepcopy(choice.choice(replacements)))
            except (KeyError, IndexError, TypeError):  # inside what was replaced before
                continue
    with tempfile.TemporaryDirectory() as directory:
        tables = rebuild(Path(directory), events)
        for table in TABLES:
            tables.rows(table)
