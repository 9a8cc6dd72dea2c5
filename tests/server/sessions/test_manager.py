"""Sessions are opened once, on request, and refreshed from the archive."""

from __future__ import annotations

import asyncio
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.errors import Unreachable
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.api import listing, timeline
from ray_history.server.completeness import status as about
from ray_history.server.sessions import manager
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.manager import Sessions
from tests.server.serving import Answer, Served, served
from tests.support.captured import captured, write_archive
from tests.support.waiting import until

SESSION = captured().session
S = f"/s/default/demo/{SESSION}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(made, Generation.C, Cluster("default", "demo"))
    return made


def test_concurrent_requests_share_one_opening(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server, ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda _: server.get(f"{S}/api/v0/tasks?limit=1"), range(12)))
        assert {answer.status for answer in answers} == {200}
        assert server.sessions.opened_total == 1


def test_opening_continues_when_the_client_disconnects(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", f"{S}/api/v0/tasks")
        connection.close()
        until(lambda: server.sessions.open_count == 1)


def test_progress_is_reported_while_a_session_opens(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        first = server.get(f"{S}/_status").json
        assert first["stage"] != "closed"
        told = server.get(f"{S}/_status", {"Accept": "text/event-stream"}).body.decode().strip().split("\n\n")
        last = msgspec.json.decode(told[-1].removeprefix("data: "))
        assert last["ready"] is True
        assert server.get(f"{S}/_status").json["ready"] is True


def test_evicted_sessions_are_reopened_on_request(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        write_archive(store, Generation.C, Cluster("default", f"other{number}"))
    with served(store, tmp_path / "cache", most_open=1) as server:
        for _ in range(2):
            for name in ("demo", "other0", "other1", "other2"):
                assert len(server.get(f"/s/default/{name}/latest/api/v0/nodes").rows) == 2
        assert server.sessions.open_count <= 2


def test_additions_to_a_live_session_appear_soon(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        assert server.get(f"{S}/api/v0/nodes").json["data"]["result"]["total"] == 2
        store_another_node(store)
        until(lambda: server.get(f"{S}/api/v0/nodes").json["data"]["result"]["total"] == 3)


def store_another_node(store: Store) -> None:
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


def pause(server: Served, seconds: float) -> None:
    """Make the open session look as if nobody had sent a request for that long."""
    (opened,) = server.sessions._open.values()
    opened.checked -= seconds
    opened.compared -= seconds


def node_count(answer: Answer) -> int:
    return len(answer.json["data"]["result"]["result"])


AGE, NOTE = "x-ray-history-age", "x-ray-history-note"


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a comparison with the archive takes longer than a request waits for it."""
    monkeypatch.setattr(manager, "_WAIT_MAX", 60)


@pytest.mark.usefixtures("patience")
def test_the_first_answer_after_a_pause_is_current(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache", recheck=3600) as server, ThreadPoolExecutor(8) as threads:
        assert node_count(server.get(f"{S}/api/v0/nodes")) == 2
        store_another_node(store)
        pause(server, 8 * 3600)
        answers = list(threads.map(lambda _: server.get(f"{S}/api/v0/nodes"), range(8)))
        assert {node_count(answer) for answer in answers} == {3}
        assert not any(AGE in answer.headers or NOTE in answer.headers for answer in answers)
        assert server.sessions.opened_total == 2


@pytest.mark.usefixtures("patience")
def test_new_logs_are_in_the_first_listing_after_a_pause(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    prefix = layout.session_prefix(session.root, session.cluster, session.name)
    node = min(captured().events)
    listing = f"{S}/api/v0/logs?node_id={node}&glob=late*"
    with served(store, tmp_path / "cache", recheck=3600) as server:
        assert server.get(listing).json["data"]["result"] == {}
        store.put(layout.log_key(prefix, node, "late.log"), b"one\n")
        pause(server, 8 * 3600)
        assert server.get(listing).json["data"]["result"] == {"internal": ["late.log"]}
        assert server.sessions.opened_total == 1


def test_an_ended_session_is_not_compared_after_a_pause(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    for node in captured().events:
        ledger = {"node": node, "ended": "graceful", "events": {}}
        store.put(layout.ledger_key(session.root, session.cluster, session.name, node), msgspec.json.encode(ledger))
    with served(store, tmp_path / "cache", recheck=3600) as server:
        server.get(f"{S}/api/v0/nodes")
        (opened,) = server.sessions._open.values()
        pause(server, 8 * 3600)
        before = opened.checked
        assert AGE not in server.get(f"{S}/api/v0/nodes").headers
        assert opened.checked == before


def test_an_answer_that_cannot_be_compared_in_time_says_how_old_it_is(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "_WAIT_MAX", 0.1)
    proceed, comparisons, compare = threading.Event(), [], manager.Sessions._is_unchanged

    def slow(self: Sessions, session: Session, *others: Any) -> bool:
        if session in self._open:
            comparisons.append(session)
            assert proceed.wait(60)
        return compare(self, session, *others)

    monkeypatch.setattr(manager.Sessions, "_is_unchanged", slow)
    with served(store, tmp_path / "cache", recheck=3600) as server, ThreadPoolExecutor(4) as threads:
        server.get(f"{S}/api/v0/nodes")
        store_another_node(store)
        pause(server, 1.5 * 3600)
        assert AGE not in server.get(f"{S}/api/v0/nodes").headers, "the comparison in the background is not late yet"
        pause(server, 3600)
        for answer in threads.map(lambda _: server.get(f"{S}/api/v0/nodes"), range(4)):
            assert node_count(answer) == 2
            assert int(answer.headers[AGE]) >= 2.5 * 3600
            assert f"{answer.headers[AGE]} s old" in answer.headers[NOTE]
            warning = answer.json["data"]["result"]["partial_failure_warning"]
            assert f"This answer is {answer.headers[AGE]} s old: " in warning, "`ray list` shows it"
        assert "s old: comparing with the archive" in server.get(f"{S}/").body.decode()
        assert len(comparisons) == 1
        proceed.set()
        until(lambda: AGE not in server.get(f"{S}/api/v0/nodes").headers)
        assert node_count(server.get(f"{S}/api/v0/nodes")) == 3


def test_a_failed_comparison_is_not_repeated_by_every_request(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(store, tmp_path / "cache", recheck=3600) as server:
        server.get(f"{S}/api/v0/nodes")
        comparisons = []

        def failing(*_: Any) -> bool:
            comparisons.append(1)
            raise Unreachable("no connection")

        monkeypatch.setattr(manager.Sessions, "_is_unchanged", failing)
        pause(server, 8 * 3600)
        for _ in range(3):
            answer = server.get(f"{S}/api/v0/nodes")
            assert (answer.status, node_count(answer), AGE in answer.headers) == (200, 2, True)
        assert len(comparisons) == 1


@pytest.mark.parametrize("over", [False, True], ids=["running", "over"])
def test_logs_that_arrive_after_all_events_appear_too(store: Store, tmp_path: Path, *, over: bool) -> None:
    (session,) = read_catalog(store).sessions
    prefix = layout.session_prefix(session.root, session.cluster, session.name)
    node = min(captured().events)
    for each in captured().events if over else ():
        ledger = {"node": each, "ended": "graceful", "events": {}}
        store.put(layout.ledger_key(session.root, session.cluster, session.name, each), msgspec.json.encode(ledger))
    listing = f"{S}/api/v0/logs?node_id={node}&glob=la*"
    late, file = layout.log_key(prefix, node, "late.log"), f"{S}/api/v0/logs/file?node_id={node}&filename=late.log"
    with served(store, tmp_path / "cache", recheck=0.05) as server:
        before = server.get(listing)
        assert (before.json["data"]["result"], server.get(file).status) == ({}, 404)
        assert ("etag" in before.headers) == over
        for body in (b"one\n", b"one\ntwo\n"):
            store.put(late, body)
            until(lambda body=body: server.get(file).body == body)
            again = server.get(listing, {"If-None-Match": before.headers.get("etag", "")})
            assert (again.status, again.json["data"]["result"]) == (200, {"internal": ["late.log"]})


def test_completeness_comes_from_ledgers_and_the_listing(store: Store, tmp_path: Path) -> None:
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
    assert told["tasks_with_most_spans"] == 0


def test_an_ended_session_is_closed_unless_raw_is_requested(store: Store, tmp_path: Path) -> None:
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


def damage(cache: Path, table: str = "tasks") -> list[Path]:
    """Change a few bytes in the middle of a table of every cached index; sizes stay the same."""
    files = [file for file in cache.glob(f"*/*/{table}.parquet") if not (file.parent / "damaged").exists()]
    for file in files:
        body = bytearray(file.read_bytes())
        for place in range(len(body) // 4, len(body) * 3 // 4, 97):
            body[place] ^= 0xFF
        file.write_bytes(body)
    return files


DETAILS = f"{S}/api/v0/tasks?limit=1000&detail=1"


def test_an_index_damaged_while_open_is_rebuilt_and_the_request_answered(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        whole = server.get(DETAILS + "&raw=1")
        assert len(damage(tmp_path / "cache")) == 1
        answer = server.get(DETAILS + "&raw=1&again")
        assert (answer.status, answer.rows) == (200, whole.rows)


def test_an_index_damaged_before_the_start_is_rebuilt(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        whole = server.get(DETAILS + "&raw=1")
    damage(tmp_path / "cache")
    with served(store, tmp_path / "cache") as server:
        answer = server.get(DETAILS + "&raw=1")
        assert (answer.status, answer.rows) == (200, whole.rows)


def test_an_index_that_cannot_be_opened_is_rebuilt(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        server.get(f"{S}/api/v0/nodes")
    for file in (tmp_path / "cache").glob("*/*/*.parquet"):
        file.write_bytes(file.read_bytes()[:-8] + b"12345678")
    with served(store, tmp_path / "cache") as server:
        assert len(server.get(f"{S}/api/v0/nodes").rows) == 2


def test_concurrent_readers_of_a_damaged_index_get_the_right_answer(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server, ThreadPoolExecutor(12) as threads:
        whole = server.get(DETAILS + "&raw=1")
        damage(tmp_path / "cache")
        answers = list(threads.map(lambda n: server.get(f"{DETAILS}&raw=1&n={n}"), range(24)))
        assert {answer.status for answer in answers} == {200}
        assert all(answer.rows == whole.rows for answer in answers)
        assert server.sessions.opened_total == 2


def test_damage_that_reading_does_not_notice_is_found_after_opening(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server:
        server.get(f"{S}/api/v0/nodes")
    (documents,) = (tmp_path / "cache").glob("*/*/cluster_events.parquet")
    body = bytearray(documents.read_bytes())
    body[6] ^= 1
    documents.write_bytes(body)
    with served(store, tmp_path / "cache") as server:
        server.get(f"{S}/api/v0/nodes")
        while server.sessions.opened_total < 2:
            assert server.get(f"{S}/api/v0/nodes").status == 200


def test_a_failing_query_on_a_sound_index_verifies_it_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(asked: SessionRequest) -> object:
        return asked.tables.rows("select error('this is no fault of the files')")

    monkeypatch.setattr(about, "completeness_facts", failing)
    with served(store, tmp_path / "cache") as server:
        assert {server.get(f"{S}/_completeness").status for _ in range(5)} == {500}
        assert server.sessions.opened_total == 2
        assert len(server.get(f"{S}/api/v0/nodes").rows) == 2


@pytest.mark.parametrize("at_once", [100, 20_000], ids=["streamed", "held"])
def test_an_index_that_fails_in_a_streamed_listing_is_rebuilt(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(listing, "BUFFERED_MAX", at_once)
    with served(store, tmp_path / "cache") as server:
        url = f"{S}/api/v0/tasks?limit=1000000&detail=1&raw=1"
        whole = server.get(url)
        damage(tmp_path / "cache")
        assert server.get(url + "&again").rows == whole.rows


def test_streamed_answers_are_limited_and_freed_on_disconnect(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "BUFFERED_MAX", 100)
    monkeypatch.setattr(timeline, "BUFFERED_MAX", 10)
    paths = (f"{S}/api/v0/tasks?limit=1000&detail=1", f"{S}/api/v0/tasks/timeline?")
    with served(store, tmp_path / "cache") as server:
        whole = [server.get(path).body for path in paths]
        (session,) = read_catalog(store).sessions
        opened = asyncio.run(server.sessions.acquire(session))
        others = [opened.stream("from range(10000)") for _ in range(2)]
        refused = [server.get(path + "&more") for path in paths]
        assert [answer.status for answer in refused] == [503, 503]
        assert "limit= and cursor=" in refused[0].json["msg"]
        assert server.get(f"{S}/api/v0/tasks?limit=100&detail=1").status == 200, "what is held takes its turn"
        assert server.get(f"{S}/api/v0/tasks?limit=1000").status == 200, "it takes little"
        others.pop().close()
        assert [len(server.get(path + "&again").body) for path in paths] == [len(body) for body in whole]
        others.pop().close()
        server.sessions.release(opened)


def test_answers_warn_of_damaged_files(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    prefix = layout.session_prefix(session.root, session.cluster, session.name)
    store.put(layout.event_file_key(prefix, "11" * 28, None, 1794776280 * 10**9), b"\x1f\x8bnot gzip at all")
    with served(store, tmp_path / "cache") as server:
        answer = server.get(f"{S}/api/v0/tasks?limit=1").json["data"]["result"]
        assert answer["total"] == 349
        assert "problems while reading the archive" in answer["partial_failure_warning"]
        assert server.get(f"{S}/_completeness").json["problem_count"] >= 1
