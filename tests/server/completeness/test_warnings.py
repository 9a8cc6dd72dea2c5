"""Warnings about partial data: missing sources, losses, and rows that are known only by reference."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.registry import TABLES
from ray_history.ray_variables import EVENT_TYPES
from ray_history.server.completeness.sources import EXPECTED, NEEDS
from tests.history.rebuilt import (
    NODE,
    OTHER_NODE,
    actor_task,
    actor_task_id,
    job,
    job_life,
    node,
    node_life,
    task,
    task_id,
)
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.server.ui.written_sessions import SESSION, ran, write_session
from tests.support.captured import captured, write_archive

CLUSTER = Cluster("default", "demo")
S = f"/s/default/demo/{captured().session}"
SUMMARIES = ("tasks/summarize", "actors/summarize")
PREFIX = layout.session_prefix("", CLUSTER, captured().session)


@contextmanager
def a_server(folder: Path, spoil: Callable[[Path], None] | None = None) -> Iterator[Served]:
    """A server on the captured session, after `spoil` changed its archive."""
    store = open_store(DirectorySettings(folder / "archive"))
    store.check(create=True)
    write_archive(store, Generation.C, CLUSTER)
    if spoil:
        spoil(folder / "archive")
    long_ago = time.time() - 86400
    for file in (folder / "archive").rglob("*"):
        os.utime(file, (long_ago, long_ago))
    with served(store, folder / "cache") as server:
        yield server


def unpolled(archive: Path) -> None:
    shutil.rmtree(archive / PREFIX / "fetched_endpoints")


def with_loss(archive: Path) -> None:
    store = open_store(DirectorySettings(archive))
    for number, node_id in enumerate(captured().events):
        account: dict[str, Any] = {"node": node_id, "ended": "graceful"}
        account["events"] = {"received": 1000, "stored": 995, "quarantined": 2, "duplicated": 3}
        account["events"]["dropped_by_ray"] = 1500 * number
        store.put(layout.ledger_key("", CLUSTER, captured().session, node_id), str(account).replace("'", '"').encode())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with a_server(tmp_path_factory.mktemp("whole")) as server:
        yield server


@pytest.fixture(scope="module")
def without_polls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with a_server(tmp_path_factory.mktemp("unpolled"), unpolled) as server:
        yield server


def listed(server: Served, table: str, query: str = "detail=1&limit=1000") -> dict[str, Any]:
    answer = server.get(f"{S}/api/v0/{table}?{query}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json["data"]["result"]
    return found


def test_a_complete_session_has_no_warning(whole: Served) -> None:
    for table in (*TABLES, *SUMMARIES):
        assert not listed(whole, table)["partial_failure_warning"], table
    assert "x-ray-history-note" not in whole.get(f"{S}/api/serve/applications/").headers
    account = whole.get(f"{S}/_completeness").json
    assert account["unknown"] == {}
    assert account["events"]["unknown_types"] == {}


def test_completeness_lists_the_stored_sources(whole: Served, without_polls: Served) -> None:
    sources = whole.get(f"{S}/_completeness").json["sources"]
    assert sources["events"]["read"] == captured().event_count
    assert sources["events"]["files"] > 1
    assert sources["logs"]["files"] == len(captured().logs)
    assert min(sources["logs"]["cluster_events"], sources["logs"]["export_events"]) > 0
    assert len(sources["polled"]) == len(captured().polled)
    assert "/api/v0/placement_groups?detail=1&limit=10000" in sources["polled"]
    assert sources["ledgers"] == 0
    told = without_polls.get(f"{S}/_completeness").json
    assert told["sources"]["polled"] == []
    assert set(told["unknown"]) == {"placement_groups", "runtime_envs", "serve"}


def test_a_listing_without_its_source_has_a_warning(without_polls: Served) -> None:
    assert (
        "/api/v0/placement_groups was not polled"
        in listed(without_polls, "placement_groups")["partial_failure_warning"]
    )
    assert "/api/v0/runtime_envs was not polled" in listed(without_polls, "runtime_envs")["partial_failure_warning"]
    for table in ("tasks", "actors", "nodes", "workers", "jobs", "cluster_events"):  # from events and logs
        assert listed(without_polls, table)["partial_failure_warning"] == ""
    note = without_polls.get(f"{S}/api/serve/applications/").headers["x-ray-history-note"]
    assert "was not polled" in note
    assert "was not polled" in without_polls.get(f"{S}/_session").body.decode()


def test_placement_groups_that_tasks_refer_to_are_listed(whole: Served, without_polls: Served) -> None:
    known = {row["placement_group_id"]: row for row in listed(whole, "placement_groups", "detail=1&raw=1")["result"]}
    named = {
        row["placement_group_id"]: row for row in listed(without_polls, "placement_groups", "detail=1&raw=1")["result"]
    }
    used = {row["placement_group_id"] for row in listed(whole, "tasks")["result"]} - {None}
    assert set(named) == used <= set(known)
    for key, row in named.items():
        assert row["creator_job_id"] == known[key]["creator_job_id"]
        assert row["state"] in ("CREATED", "PENDING")
        assert (row["name"], row["bundles"], row["is_detached"], row["stats"]) == ("", None, None, None)
    assert {row["state"] for row in listed(without_polls, "placement_groups")["result"]} == {"REMOVED"}


def test_runtime_environments_of_tasks_are_listed_without_polling(whole: Served, without_polls: Served) -> None:
    known = {(str(row["runtime_env"]), row["node_id"]) for row in listed(whole, "runtime_envs")["result"]}
    rows = listed(without_polls, "runtime_envs")["result"]
    named = [(str(row["runtime_env"]), row["node_id"]) for row in rows]
    assert named
    assert len(named) == len(set(named))
    assert all(row["success"] and row["creation_time_ms"] is None for row in rows)
    assert len(known & set(named)) > 0


def test_a_moment_lists_only_what_was_known_by_then(without_polls: Served) -> None:
    moments = [row["creation_time_ms"] for row in listed(without_polls, "tasks")["result"] if row["creation_time_ms"]]
    first = int(min(moments))
    assert listed(without_polls, "placement_groups", f"at={first}")["total"] == 0
    assert listed(without_polls, "runtime_envs", f"at={first}")["total"] == 0


def test_every_listing_warns_of_losses_in_the_ledgers(tmp_path: Path) -> None:
    with a_server(tmp_path, with_loss) as server:
        for table in (*TABLES, *SUMMARIES):
            warning = listed(server, table)["partial_failure_warning"]
            assert "1,500 events were dropped by Ray itself" in warning
            assert "4 events could not be understood" in warning
            assert "never stored" not in warning  # the others were duplicates


def test_a_node_without_files_is_reported(tmp_path: Path) -> None:
    lost = "e1b0ecf032fb73ce8aaf62b706baec4939d7c4222fc1abf012d26a71"

    def without_a_node(archive: Path) -> None:
        shutil.rmtree(archive / PREFIX / lost)

    with a_server(tmp_path, without_a_node) as server:
        assert "Nothing was stored of Node" in listed(server, "tasks")["partial_failure_warning"]


def test_unknown_event_types_are_counted_separately(tmp_path: Path) -> None:
    strange = [{"eventId": str(n), "eventType": "QUANTUM_EVENT", "timestamp": "2026-11-15T20:00:00Z"} for n in range(3)]
    store = write_session(tmp_path, [*ran(1, "f", 1, 2), *strange])
    with served(store, tmp_path / "cache") as server:
        address = f"/s/default/written/{SESSION}"
        events = server.get(f"{address}/_completeness").json["events"]
        assert events["unknown_types"] == {"QUANTUM_EVENT": 3}
        assert events["by_type"]["QUANTUM_EVENT"] == 3
        page = server.get(f"{address}/_session").body.decode()
        assert "Not shown: 3 events of types that this version does not support" in page
        assert "QUANTUM_EVENT" in page


def test_event_types_that_ray_did_not_export_are_named(tmp_path: Path) -> None:
    actor_call = actor_task(actor_task_id(7), 0, 1)
    endpoints = {layout.endpoint_name("/api/v0/nodes?detail=1&limit=10000"): {"result": True, "data": {}}}
    store = write_session(tmp_path, [*ran(1, "f", 1, 2), actor_call], endpoints=endpoints)
    with served(store, tmp_path / "cache") as server:
        address = f"/s/default/written/{SESSION}"
        unknown = server.get(f"{address}/_completeness").json["unknown"]
        assert unknown["actors"].startswith("Actors: not exported by Ray. ")
        assert "ACTOR_DEFINITION_EVENT" in unknown["actors"]
        assert "EXPOSABLE_EVENT_TYPES" in unknown["actors"]
        assert unknown["nodes"].startswith("Nodes: not exported by Ray; shown from the dashboard's last answer (as of ")
        assert unknown["jobs"].startswith("Jobs: not exported by Ray.")
        assert unknown["timeline"].startswith("Timeline: profile events were not exported by Ray")
        assert "tasks" not in unknown
        answer = server.get(f"{address}/api/v0/tasks/timeline")
        assert answer.headers["x-ray-history-note"] == unknown["timeline"]
        listed = server.get(f"{address}/api/v0/actors").json["data"]["result"]
        assert unknown["actors"] in listed["partial_failure_warning"]
        assert unknown["timeline"] in parsed(server.get(f"{address}/_session").body).text


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("refused", "the dashboard refused /api/serve/applications/ (HTTP 401): set RAY_AUTH_TOKEN for the collector"),
        ("timed out", "the dashboard did not answer /api/serve/applications/ in time"),
        ("never asked", "the dashboard was never asked for /api/serve/applications/"),
        (None, "/api/serve/applications/ was not polled"),
    ],
)
def test_how_the_dashboard_answered_is_part_of_the_warning(tmp_path: Path, outcome: str | None, said: str) -> None:
    asked = {"/api/serve/applications/": {"newest": outcome, "detail": "HTTP 401", "since": {}}} if outcome else {}
    ledger = {"role": "head", "ended": "graceful", "polled": asked, "events": {"received": 2, "stored": 2}}
    with served(write_session(tmp_path, ran(1, "f", 1, 2), ledgers={NODE: ledger}), tmp_path / "cache") as server:
        unknown = server.get(f"/s/default/written/{SESSION}/_completeness").json["unknown"]
        assert unknown["serve"] == f"Whether Serve ran is unknown: {said}."


def test_nodes_that_share_an_address_have_different_names(tmp_path: Path) -> None:
    events = [node(), node_life("ALIVE", 0), node(OTHER_NODE), node_life("ALIVE", 1, OTHER_NODE), *ran(1, "f", 1, 2)]
    with served(write_session(tmp_path, events), tmp_path / "cache") as server:
        page = parsed(server.get(f"/s/default/written/{SESSION}/_session").body)
        (card,) = page.all("section", where=lambda each: each.attributes.get("aria-labelledby") == "h-c")
        names = {row.all("td")[0].text.split(", ")[1][:8] for row in card.all("tr")[1:]}
        assert names == {NODE[:8], OTHER_NODE[:8]}
        lanes = {each.text for each in page.all("div", "lane")}
        assert {name.split(", ")[-1] for name in lanes} == names
        assert any(name.startswith("worker 1") for name in lanes) or any(name.startswith("head") for name in lanes)


def test_events_that_had_no_occasion_are_not_missing(tmp_path: Path) -> None:
    events = [node(), node_life("ALIVE", 0), job(), job_life("CREATED", 0), task(task_id(1), 0, 1)]
    with served(write_session(tmp_path, events), tmp_path / "cache") as server:
        unknown = server.get(f"/s/default/written/{SESSION}/_completeness").json["unknown"]
        assert not unknown.keys() & {"tasks", "actors", "nodes", "timeline"}


def test_every_listing_declares_its_sources() -> None:
    assert set(NEEDS) == {*TABLES, "serve"}
    assert {kind for each in EXPECTED.values() for kind in each.types} <= {*EVENT_TYPES}
