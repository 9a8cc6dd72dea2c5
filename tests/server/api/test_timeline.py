"""The timeline of a real session against what the live dashboard answered, and of events written down by hand."""

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


def test_a_session_has_the_events_of_ray(server: Served) -> None:
    assert in_order(json.loads(server.get(S).body)) == in_order(captured().truth["tasks_timeline"])


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_the_events_of_ray(server: Served, job: str) -> None:
    found = json.loads(server.get(f"{S}?job_id={job}").body)
    assert in_order(found) == in_order(captured().truth[f"tasks_timeline_{job}"])


def test_a_job_that_is_not_there_has_no_events(server: Served) -> None:
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
def test_a_download_has_a_name(server: Served, query: str, name: str) -> None:
    for verb in ("GET", "HEAD"):
        shown = server.get(f"{S}?{query}", method=verb).headers["content-disposition"]
        assert re.fullmatch(rf'attachment; filename="{name}-\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d[.]json"', shown)


def test_without_download_it_is_shown(server: Served) -> None:
    answer = server.get(S, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert "content-disposition" not in answer.headers


def test_at_a_moment_only_what_had_ended_is_there(server: Served) -> None:
    moment = 1_794_776_200_000
    spans = [event for event in json.loads(server.get(f"{S}?at={moment}").body) if event["ph"] == "X"]
    before = [e for e in captured().truth["tasks_timeline"] if e["ph"] == "X" and e["ts"] + e["dur"] <= moment * 1e3]
    assert 0 < len(spans) == len(before)
    assert server.get(f"{S}?at=2026-11-15T20:00:00Z").body == b"[]"


# Events written down by hand -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A stand-in for what a request asks of an open session."""

    tables: Tables
    view: View = LAST
    query: QueryParams = field(default_factory=QueryParams)
    redact: bool = True


def trace(place: Path, *events: Event, job: str = "") -> Trace:
    """The timeline of these events, by strict JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    built = rebuild(place, events)
    try:
        text = "".join(timeline.trace(Question(built.tables), job))  # type: ignore[arg-type]
    finally:
        built.tables.close()
    found: Trace = json.loads(text, parse_constant=refuse, object_pairs_hook=without_doubles)
    return found


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def args(place: Path, *extras: str) -> list[dict[str, Any]]:
    """The args of spans that carry these, without the ids."""
    events: list[Event] = []
    for number, extra in enumerate(extras):
        one = task_id(number)
        events += [task(one), profile(one, span("task:execute", 1, 2, extra))]
    shown = [event["args"] for event in trace(place, *events) if event["ph"] == "X"]
    ids = {"job_id": JOB, "attempt_number": 0, "func_or_class_name": "work", "actor_id": None}
    for number, found in enumerate(shown):
        for name, value in {"task_id": task_id(number), **ids}.items():
            assert found.pop(name) == value
    return shown


def test_without_spans_it_is_an_empty_list(tmp_path: Path) -> None:
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


def test_processes_are_counted_in_the_order_of_task_ids(tmp_path: Path) -> None:
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


def test_only_the_asked_job_is_there(tmp_path: Path) -> None:
    here, there = task_id(1), task_id(1, "03000000")
    events = [task(here), task(there), *(profile(one, span("task:execute", 1, 2)) for one in (here, there))]
    assert {event["args"]["job_id"] for event in trace(tmp_path, *events, job=JOB) if event["ph"] == "X"} == {JOB}


def test_a_name_and_a_colour_of_its_own(tmp_path: Path) -> None:
    one = task_id(1)
    named = span("mine", 1, 2, '{"name": "load \\"x\\"", "cname": "ray.get"}')
    event, *_ = trace(tmp_path, task(one), profile(one, named))
    assert (event["cat"], event["name"], event["cname"]) == ("mine", 'load "x"', "good")


def test_what_a_span_carries_is_in_args_and_ids_are_those_of_the_task(tmp_path: Path) -> None:
    nested = '{"a": "b", "task_id": "other", "deep": {"list": [1, null]}}'
    assert args(tmp_path, nested, '{"traceback": "NaN, Infinity"}', "{}", "") == [
        {"a": "b", "deep": {"list": [1, None]}},
        {"traceback": "NaN, Infinity"},
        {},
        {},
    ]


def test_what_is_no_json_object_is_kept_as_text(tmp_path: Path) -> None:
    broken = ["{", "[1, 2]", '"text"', "null", '{"a": NaN}', '{"a": -Infinity}', '{"a": "\\ud800"}', '{"a": 1, "a": 2}']
    assert args(tmp_path, *broken) == [{"extra_data": text} for text in broken]
