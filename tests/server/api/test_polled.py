"""Polled answers, the lines of export files, and how observations of the same thing are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST, View
from ray_history.server.api.polled import (
    add_newest,
    camel_case_keys,
    exported,
    is_later,
    newest_first,
    polled_answer,
    polled_data,
)
from tests.history.rebuilt import Event, document, rebuild


@dataclass
class RequestStandIn:
    """What these functions need of a request."""

    tables: Tables
    view: View = LAST


def endpoint(name: str, body: Any) -> Event:
    return document("endpoint", name, body)


def export(time: float | str | None, source_type: str = "EXPORT_TRAIN_RUN", **data: object) -> Event:
    body = {"source_type": source_type, "timestamp": time, "event_data": data}
    return document("export_event", "export_events/event_EXPORT_TRAIN_STATE.log", body)


DOCUMENTS = [
    endpoint("restful__api__version", {"version": "4"}),
    endpoint("restful__api__jobs__", [{"job_id": "01000000"}]),
    endpoint("restful__nodes?view=summary", {"data": {"summary": []}}),
    endpoint("restful__timezone", ["no envelope"]),
    endpoint("restful__cluster_id", {"data": ["no object"]}),
    export(30, id="b", status="FINISHED"),
    export(30, id="a", status="RUNNING"),
    export(10, id="a", status="INITIALIZING"),
    export("20", id="a", status="SCHEDULING"),
    export(None, id="no time"),
    export(15, source_type="EXPORT_DATASET_METADATA", dataset_id="d"),
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    built = rebuild(tmp_path_factory.mktemp("polled"), documents=DOCUMENTS)
    yield built.tables
    built.tables.close()


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("/api/version", {"version": "4"}),
        ("/api/version/", {"version": "4"}),
        ("/api/jobs/", [{"job_id": "01000000"}]),
        ("/nodes?view=summary", {"data": {"summary": []}}),
        ("/nodes?view=logs", None),
        ("/nodes", None),
        ("/api", None),
    ],
)
def test_an_answer_is_found_by_its_url(tables: Tables, url: str, answer: Any) -> None:
    assert polled_answer(RequestStandIn(tables), url) == answer  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "data"),
    [("/nodes?view=summary", {"summary": []}), ("/timezone", {}), ("/cluster_id", {}), ("/never/polled", {})],
)
def test_the_data_of_an_envelope_is_always_an_object(tables: Tables, url: str, data: Any) -> None:
    assert polled_data(RequestStandIn(tables), url) == data  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (None, [("a", "INITIALIZING"), ("a", "SCHEDULING"), ("a", "RUNNING"), ("b", "FINISHED"), ("no time", None)]),
        (20, [("a", "INITIALIZING"), ("a", "SCHEDULING"), ("no time", None)]),
        (19.9, [("a", "INITIALIZING"), ("no time", None)]),
        (0, [("no time", None)]),
    ],
)
def test_exported_states_are_in_order_up_to_the_moment(
    tables: Tables, at: float | None, expected: list[tuple[str, str | None]]
) -> None:
    request = RequestStandIn(tables, View(None if at is None else round(at * 1e9)))
    states = exported(request, "EXPORT_TRAIN_RUN")  # type: ignore[arg-type]
    assert [(state["id"], state.get("status")) for state in states] == expected


@pytest.mark.parametrize(
    ("at", "time", "unit", "later"),
    [
        (None, 10**12, 1e9, False),
        (5_000_000_000, 5, 1e9, False),
        (5_000_000_000, 5.1, 1e9, True),
        (5_000_000_000, 5_001, 1e6, True),
        (5_000_000_000, 5_000_000_001, 1, True),
        (5_000_000_000, None, 1e9, False),
        (5_000_000_000, "6", 1e9, False),
    ],
)
def test_a_time_is_later_than_the_moment(tables: Tables, at: int | None, time: Any, unit: float, later: bool) -> None:
    assert is_later(RequestStandIn(tables, View(at)), time, unit) is later  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("states", "remaining"),
    [
        (["RUNNING"], "RUNNING"),
        (["PENDING", "RUNNING"], "RUNNING"),
        (["RUNNING", "FINISHED"], "FINISHED"),
        (["FINISHED", "RUNNING"], "FINISHED"),
        (["FINISHED", "FAILED"], "FAILED"),
        (["FINISHED", None], "FINISHED"),
        ([None, "RUNNING"], "RUNNING"),
    ],
)
def test_the_newest_observation_wins_unless_it_misses_the_end(states: list[str | None], remaining: str) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for state in states:
        add_newest(rows, "a", {"state": state}, "state", ("FINISHED", "FAILED"))
    assert rows == {"a": {"state": remaining}}


def test_rows_without_a_time_come_last() -> None:
    rows = [{"start": time} for time in (1, None, 3.5, "9", 2)]
    assert [row["start"] for row in newest_first(rows, "start")] == [3.5, 2, 1, None, "9"]


@pytest.mark.parametrize(
    ("value", "converted"),
    [
        ({"node_id": {"start_time_ms": 1}}, {"nodeId": {"startTimeMs": 1}}),
        ([{"a_b": [{"c_d": None}]}], [{"aB": [{"cD": None}]}]),
        ({"a_b": [[{"c_d": 1}]]}, {"aB": [[{"c_d": 1}]]}),
        ({"already": 1, "camelCase": 2, "trailing_": 3}, {"already": 1, "camelCase": 2, "trailing": 3}),
        ({"gpu_uuid": "some_value"}, {"gpuUuid": "some_value"}),
        ("some_value", "some_value"),
        (None, None),
    ],
)
def test_keys_are_converted_as_rays_dashboard_does(value: Any, converted: Any) -> None:
    assert camel_case_keys(value) == converted
