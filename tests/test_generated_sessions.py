"""Generated sessions, on which measurements run, resemble captured ones and contain what they announce."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.generated import Generated, generate
from bench.plain_rebuild import rebuild, scan_limit
from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.support.captured import captured

TASKS = 500
STATES = (
    "NIL",
    "PENDING_ARGS_AVAIL",
    "PENDING_NODE_ASSIGNMENT",
    "PENDING_OBJ_STORE_MEM_AVAIL",
    "PENDING_ARGS_FETCH",
    "SUBMITTED_TO_WORKER",
    "PENDING_ACTOR_TASK_ARGS_FETCH",
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY",
    "RUNNING",
    "RUNNING_IN_RAY_GET",
    "RUNNING_IN_RAY_WAIT",
    "FINISHED",
    "FAILED",
)
MAPS = ("labels", "resources", "requiredResources", "metadata", "refIds", "labelSelector")
"""Fields whose keys are chosen by users."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated")


@pytest.fixture(scope="module")
def generated(archive: Path) -> Generated:
    return generate(archive, tasks=TASKS)


@pytest.fixture(scope="module")
def files(archive: Path, generated: Generated) -> list[Path]:
    return sorted(archive.rglob("*.jsonl.gz"))


@pytest.fixture(scope="module")
def lines(files: list[Path]) -> list[bytes]:
    return [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def paths(value: Any, path: str = "") -> Iterator[str]:
    """The path and the type of each plain value."""
    if isinstance(value, dict) and not path.endswith(MAPS):
        for name, inner in value.items():
            yield from paths(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, path + "[]")
    else:
        yield f"{path}: {type(value).__name__}"


def paths_by_type(events: list[bytes]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for line in events:
        event = json.loads(line)
        found[event["eventType"]].update(paths(event))
    return found


def stored(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_its_events_have_the_fields_of_captured_ones(lines: list[bytes]) -> None:
    real = paths_by_type([line for events in captured().events.values() for line in events])
    made = paths_by_type(lines)
    assert set(made) == set(real)
    assert {kind: found - real[kind] for kind, found in made.items() if found - real[kind]} == {}


def test_its_events_are_written_the_way_ray_writes_them(lines: list[bytes]) -> None:
    assert all(json.dumps(json.loads(line)).encode() == line for line in lines)


def test_distinct_events_and_duplicates_are_counted(generated: Generated, lines: list[bytes]) -> None:
    copies = Counter(json.loads(line)["eventId"] for line in lines)
    assert len(copies) == generated.events
    assert sum(copies.values()) - len(copies) == generated.duplicates > 0
    assert len(set(lines)) == generated.events
    assert 4.5 < generated.events / generated.attempts < 6


def test_files_and_bytes_are_counted(generated: Generated, files: list[Path], lines: list[bytes]) -> None:
    assert len(files) == generated.files
    assert sum(file.stat().st_size for file in files) == generated.stored_bytes
    assert sum(len(line) + 1 for line in lines) == generated.raw_bytes


def test_jobs_nodes_actors_and_workers_are_counted(generated: Generated, lines: list[bytes]) -> None:
    distinct = Counter(json.loads(line)["eventType"] for line in set(lines))
    assert distinct["DRIVER_JOB_DEFINITION_EVENT"] == generated.jobs >= 2
    assert distinct["NODE_DEFINITION_EVENT"] == generated.nodes >= 2
    assert distinct["ACTOR_DEFINITION_EVENT"] == generated.actors >= 1
    assert distinct["WORKER_DEFINITION_EVENT"] == generated.workers


def test_the_catalog_finds_the_session_and_all_its_files(archive: Path, generated: Generated) -> None:
    store = open_store(DirectorySettings(archive))
    catalog = read_catalog(store, unmarked=True)
    (session,) = catalog.sessions
    assert (session.name, session.cluster.path, session.marked) == (generated.session, generated.cluster, True)
    assert catalog.undecodable == 0
    found = list_session(store, session)
    assert len(found.event_files) == generated.files
    assert found.generations == {Generation.C}
    assert len(found.nodes) == generated.nodes
    assert found.unknown == ()


def test_a_plain_rebuild_finds_the_attempts_and_their_states(generated: Generated, files: list[Path]) -> None:
    attempts = rebuild(files)
    assert len(attempts) == generated.attempts
    assert len({task for task, _ in attempts}) == generated.tasks == TASKS
    highest = Counter(max(row["times"], key=STATES.index) for row in attempts.values())
    assert highest == generated.states
    assert set(highest) == {"FINISHED", "FAILED", "RUNNING", "PENDING_NODE_ASSIGNMENT"}


def test_every_attempt_is_whole_and_in_order(files: list[Path]) -> None:
    for row in rebuild(files).values():
        assert row["definition"]
        assert ("FAILED" in row["times"]) == (row["error"] is not None)
        reached = sorted(row["times"], key=STATES.index)
        assert [row["times"][state] for state in reached] == sorted(row["times"].values())


def test_parents_are_tasks_of_the_session(files: list[Path]) -> None:
    attempts = rebuild(files)
    tasks = {task for task, _ in attempts}
    parents = {row["definition"]["parentTaskId"] for row in attempts.values()} - {"/" * 32}
    assert parents < tasks
    assert any(attempts[parent, 0]["definition"]["parentTaskId"] in parents for parent in parents)


def test_equal_seeds_give_equal_bytes_in_any_number_of_processes(
    archive: Path, generated: Generated, tmp_path: Path
) -> None:
    again = generate(tmp_path, tasks=TASKS, processes=2)
    assert again == generated
    assert stored(tmp_path) == stored(archive)


def test_another_seed_gives_another_session_in_its_place(generated: Generated, tmp_path: Path) -> None:
    generate(tmp_path, tasks=TASKS, seed=1)
    other = generate(tmp_path, tasks=TASKS, seed=2)
    assert other.raw_bytes != generated.raw_bytes
    assert len(list(tmp_path.rglob("*.jsonl.gz"))) == other.files


def test_a_session_that_is_there_is_not_written_again(archive: Path, generated: Generated, files: list[Path]) -> None:
    before = [file.stat().st_mtime_ns for file in files]
    assert generate(archive, tasks=TASKS) == generated
    assert [file.stat().st_mtime_ns for file in files] == before


def test_a_session_can_belong_to_any_cluster(tmp_path: Path) -> None:
    cluster = Cluster("team", "trainer", "RayJob", "nightly")
    generate(tmp_path, tasks=100, cluster=cluster, session="session_2026-02-01_00-00-00_000001_1")
    (session,) = read_catalog(open_store(DirectorySettings(tmp_path))).sessions
    assert session.cluster == cluster


def test_scanning_is_measured(files: list[Path]) -> None:
    assert scan_limit(files) > 0
