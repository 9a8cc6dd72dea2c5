"""Documents of a session: large objects take memory for one at a time, and none is made into Python objects."""

from __future__ import annotations

import json
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.engine import Limits
from ray_history.history.read.tables import Tables
from ray_history.index.build.order import BuildOrder
from ray_history.index.build.steps import BuildHere
from ray_history.index.documents import write_documents
from ray_history.index.locks import CancelToken
from ray_history.index.sources import list_sources
from tests.history.rebuilt import NODE, lifecycle, task, task_id

NAME = "session_2026-11-15_20-55-36_563127_31460"
CLUSTER = Cluster("team", "trainer")
PREFIX = layout.session_prefix("", CLUSTER, NAME)
MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    made.put(layout.marker_key("", CLUSTER, NAME), b"")
    return made


def session_of(store: Store) -> Session:
    (session,) = read_catalog(store).sessions
    return session


def poll(store: Store, name: str, body: bytes) -> None:
    store.put(f"{PREFIX}/fetched_endpoints/{name}", body)


def written(store: Store) -> tuple[dict[str, Any], list[str]]:
    out, problems = BytesIO(), list[str]()
    write_documents(store, list_session(store, session_of(store)), out, problems)
    return {line["name"]: line["body"] for line in map(json.loads, out.getvalue().splitlines())}, problems


@pytest.mark.parametrize("size", [10, 2 * MIB])
def test_answers_are_the_same_whatever_their_size_and_form(store: Store, size: int) -> None:
    answer = {"text": 'é, "quoted", \n\r\t' * (size // 10), "list": [{}, None, 1.5, -3, 2**60]}
    poll(store, "pretty", json.dumps(answer, indent=2).encode())
    poll(store, "windows", json.dumps(answer, indent=1, ensure_ascii=False).replace("\n", "\r\n").encode())
    assert written(store) == ({"pretty": answer, "windows": answer}, [])


@pytest.mark.parametrize("size", [0, 2 * MIB])
def test_what_is_not_json_is_a_problem(store: Store, size: int) -> None:
    filler = b'{"text": "' + b"x" * size
    for number, end in enumerate((b'"', b'\xff"}', b'"} more', b'\n"}', b'", "deep": ' + b"[" * 100_000)):
        poll(store, str(number), filler + end)
    bodies, problems = written(store)
    assert bodies == {}
    assert sorted(problem.split(": ")[0].rpartition("/")[2] for problem in problems) == ["0", "1", "2", "3", "4"]
    assert all(": not JSON (" in problem for problem in problems)


def test_a_hostile_answer_is_not_made_into_python_objects(store: Store) -> None:
    for number in range(4):
        poll(store, str(number), b"[" + b",".join([b"{}"] * MIB) + b"]")
    files = list_session(store, session_of(store))
    tracemalloc.start()
    try:
        with open("/dev/null", "wb") as out:
            write_documents(store, files, out, [])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * 3 * MIB, "a few copies of one answer"


def test_a_frugal_build_leaves_out_what_is_large(store: Store, tmp_path: Path) -> None:
    lines = [
        task(task_id(1)),
        lifecycle(task_id(1), ("RUNNING", 1), ("FAILED", 2), error=("WORKER_DIED", "small"), node=NODE),
        lifecycle(task_id(2), ("RUNNING", 1), ("FAILED", 2), error=("WORKER_DIED", "x" * 2 * MIB), node=NODE),
    ]
    store.put(layout.event_file_key(PREFIX, NODE, None, 10**18), encode_events(json.dumps(e).encode() for e in lines))
    poll(store, "large", b'"%s"' % (b"x" * 2 * MIB))
    target = tmp_path / "index"
    target.mkdir()
    order = BuildOrder(list_sources(store, session_of(store)), target, is_frugal=True)
    manifest = BuildHere(store, Limits(512 * MIB, 1)).build(order, lambda _: None, CancelToken())
    assert manifest.problem_count == 2
    assert any("/large: 2097154 bytes, larger than 1048576; left out" in problem for problem in manifest.problems)
    assert any("too long" in problem and "line 3" in problem for problem in manifest.problems)
    tables = Tables(target)
    try:
        assert tables.rows("select task_id, error_message from observed_tasks") == [(task_id(1), "small")]
    finally:
        tables.close()
