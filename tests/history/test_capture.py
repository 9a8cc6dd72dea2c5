"""A real session, captured whole: the tables made of its archive are what the live dashboard showed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.build.runs import Counts
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST, View
from ray_history.history.registry import CLUSTER_TERMINATED
from ray_history.index.cache import Cache, Opened
from ray_history.index.indexer import Indexer
from tests.history.rebuilt import Rebuilt, Row, b64
from tests.support.captured import captured, write_archive

pytestmark = pytest.mark.xdist_group("captured session")  # archived and indexed once

KEYS = {
    "tasks": ("task_id", "attempt_number"),
    "actors": ("actor_id",),
    "nodes": ("node_id",),
    "workers": ("worker_id",),
    "jobs": ("job_id", "submission_id"),
    "placement_groups": ("placement_group_id",),
    "runtime_envs": ("runtime_env", "node_id"),
}
TRUTH = {table: f"v0_{table}" for table in KEYS} | {
    "tasks": "v0_tasks_exclude_driver_false",
    "workers": "v0_workers_all",
}

_RACE = "a race in the live control plane failed it at the job's end, before it had started; its events say FINISHED"
_RACED = {"state", "error_type", "events", "end_time_ms", "error_message"}
KNOWN_DIFFERENCES = {
    ("tasks", ("ce868e48e2fa9a94b358a37758e50941b1e99ce708000000", 0)): (_RACE, _RACED),
    ("tasks", ("f81ec6ff838b16dbb358a37758e50941b1e99ce708000000", 0)): (_RACE, _RACED),
    ("tasks", ("ff" * 20 + "03000000", 0)): ("this driver went on after the truth was taken", {"profiling_data"}),
}
"""The reason, and the fields that differ."""

Keyed = dict[tuple[Any, ...], Row]


def keyed(table: str, rows: list[Row]) -> Keyed:
    found = {tuple(json.dumps(row[k]) if k == "runtime_env" else row[k] for k in KEYS[table]): row for row in rows}
    assert len(found) == len(rows)
    return found


def truth(table: str) -> Keyed:
    return keyed(table, captured().truth[TRUTH[table]]["data"]["result"]["result"])


@pytest.fixture(scope="module", params=list(Generation), ids=lambda generation: f"generation {generation.name}")
def archived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The capture as that generation's collector archived it, indexed and opened."""
    place = tmp_path_factory.mktemp("capture")
    store = open_store(DirectorySettings(place / "bucket"))
    write_archive(store, request.param, Cluster("default", "demo"))
    (session,) = read_catalog(store).sessions
    with Indexer(store, Cache(place / "cache", 1 << 30)).open(session) as opened:
        yield opened


@pytest.fixture(scope="module")
def session(archived: Opened) -> Rebuilt:
    return rebuilt(archived)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuilt]:
    """The same of the newest generation only: what is asked of the tables themselves need not be asked four times."""
    place = tmp_path_factory.mktemp("newest")
    store = open_store(DirectorySettings(place / "bucket"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    (listed,) = read_catalog(store).sessions
    with Indexer(store, Cache(place / "cache", 1 << 30)).open(listed) as opened:
        yield rebuilt(opened)


def rebuilt(opened: Opened) -> Rebuilt:
    return Rebuilt(opened.directory, msgspec.structs.asdict(opened.manifest.facts), Counts(), Tables(opened.directory))


@pytest.fixture(scope="module")
def end(newest: Rebuilt) -> int:
    last: int = newest.facts["last_ns"]
    return last


# What the live dashboard showed --------------------------------------------------------------------------------------


def test_nothing_was_lost_on_the_way(archived: Opened) -> None:
    assert archived.manifest.problems == []
    assert sum(archived.manifest.events.values()) == captured().event_count


@pytest.mark.parametrize("table", list(KEYS))
def test_every_row_is_the_live_one_field_by_field(session: Rebuilt, table: str) -> None:
    shown, live = keyed(table, session.rows(table)), truth(table)
    assert shown.keys() == live.keys()
    differing = {
        (table, key): fields
        for key, row in live.items()
        if (fields := {name for name in row if shown[key].get(name, "not there") != row[name]})
    }
    assert differing == {known: fields for known, (_, fields) in KNOWN_DIFFERENCES.items() if known[0] == table}


def test_the_known_differences_are_what_their_reasons_say(newest: Rebuilt) -> None:
    shown, live = keyed("tasks", newest.rows("tasks")), truth("tasks")
    for (_, key), (reason, _) in KNOWN_DIFFERENCES.items():
        row, ours = live[key], shown[key]
        if reason is _RACE:
            assert (row["state"], ours["state"]) == ("FAILED", "FINISHED")
            assert row["end_time_ms"] < row["start_time_ms"] <= ours["end_time_ms"]
        else:
            told = row["profiling_data"]["events"]
            assert ours["profiling_data"]["events"][: len(told)] == told


def test_cluster_events_are_those_of_the_live_page(newest: Rebuilt) -> None:
    live = [row for group in captured().truth["events"]["data"]["events"].values() for row in group]
    shown = {row["event_id"]: row for row in newest.rows("cluster_events")}
    assert shown.keys() >= {row["eventId"] for row in live}
    for row in live:
        ours = shown[row["eventId"]]
        assert (ours["severity"], ours["source_type"]) == (row["severity"], row["sourceType"])
        assert ours["message"] == row["message"].replace("\\n", "\n")


@pytest.mark.parametrize("table", ["tasks", "actors"])
def test_without_details_a_row_has_rays_columns_and_no_more(newest: Rebuilt, table: str) -> None:
    live = captured().truth[f"v0_{table}_nodetail"]["data"]["result"]["result"]
    rows = keyed(table, newest.rows(table, detail=False))
    for row in live:
        key = tuple(row[name] for name in KEYS[table])
        assert list(rows[key]) == list(row)
        assert rows[key] == row or (table, key) in KNOWN_DIFFERENCES


def test_the_spans_are_those_of_the_live_timeline(newest: Rebuilt) -> None:
    live: dict[tuple[Any, ...], Counter[Any]] = defaultdict(Counter)
    for entry in captured().truth["tasks_timeline"]:
        if entry["ph"] == "X":
            key = entry["args"]["task_id"], entry["args"]["attempt_number"]
            live[key][entry["cat"], entry["ts"], entry["dur"]] += 1
    ours: dict[tuple[Any, ...], Counter[Any]] = defaultdict(Counter)
    for row in newest.rows("tasks"):
        for span in row["profiling_data"].get("events", ()):
            start, end = span["start_time"] * 1e3, span["end_time"] * 1e3
            ours[row["task_id"], row["attempt_number"]][span["event_name"], start, end - start] += 1
    assert live.keys() <= ours.keys()
    for key, spans in live.items():
        assert ours[key] == spans


# What the end of the cluster left open -------------------------------------------------------------------------------

CLOSING = {
    "tasks": {"state", "end_time_ms", "error_type", "error_message", "events"},
    "actors": {"state", "death_cause"},
    "nodes": {"state", "state_message", "end_time_ms"},
    "workers": {"is_alive", "exit_type", "exit_detail", "end_time_ms"},
    "jobs": {"status", "message", "end_time"},
    "placement_groups": {"state"},
    "runtime_envs": set[str](),
}
"""Which fields the end of the cluster gives a value."""


def is_open(table: str, row: Row) -> bool:
    if table == "workers":
        return bool(row["is_alive"])
    state = row.get("status") if table == "jobs" else row.get("state")
    return state not in ("FINISHED", "FAILED", "DEAD", "REMOVED", "SUCCEEDED", "STOPPED", None)


@pytest.mark.parametrize("table", list(KEYS))
def test_what_was_open_is_closed_and_nothing_else_is_changed(newest: Rebuilt, end: int, table: str) -> None:
    before, after = keyed(table, newest.rows(table)), keyed(table, newest.rows(table, View(closed_at=end)))
    assert before.keys() == after.keys()
    assert any(is_open(table, row) for row in before.values()) is bool(CLOSING[table])
    for key, row in before.items():
        changed = {name for name in row if row[name] != after[key][name]}
        if not is_open(table, row):
            assert not changed
            continue
        assert not is_open(table, after[key])
        assert changed == CLOSING[table]
        for ending in CLOSING[table] & {"end_time_ms", "end_time"}:
            assert after[key][ending] == end // 1_000_000 or "Its driver had finished" in after[key]["message"]
        assert table == "placement_groups" or CLUSTER_TERMINATED in json.dumps(after[key])


# Any moment ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", list(KEYS))
def test_the_last_moment_is_the_last_view(newest: Rebuilt, end: int, table: str) -> None:
    assert newest.rows(table, View(at=end)) == newest.rows(table, LAST)


@pytest.mark.parametrize("table", [*KEYS, "cluster_events"])
def test_before_the_beginning_there_was_nothing(newest: Rebuilt, table: str) -> None:
    rows = newest.rows(table, View(at=newest.facts["start_ns"] - 1))
    assert rows == [] or table == "runtime_envs", "Ray tells no time of runtime environments"


@pytest.fixture(scope="module")
def moments(newest: Rebuilt, end: int) -> list[int]:
    start: int = newest.facts["start_ns"]
    return [start + (end - start) * tenth // 10 for tenth in range(1, 11)]


def test_what_has_ended_stays_ended(newest: Rebuilt, moments: list[int]) -> None:
    ended: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for moment in moments:
        for table in ("tasks", "nodes", "workers", "jobs"):
            rows = keyed(table, newest.rows(table, View(at=moment)))
            now = {
                (*key, row.get("state"), row.get("status"), row.get("end_time_ms"), row.get("end_time"))
                for key, row in rows.items()
                if not is_open(table, row)
            }
            assert ended[table] <= now
            ended[table] = now
    assert ended["tasks"]
    assert ended["workers"]
    assert ended["jobs"]


def test_as_many_tasks_ran_as_the_raw_events_tell(newest: Rebuilt, moments: list[int]) -> None:
    lives = lives_in_the_raw_events()
    assert len(lives) == 360
    for moment in moments:
        expected = sum(
            any(at <= moment for state, at in states.items() if state.startswith("RUNNING"))
            and not any(at <= moment for state, at in states.items() if state in ("FINISHED", "FAILED"))
            for states in lives.values()
        )
        rows = newest.rows("tasks", View(at=moment))
        running = sum(row["state"].startswith("RUNNING") for row in rows)
        ended_without_event = sum(
            row["start_time_ms"] is not None and "FAILED" not in lives[b64(row["task_id"]), row["attempt_number"]]
            for row in rows
            if row["state"] == "FAILED"
        )
        assert running + ended_without_event == expected


def lives_in_the_raw_events() -> dict[tuple[str, int], dict[str, int]]:
    """When each attempt that has a definition was first in each state."""
    lives: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    defined: set[tuple[str, int]] = set()
    for event in (json.loads(line) for lines in captured().events.values() for line in lines):
        for definition in ("taskDefinitionEvent", "actorTaskDefinitionEvent"):
            if definition in event:
                defined.add((event[definition]["taskId"], event[definition]["taskAttempt"]))
        life = event.get("taskLifecycleEvent", {})
        for step in life.get("stateTransitions", ()):
            states = lives[life["taskId"], life["taskAttempt"]]
            states[step["state"]] = min(moment_of(step["timestamp"]), states.get(step["state"], 1 << 63))
    return {key: states for key, states in lives.items() if key in defined}


def moment_of(text: str) -> int:
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(whole + "+00:00").timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)
