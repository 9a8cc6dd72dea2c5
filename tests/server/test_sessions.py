"""Sessions that open by themselves, once, and keep up with the archive."""

from __future__ import annotations

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import read_catalog
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import DirectorySettings
from ray_history.archive.stores import Store, open_store
from tests.captured import captured, write_archive
from tests.server.serving import served

SESSION = captured().session
S = f"/s/default/demo/{SESSION}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(made, Generation.C, Cluster("default", "demo"))
    return made


def test_a_session_opens_once_for_all_who_ask_at_the_same_time(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server, ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda _: server.get(f"{S}/api/v0/tasks?limit=1"), range(12)))
        assert {answer.status for answer in answers} == {200}
        assert server.sessions.opened_total == 1


def test_opening_goes_on_when_the_client_leaves(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", f"{S}/api/v0/tasks")
        connection.close()
        deadline = time.monotonic() + 20
        while server.sessions.open_count == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.sessions.open_count == 1


def test_progress_is_told_while_a_session_opens(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        first = server.get(f"{S}/_status").json
        assert first["stage"] != "closed"
        told = server.get(f"{S}/_status", {"Accept": "text/event-stream"}).body.decode().strip().split("\n\n")
        last = msgspec.json.decode(told[-1].removeprefix("data: "))
        assert last["ready"] is True
        assert server.get(f"{S}/_status").json["ready"] is True


def test_closed_and_evicted_sessions_open_again_by_themselves(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        write_archive(store, Generation.C, Cluster("default", f"other{number}"))
    with served(store, tmp_path / "cache", most_open=1) as server:
        for _ in range(2):
            for name in ("demo", "other0", "other1", "other2"):
                assert len(server.get(f"/s/default/{name}/latest/api/v0/nodes").rows) == 2
        assert server.sessions.open_count <= 2


def test_what_a_running_session_adds_is_seen_soon(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        assert server.get(f"{S}/api/v0/nodes").json["data"]["result"]["total"] == 2
        (session,) = read_catalog(store).sessions
        prefix = layout.session_prefix(session.root, session.cluster, session.name)
        node = "11" * 28
        event = {
            "eventId": "bmV3",
            "eventType": "NODE_DEFINITION_EVENT",
            "timestamp": "2026-11-15T20:58:00Z",
            "sessionName": SESSION,
            "nodeDefinitionEvent": {"nodeId": node, "nodeIpAddress": "192.0.2.9"},
        }
        key = layout.event_file_key(prefix, node, None, 1794776280 * 10**9)
        store.put(key, encode_events([msgspec.json.encode(event)]))
        deadline = time.monotonic() + 30
        while server.get(f"{S}/api/v0/nodes").json["data"]["result"]["total"] != 3:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_completeness_is_told_from_ledgers_and_listing(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    head = min(captured().events)
    ledger = {"node": head, "ended": "graceful", "events": {"received": 5, "stored": 4, "dropped_by_ray": 1}}
    store.put(layout.ledger_key(session.root, session.cluster, session.name, head), msgspec.json.encode(ledger))
    with served(store, tmp_path / "cache") as server:
        told = server.get(f"{S}/_completeness").json
    assert told["ended"] == "graceful"
    assert told["events"]["dropped_by_ray"] == 1
    assert told["events"]["read"] == captured().event_count
    assert {row["node_id"]: row["has_ledger"] for row in told["nodes"]}[head] is True
    assert told["nodes_without_files"] == []


def test_a_session_that_ended_is_closed_and_can_be_seen_raw(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    for node in captured().events:
        ledger = {"node": node, "ended": "graceful", "events": {}}
        store.put(layout.ledger_key(session.root, session.cluster, session.name, node), msgspec.json.encode(ledger))
    with served(store, tmp_path / "cache") as server:
        states = {row["state"] for row in server.get(f"{S}/api/v0/actors?limit=100").rows}
        assert states == {"DEAD"}
        assert "ALIVE" in {row["state"] for row in server.get(f"{S}/api/v0/actors?limit=100&raw=1").rows}
        answer = server.get(f"{S}/api/v0/actors")
        again = server.get(f"{S}/api/v0/actors", {"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert server.get(f"{S}/api/v0/actors?limit=1", {"If-None-Match": answer.headers["etag"]}).status == 200


def test_damage_is_said_in_the_answers(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    prefix = layout.session_prefix(session.root, session.cluster, session.name)
    store.put(layout.event_file_key(prefix, "11" * 28, None, 1794776280 * 10**9), b"\x1f\x8bnot gzip at all")
    with served(store, tmp_path / "cache") as server:
        answer = server.get(f"{S}/api/v0/tasks?limit=1").json["data"]["result"]
        assert answer["total"] == 349
        assert "problems while reading the archive" in answer["partial_failure_warning"]
        assert server.get(f"{S}/_completeness").json["problem_count"] >= 1
