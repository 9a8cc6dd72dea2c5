"""The order and repetition of events, and their division into batches and builds, never change the tables."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_history.history.read.json_rows import row
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import View
from tests.history.rebuilt import (
    ACTOR,
    JOB,
    NODE,
    OTHER_NODE,
    OTHER_WORKER,
    WORKER,
    Event,
    Rebuilt,
    actor,
    actor_life,
    actor_step,
    actor_task,
    actor_task_id,
    event,
    job,
    job_life,
    lifecycle,
    node,
    node_life,
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
from tests.support.captured import captured

slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# Few ids, times and texts, so that events meet. The events of one attempt agree on where it ran, as Ray's do.
tasks = st.sampled_from([task_id(1), task_id(2), actor_task_id(3), "ff" * 8 + ACTOR, "ff" * 20 + JOB])
attempts = st.integers(0, 1)
seconds = st.integers(0, 6)
states = st.sampled_from(
    [
        "PENDING_ARGS_AVAIL",
        "PENDING_NODE_ASSIGNMENT",
        "SUBMITTED_TO_WORKER",
        "GETTING_AND_PINNING_ARGS",
        "RUNNING",
        "RUNNING_IN_RAY_GET",
        "FINISHED",
        "FAILED",
    ]
)
errors = st.none() | st.tuples(
    st.sampled_from(["WORKER_DIED", "OUT_OF_MEMORY"]), st.sampled_from(["", "\x1b[1mbad\x1b[0m"])
)
logs = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "stdoutFile": st.sampled_from(["", "/l/w.out"]),
        "stdoutStart": st.sampled_from(["0", "31"]),
        "stdoutEnd": st.sampled_from(["0", "41", "50"]),
        "stderrFile": st.just("/l/w.err"),
        "stderrEnd": st.just("43"),
    },
)
spans = st.builds(span, st.sampled_from(["task:execute", "task::f"]), seconds, seconds, st.sampled_from(["{}", "torn"]))
nodes = st.sampled_from([NODE, OTHER_NODE])
workers = st.sampled_from([WORKER, OTHER_WORKER])
deaths = st.none() | st.sampled_from([{"actorDiedErrorContext": {"errorMessage": text}} for text in ("a", "b")])
actor_steps = st.builds(
    actor_step,
    st.sampled_from(["PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"]),
    seconds,
    nodes | st.just(""),
    workers | st.just(""),
    st.integers(0, 2),
    deathCause=deaths,
    reprName=st.sampled_from(["", "me"]),
    restartReason=st.sampled_from(["ACTOR_FAILURE", "NODE_PREEMPTION"]),
)


@st.composite
def lifecycles(draw: st.DrawFn) -> Event:
    one = draw(tasks)
    steps = draw(st.lists(st.tuples(states, seconds), max_size=4))
    fields: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "workerPid": st.sampled_from([0, 17]),
                "actorReprName": st.sampled_from(["", "me"]),
                "isDebuggerPaused": st.booleans(),
            },
        )
    )
    return lifecycle(
        one,
        *steps,
        attempt=draw(attempts),
        node=draw(st.sampled_from(["", NODE])),
        worker=draw(st.sampled_from(["", WORKER])),
        error=draw(errors),
        log=draw(logs),
        at=draw(seconds),
        **fields,
    )


submissions = st.builds(
    lambda state, at, more: event(
        "SUBMISSION_JOB_LIFECYCLE_EVENT",
        {
            "submissionId": "sub",
            "stateTransitions": [{"state": state, "timestamp": f"2026-11-15T20:00:0{at}Z", **more}],
        },
        at,
    ),
    st.sampled_from(["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]),
    seconds,
    st.fixed_dictionaries({}, optional={"message": st.sampled_from(["a", "b"]), "driverExitCode": st.integers(0, 1)}),
)
groups = st.builds(
    lambda state, at, placed: event(
        "PLACEMENT_GROUP_LIFECYCLE_EVENT",
        {
            "placementGroupId": "a1" * 18,
            "stateTransitions": [
                {
                    "state": state,
                    "timestamp": f"2026-11-15T20:00:0{at}Z",
                    "bundlePlacements": [{"bundleIndex": 0, "nodeId": placed}],
                }
            ],
        },
        at,
    ),
    st.sampled_from(["PENDING", "CREATED", "RESCHEDULING", "REMOVED"]),
    seconds,
    nodes,
)
all_events = st.one_of(
    st.builds(task, tasks, attempts, seconds, taskName=st.sampled_from(["", "work", "mine"])),
    st.builds(actor_task, tasks, attempts, seconds, actorTaskName=st.sampled_from(["Counter.inc", "mine"])),
    lifecycles(),
    lifecycles(),
    st.builds(
        lambda one, found, attempt: profile(one, *found, attempt=attempt), tasks, st.lists(spans, max_size=3), attempts
    ),
    st.builds(actor, at=seconds, name=st.sampled_from(["", "named"]), isDetached=st.booleans()),
    st.builds(lambda found: actor_life(*found), st.lists(actor_steps, max_size=3)),
    st.builds(node, nodes, seconds, nodeName=st.sampled_from(["", "n"])),
    st.builds(
        node_life,
        st.sampled_from(["ALIVE", "DEAD"]),
        seconds,
        nodes,
        resources=st.sampled_from([{}, {"CPU": 1.0}, {"CPU": 2.0}]),
        aliveSubState=st.sampled_from(["UNSPECIFIED", "DRAINING"]),
        deathInfo=st.sampled_from([{"reason": "EXPECTED_TERMINATION", "reasonMessage": text} for text in "ab"]),
    ),
    st.builds(worker, workers, nodes, seconds),
    st.builds(worker_alive, seconds, workers),
    st.builds(
        worker_dead, seconds, st.sampled_from(["SYSTEM_ERROR", "USER_ERROR"]), st.sampled_from(["x", "y"]), workers
    ),
    st.builds(job, at=seconds, submission=st.sampled_from([None, "sub"]), entrypoint=st.sampled_from(["", "run"])),
    st.builds(job_life, st.sampled_from(["CREATED", "FINISHED"]), seconds),
    submissions,
    groups,
)

DOCUMENTS = [
    polled(
        "workers", {"worker_id": WORKER, "is_alive": False, "end_time_ms": 1794772803000, "exit_type": "USER_ERROR"}
    ),
    polled("nodes", {"node_id": OTHER_NODE, "state": "ALIVE", "node_name": "polled", "start_time_ms": 1794772800000}),
]


def parts(events: Sequence[Any], ends: Sequence[int]) -> list[Sequence[Any]]:
    ends = [0, *sorted({end % (len(events) + 1) for end in ends}), len(events)]
    return [events[begin:end] for begin, end in itertools.pairwise(ends)]


def assert_same(one: Rebuilt, other: Rebuilt) -> None:
    expected, found = one.everything(), other.everything()
    for table, rows in expected.items():
        assert [json.loads(row) for row in found[table]] == [json.loads(row) for row in rows], table
    assert found == expected
    counted = {"nodes", "actors", "jobs", "tasks", "failed_tasks", "start_ns", "last_ns", "cpus"}
    assert {name: other.facts[name] for name in counted} == {name: one.facts[name] for name in counted}


places = st.lists(st.integers(0, 1000), max_size=3)


@settings(slow, max_examples=10)
@given(told=st.lists(all_events, min_size=1, max_size=30), data=st.data())
def test_order_repetition_and_division_do_not_change_the_tables(told: list[Event], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(told), max_size=5))
    arriving = data.draw(st.permutations(told + again))
    builds = parts(arriving, data.draw(places))
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        at_once = rebuild(place, told, DOCUMENTS)
        base = None
        for build in builds:
            cuts = [cut % (len(build) + 1) for cut in data.draw(places)]
            base = rebuild(place, build, DOCUMENTS, cuts=cuts, base=base)
        assert base is not None
        assert_same(at_once, base)


@cache
def real_events() -> list[bytes]:
    return [line for lines in captured().events.values() for line in lines]


@settings(slow, max_examples=3)
@given(seed=st.integers(0, 1 << 32), size=st.sampled_from([60, 400, 2017]))
def test_order_and_division_do_not_change_the_tables_of_a_real_session(seed: int, size: int) -> None:
    choice = random.Random(seed)
    told = choice.sample(real_events(), size)
    arriving = told + choice.sample(told, size // 10)
    choice.shuffle(arriving)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        at_once = rebuild(place, told)
        base = None
        for build in parts(arriving, [len(arriving) - choice.randrange(1, 40) for _ in range(choice.randrange(3))]):
            base = rebuild(place, build, cuts=choice.sample(range(len(build)), min(2, len(build))), base=base)
        assert base is not None
        assert_same(at_once, base)


def assert_found_one_by_one(built: Rebuilt, *numbers: int) -> None:
    """Tasks of these numbers, or all."""
    tables = built.tables
    for one in map(task_id, numbers) if numbers else found(tables):
        for view in (View(), View(at=ns(3)), View(closed_at=ns(9))):
            of = "select to_json(t)::varchar from {} as t where task_id = ? order by all"
            assert tables.rows(of.format(tables.task(one.upper(), view)), [one]) == tables.rows(
                of.format(tables.source("tasks", view)), [one]
            )
            assert_told_alone(built, one, view)


def found(tables: Tables) -> list[str]:
    return [one for (one,) in tables.rows("select distinct task_id from observed_tasks")]


def assert_told_alone(built: Rebuilt, task_id: str, view: View) -> None:
    def asked(rows: str) -> str:
        return f"select {row('tasks', detail=True, few=True)} from {rows} where task_id = ? order by attempt_number"

    among_all = built.tables.rows(asked(built.tables.source("tasks", view)), [task_id])
    assert built.tables.fetch_task(task_id, view, asked, [task_id]) == among_all


def test_few_new_events_are_written_to_a_delta(tmp_path: Path) -> None:
    old = [
        told for n in range(60) for told in (task(task_id(n)), lifecycle(task_id(n), ("RUNNING", 1), ("FINISHED", 2)))
    ]
    new = [task(task_id(70)), lifecycle(task_id(70), ("RUNNING", 3))]
    newer = [lifecycle(task_id(70), ("FINISHED", 4)), lifecycle(task_id(5), log={"stdoutEnd": "7"})]
    first = rebuild(tmp_path, old)
    second = rebuild(tmp_path, new, base=first)
    third = rebuild(tmp_path, newer, base=second)
    for extended, told in ((second, old + new), (third, old + new + newer)):
        assert (extended.directory / "tasks_delta.parquet").exists()
        assert (extended.directory / "tasks.parquet").samefile(first.directory / "tasks.parquet")
        assert_same(rebuild(tmp_path, told), extended)
        assert_found_one_by_one(extended, 0, 5, 59, 70)


def test_many_new_events_rewrite_all_rows(tmp_path: Path) -> None:
    old, new = [task(task_id(n)) for n in range(9)], [lifecycle(task_id(n), ("RUNNING", 1)) for n in range(9)]
    extended = rebuild(tmp_path, new, base=rebuild(tmp_path, old))
    assert not (extended.directory / "tasks_delta.parquet").exists()
    assert_same(rebuild(tmp_path, old + new), extended)
    assert_found_one_by_one(extended)


def test_an_unknown_task_is_not_found(tmp_path: Path) -> None:
    built = rebuild(tmp_path, [task(task_id(1))])
    assert built.tables.rows(f"from {built.tables.task(task_id(2))}") == []
    assert len(built.tables.rows(f"from {built.tables.task(task_id(1))}")) == 1
    assert_told_alone(built, task_id(2), View())


def test_a_single_task_is_the_same_as_in_a_listing(tmp_path: Path) -> None:
    odd = 'it\'s "odd"\\ \\u0041 \u0000\u2028\U0001f600\n' + "x" * 100_000
    told = [task(task_id(n), taskName=odd, callSite=odd, requiredResources={odd: 1.0}) for n in (1, 2)]
    ended = lifecycle(task_id(1), ("RUNNING", 1), ("FAILED", 2), error=("WORKER_DIED", odd))
    strange = event("TASK_LIFECYCLE_EVENT", {"taskId": "İstanbul's ÄÖ", "taskAttempt": 0})
    built = rebuild(tmp_path, [*told, ended, profile(task_id(1), span(odd, 1, 2)), strange])
    ids = [one for (one,) in built.tables.rows("select distinct task_id from observed_tasks")]
    assert len(ids) == 3
    for one in ids:
        for view in (View(), View(at=ns(1)), View(closed_at=ns(9))):
            assert_told_alone(built, one, view)


def test_a_definition_replaces_what_a_profile_implied(tmp_path: Path) -> None:
    early = [worker(), profile(task_id(1), span("task::f", 1, 2))]
    first = rebuild(tmp_path, early)
    assert first.tables.rows("select worker_id, node_id from observed_tasks") == [(WORKER, NODE)]
    extended = rebuild(tmp_path, [task(task_id(1))], base=first)
    assert_same(rebuild(tmp_path, [*early, task(task_id(1))]), extended)


def test_a_task_of_two_types_is_the_same_in_two_builds(tmp_path: Path) -> None:
    told = [actor_task(task_id(1)), task(task_id(1))]
    extended = rebuild(tmp_path, [worker()], base=rebuild(tmp_path, told))
    assert_same(rebuild(tmp_path, [*told, worker()]), extended)


def test_an_id_in_two_spellings_is_one_task_even_in_one_batch(tmp_path: Path) -> None:
    told = lifecycle(task_id(1), ("RUNNING", 1))
    told["taskLifecycleEvent"]["taskId"] = task_id(1)
    assert len(rebuild(tmp_path, [task(task_id(1)), told]).rows("tasks")) == 1


def test_the_last_of_very_many_spans_are_kept_in_any_order(tmp_path: Path) -> None:
    spans = [span("submit_task", second / 10, second / 10 + 1) for second in range(12_000)]
    told = [profile(task_id(1), *spans[begin : begin + 3000]) for begin in range(0, 12_000, 3000)]
    whole = rebuild(tmp_path, [task(task_id(1)), *told])
    assert_same(whole, rebuild(tmp_path, [task(task_id(1)), profile(task_id(1), *spans)]))
    assert_same(whole, rebuild(tmp_path, [*reversed(told), told[2], task(task_id(1))], cuts=[1, 2, 3]))
    assert_same(whole, rebuild(tmp_path, told[:2], base=rebuild(tmp_path, [task(task_id(1)), *told[2:]])))
    ends = [int(kept["endTime"]) for kept in spans[2000:]]
    assert whole.tables.rows("select [span.endTime for span in spans] from observed_tasks") == [(ends,)]
    assert whole.facts["tasks_with_most_spans"] == 1


def test_the_number_of_tasks_with_most_spans_is_updated(tmp_path: Path) -> None:
    spans = [span("submit_task", second / 10, second / 10 + 1) for second in range(10_000)]
    few = rebuild(tmp_path, [task(task_id(1)), profile(task_id(1), *spans[1:])])
    assert few.facts["tasks_with_most_spans"] == 0
    assert rebuild(tmp_path, [profile(task_id(1), spans[0])], base=few).facts["tasks_with_most_spans"] == 1


def test_a_repeated_event_without_spans_changes_nothing(tmp_path: Path) -> None:
    nothing = profile(task_id(1))
    nothing["taskProfileEvents"]["profileEvents"]["events"] = None
    once = rebuild(tmp_path, [task(task_id(1)), nothing])
    assert_same(once, rebuild(tmp_path, [task(task_id(1)), nothing, nothing]))
    assert_same(once, rebuild(tmp_path, [task(task_id(1)), nothing, nothing], cuts=[1, 2]))
