"""The timeline of a captured session, compared with the live dashboard's, and of hand-written events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST, View
from ray_history.server.api import timeline
from tests.history.rebuilt import (
    ACTOR,
    JOB,
    OTHER_WORKER,
    Event,
    actor_task,
    actor_task_id,
    ns,
    profile,
    rebuild,
    span,
    task,
    task_id,
)
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

S = f"/s/default/parity/{captured().session}/api/v0/tasks/timeline"
JOBS = ["04000000", "06000000", "07000000", "08000000", "09000000", "0a000000", "0b000000"]
Trace = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("timeline")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "parity"))
    with served(store, folder / "cache") as running:
        yield running


def in_order(trace: Trace) -> list[str]:
    return sorted(json.dumps(event, sort_keys=True) for event in trace)


def test_the_events_of_a_session_equal_rays(server: Served) -> None:
    assert in_order(json.loads(server.get(S).body)) == in_order(captured().truth["tasks_timeline"])


@pytest.mark.parametrize("job", JOBS)
def test_the_events_of_a_job_equal_rays(server: Served, job: str) -> None:
    found = json.loads(server.get(f"{S}?job_id={job}").body)
    assert in_order(found) == in_order(captured().truth[f"tasks_timeline_{job}"])


def test_an_unknown_job_has_no_events(server: Served) -> None:
    assert server.get(f"{S}?job_id=ffff").body == b"[]"


def test_a_streamed_timeline_has_the_same_events(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "BUFFERED_MAX", 10)
    assert in_order(json.loads(server.get(S).body)) == in_order(captured().truth["tasks_timeline"])


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("job_id=04000000&download=1", "timeline-04000000"),
        ("download=1", "timeline"),
        ("job_id=%22%0D%0A/x&download=1", "timeline-____x"),
    ],
)
def test_a_download_has_a_file_name(server: Served, query: str, name: str) -> None:
    for verb in ("GET", "HEAD"):
        found = server.get(f"{S}?{query}", method=verb).headers["content-disposition"]
        assert re.fullmatch(rf'attachment; filename="{name}-\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d[.]json"', found)


def test_without_download_there_is_no_file_name(server: Served) -> None:
    answer = server.get(S, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert "content-disposition" not in answer.headers


def test_a_moment_has_only_the_spans_that_had_ended(server: Served) -> None:
    moment = 1_794_776_200_000
    spans = [event for event in json.loads(server.get(f"{S}?at={moment}").body) if event["ph"] == "X"]
    before = [e for e in captured().truth["tasks_timeline"] if e["ph"] == "X" and e["ts"] + e["dur"] <= moment * 1e3]
    assert 0 < len(spans) == len(before)
    assert server.get(f"{S}?at=2026-11-15T20:00:00Z").body == b"[]"


# Events written down by hand -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RequestStandIn:
    """What the timeline needs of a request."""

    tables: Tables
    view: View = LAST
    query: QueryParams = field(default_factory=QueryParams)
    redact: bool = True


def trace(place: Path, *events: Event, job: str = "") -> Trace:
    """The timeline of these events, parsed as strict JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    built = rebuild(place, events)
    try:
        text = "".join(timeline.trace(RequestStandIn(built.tables), job))  # type: ignore[arg-type]
    finally:
        built.tables.close()
    found: Trace = json.loads(text, parse_constant=refuse, object_pairs_hook=without_doubles)
    return found


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def args(place: Path, *extras: str) -> list[dict[str, Any]]:
    """The args of spans with this extra data, without the IDs."""
    events: list[Event] = []
    for number, extra in enumerate(extras):
        one = task_id(number)
        events += [task(one), profile(one, span("task:execute", 1, 2, extra))]
    all_args = [event["args"] for event in trace(place, *events) if event["ph"] == "X"]
    ids = {"job_id": JOB, "attempt_number": 0, "func_or_class_name": "work", "actor_id": None}
    for number, args in enumerate(all_args):
        for name, value in {"task_id": task_id(number), **ids}.items():
            assert args.pop(name) == value
    return all_args


def test_without_spans_the_timeline_is_an_empty_list(tmp_path: Path) -> None:
    assert trace(tmp_path) == []
    assert trace(tmp_path, task(task_id(1))) == []


def test_one_span_is_an_event_and_two_names(tmp_path: Path) -> None:
    one = task_id(1)
    assert trace(tmp_path, task(one), profile(one, span("task:execute", 1, 3))) == [
        {
            "cat": "task:execute",
            "name": "task:execute",
            "pid": 0,
            "tid": 0,
            "ts": ns(1) / 1e3,
            "dur": 2e6,
            "cname": "rail_animation",
            "args": {
                "task_id": one,
                "job_id": JOB,
                "attempt_number": 0,
                "func_or_class_name": "work",
                "actor_id": None,
            },
            "ph": "X",
        },
        {"name": "process_name", "args": {"name": "Node 192.0.2.2"}, "pid": 0, "tid": None, "ph": "M"},
        {"name": "thread_name", "args": {"name": f"worker:{'65' * 28}"}, "pid": 0, "tid": 0, "ph": "M"},
    ]


def test_processes_are_numbered_in_the_order_of_task_ids(tmp_path: Path) -> None:
    first, second, third = task_id(1), task_id(2), actor_task_id(3)
    found = trace(
        tmp_path,
        *(task(first), task(second), actor_task(third)),
        profile(third, span("task:execute", 1, 2), worker=OTHER_WORKER),
        profile(second, span("task:execute", 3, 4)),
        profile(first, span("task:execute", 5, 6), worker=OTHER_WORKER),
    )
    assert [(event["args"]["task_id"], event["tid"]) for event in found if event["ph"] == "X"] == [
        (first, 0),
        (second, 1),
        (third, 0),
    ]
    assert found[2]["args"]["actor_id"] == ACTOR


def test_only_the_requested_job_is_included(tmp_path: Path) -> None:
    here, there = task_id(1), task_id(1, "03000000")
    events = [task(here), task(there), *(profile(one, span("task:execute", 1, 2)) for one in (here, there))]
    assert {event["args"]["job_id"] for event in trace(tmp_path, *events, job=JOB) if event["ph"] == "X"} == {JOB}


def test_a_span_may_set_its_name_and_color(tmp_path: Path) -> None:
    one = task_id(1)
    named = span("mine", 1, 2, '{"name": "load \\"x\\"", "cname": "ray.get"}')
    event, *_ = trace(tmp_path, task(one), profile(one, named))
    assert (event["cat"], event["name"], event["cname"]) == ("mine", 'load "x"', "good")


def test_args_hold_the_extra_data_of_a_span_and_the_ids_of_its_task(tmp_path: Path) -> None:
    nested = '{"a": "b", "task_id": "other", "deep": {"list": [1, null]}}'
    assert args(tmp_path, nested, '{"traceback": "NaN, Infinity"}', "{}", "") == [
        {"a": "b", "deep": {"list": [1, None]}},
        {"traceback": "NaN, Infinity"},
        {},
        {},
    ]


def test_extra_data_other_than_objects_stays_text(tmp_path: Path) -> None:
    broken = ["{", "[1, 2]", '"text"', "null", '{"a": NaN}', '{"a": -Infinity}', '{"a": "\\ud800"}', '{"a": 1, "a": 2}']
    assert args(tmp_path, *broken) == [{"extra_data": text} for text in broken]
