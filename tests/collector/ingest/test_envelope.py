"""The place of an event, from its envelope."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.collector.ingest.envelope import Place, Unreadable, header_of, split
from tests.support.captured import captured

SESSION = "session_2026-11-15_20-00-55_739110_9771"
NODE64 = "OuG+50xYa19aEjQYEeHpEj0CKvY965tCrJeFTA=="
NODE = "3ae1bee74c586b5f5a12341811e1e9123d022af63deb9b42ac97854c"


def event(**fields: object) -> bytes:
    base = {"eventId": "x", "sessionName": SESSION, "nodeId": NODE64, "timestamp": "2026-11-15T20:01:02.231Z"}
    return json.dumps({**base, **fields}).encode()


def test_every_captured_event_is_filed_under_the_node_that_sent_it() -> None:
    capture = captured()
    for node, events in capture.events.items():
        places = Counter(header_of(raw).place for raw in events)
        assert {place.session for place in places} == {capture.session}
        assert {place.node for place in places} == {node}
        assert places.total() == len(events)


@pytest.mark.parametrize(
    ("fields", "job"),
    [
        ({"eventType": "NODE_LIFECYCLE_EVENT", "taskDefinitionEvent": {"jobId": "AQAAAA=="}}, None),
        ({"eventType": "NODE_DEFINITION_EVENT"}, None),
        ({"eventType": "TASK_DEFINITION_EVENT", "taskDefinitionEvent": {"jobId": "AQAAAA=="}}, "01000000"),
        ({"eventType": "TASK_PROFILE_EVENT", "taskProfileEvents": {"jobId": "AgAAAA=="}}, "02000000"),
        ({"eventType": "ACTOR_LIFECYCLE_EVENT", "actorLifecycleEvent": {"jobId": "AQAAAA=="}}, None),
        ({"eventType": "X", "driverJobDefinitionEvent": {"jobId": 7}}, "7"),
        (
            {"eventType": "X", "driverJobDefinitionEvent": {"jobId": ""}, "taskLifecycleEvent": {"jobId": "ABCDEF01"}},
            "abcdef01",
        ),
        ({"eventType": "X", "driverJobDefinitionEvent": {"jobId": None}}, None),
        ({}, None),
    ],
)
def test_jobs_are_found_where_the_go_collector_finds_them(fields: dict[str, object], job: str | None) -> None:
    assert header_of(event(**fields)).place == Place(SESSION, NODE, job)


def test_snake_case_is_read_too() -> None:
    raw = json.dumps(
        {
            "event_type": "TASK_DEFINITION_EVENT",
            "session_name": SESSION,
            "node_id": NODE64,
            "timestamp": "t",
            "task_definition_event": {"job_id": "AQAAAA=="},
        }
    ).encode()
    assert header_of(raw) == (Place(SESSION, NODE, "01000000"), "t", "TASK_DEFINITION_EVENT")


def test_a_node_id_in_hex_or_missing_is_no_obstacle() -> None:
    assert header_of(event(nodeId=NODE)).place.node == NODE
    assert header_of(event(nodeId="")).place.node == ""
    assert header_of(event(nodeId="???")).place.node == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"null",
        b"7",
        b'"text"',
        b"[]",
        event(sessionName=""),
        event(sessionName="../../etc"),
        event(sessionName=5),
        event(sessionName="x" * 300),
        event(sessionName="no UTF-8: #").replace(b"#", b"\xff"),
        event(timestamp="no UTF-8: #").replace(b"#", b"\xff"),
        event(eventType=["list"]),
        b"[" * 100_000,
    ],
)
def test_an_event_without_session_is_unreadable(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        header_of(raw)


def test_a_batch_is_split_without_changing_a_byte() -> None:
    parts = [b'{"a": 1.0,  "b":"\\u003c"}', b'{"c":12345678901234567890}', b"{}"]
    assert split(b" [ " + b" , ".join(parts) + b" ] ") == parts
    assert split(b"[]") == split(b"null") == split(b"") == []


@pytest.mark.parametrize("body", [b"{", b"{}", b"[{]", b"[1,]", b"text", b"\xff\xfe", b"[" * 100_000])
def test_a_batch_that_is_not_an_array_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        split(body)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail_otherwise(raw: bytes) -> None:
    for read in (split, header_of):
        try:
            read(raw)
        except Unreadable:
            continue
