"""How tables are built, apart from their content."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ray_history.history.build.builder import Builder
from ray_history.history.build.event_lines import EventLines
from ray_history.history.engine import Engine, Limits
from ray_history.history.read.tables import READING_FAILED
from tests.history.rebuilt import lifecycle, node, rebuild, task, task_id


def modesty() -> set[int]:
    """How nice the threads of this process are."""
    return {int(path.read_text().rpartition(")")[2].split()[16]) for path in Path("/proc/self/task").glob("*/stat")}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has threads that are nicer than others")
def test_building_threads_have_a_lower_priority(tmp_path: Path) -> None:
    mine = os.nice(0)
    with Builder(tmp_path, Limits()):
        assert modesty() == {mine, max(mine, 5)}
    assert os.nice(0) == mine


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_raises_the_systems_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.history.engine.seal", lambda *_, **__: None)  # sealed, it does not follow the link
    with Builder(tmp_path, Limits()) as builder:
        (tmp_path / "nodes.parquet").symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left") as raised:
            builder.finish()
    assert raised.value.errno == errno.ENOSPC


def test_a_long_event_is_read(tmp_path: Path) -> None:
    events = [task(task_id(number)) for number in range(5)] + [lifecycle(task_id(1), ("RUNNING", 1))]
    built = rebuild(tmp_path, [*events, task(task_id(9), callSite="x" * 5_000_000)], cuts=[3])
    assert (built.counts.events, built.counts.dropped) == (7, 0)
    assert [len(row["call_site"] or "") for row in built.rows("tasks") if row["task_id"] == task_id(9)] == [5_000_000]


def test_events_of_any_shape_are_merged_within_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event has forty times the usual size, and all of it goes into the table: too much to merge at once."""
    parts: list[Path] = []
    write_in_parts = Engine.write_in_parts

    def record(engine: Engine, *how: Any) -> list[Path]:
        files = write_in_parts(engine, *how)
        parts.extend(files)
        return files

    monkeypatch.setattr(Engine, "write_in_parts", record)
    environment = json.dumps({"env_vars": {f"NAME_{number}": "x" * 200 for number in range(100)}})
    tasks = [task_id(number) for number in range(6000)]
    defined = (task(name, serializedRuntimeEnv=environment) for name in tasks)
    built = rebuild(tmp_path, [*defined, *(lifecycle(name, ("RUNNING", 1)) for name in tasks)], memory=192 << 20)
    assert {part.stem.rpartition("-")[2] for part in parts} - {"1"}, "everything fitted into memory"
    assert built.counts.events == 12000
    assert built.columns("tasks", "count(*), count(distinct task_id), min(length(runtime_env)), min(state)") == [
        (6000, 6000, len(environment), "RUNNING")
    ]


def test_tables_written_in_parts_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [
        event for number in range(50) for event in (task(task_id(number)), lifecycle(task_id(number), ("RUNNING", 1)))
    ]
    later = [lifecycle(task_id(number), ("FINISHED", 2)) for number in range(0, 60, 3)]
    apart = [*first, *later, lifecycle(task_id(3), ("FAILED", 3), attempt=1)]
    whole = rebuild(tmp_path, apart, cuts=[40, 90])
    base = rebuild(tmp_path, first)
    write_in_parts = Engine.write_in_parts

    def scarce(engine: Engine, stem: Path, key: str, write: Callable[[str, Path], None]) -> list[Path]:
        def fail_at_first(condition: str, file: Path) -> None:
            if condition == "true":
                raise duckdb.OutOfMemoryException("all rows at once")
            write(condition, file)

        return write_in_parts(engine, stem, key, fail_at_first)

    execute = Engine.execute

    def without_memory(engine: Engine, sql: str, *where: Any) -> list[tuple[Any, ...]]:
        if sql.startswith("create table only_run") or (sql.startswith("copy (") and "with attempt as" in sql):
            raise duckdb.OutOfMemoryException("one table, or one query")
        return execute(engine, sql, *where)

    assert rebuild(tmp_path, apart).everything() == whole.everything()
    monkeypatch.setattr(Engine, "execute", without_memory)
    monkeypatch.setattr(Engine, "write_in_parts", scarce)
    assert rebuild(tmp_path, apart).everything() == whole.everything()
    assert rebuild(tmp_path, apart, cuts=[40, 90]).everything() == whole.everything()
    assert rebuild(tmp_path, apart[100:], base=base).everything() == whole.everything()


def test_while_a_run_is_late_the_next_one_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, go_on = Engine.submit, threading.Event()

    def hold(engine: Engine, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        if getattr(work, "__name__", "") == "_merge_into_files":
            return submit(engine, lambda: (go_on.wait(60), work(*arguments)))
        return submit(engine, work, *arguments)

    monkeypatch.setattr(Engine, "submit", hold)
    merged_by: list[str] = []
    write_in_parts = Engine.write_in_parts

    def record(*arguments: Any) -> list[Path]:
        merged_by.append(threading.current_thread().name.split("_")[0])
        go_on.set()
        return write_in_parts(*arguments)

    monkeypatch.setattr(Engine, "write_in_parts", record)
    tables = tmp_path / "tables"
    tables.mkdir()
    batches = [EventLines(tables / f"batch-{number}") for number in range(3)]
    for number, batch in enumerate(batches):
        with batch.writing():
            batch.add(json.dumps(task(task_id(number))).encode())
    with Builder(tables, Limits()) as builder:
        builder.add(batches[0])
        builder.merge()
        threading.Timer(0.3, go_on.set).start()
        builder.merge()  # nothing was read since
        go_on.clear()
        builder.add(batches[1])
        builder.merge()
        builder.add(batches[2])
        builder.merge()
        builder.finish()
        assert builder.row_counts()["tasks"] == 3
    assert merged_by[:3] == ["build", "read", "build"]


@pytest.mark.parametrize(
    ("lines", "heavier"),
    [
        ([b'{"eventType": "TASK_LIFECYCLE_EVENT"}'], 5),
        ([b'{"eventType": "TASK_LIFECYCLE_EVENT", "taskLifecycleEvent": {"taskId": "%s"}}' % (b"x" * 900)], 1),
        ([b'{"eventType": "TASK_LIFECYCLE_EVENT", "taskLifecycleEvent": {"taskId": "%s"}}' % (b"x" * 90000)], 1.9),
    ],
    ids=["tiny", "ordinary", "fat"],
)
def test_the_weight_of_events_is_known_before_they_are_read(tmp_path: Path, lines: list[bytes], heavier: float) -> None:
    batch = EventLines(tmp_path / "batch")
    with batch.writing():
        batch.add(b"\n".join(lines * 100))
    stored = sum(file.stat().st_size for file in batch.files.values())
    assert heavier <= batch.load / stored < heavier * 3


def test_a_damaged_column_name_makes_tables_doubtful(tmp_path: Path) -> None:
    built = rebuild(tmp_path, [node()])
    file = built.directory / "nodes.parquet"
    file.write_bytes(file.read_bytes().replace(b"hostname", b"\xe8ostname"))  # one bit
    with pytest.raises(READING_FAILED):
        built.tables.rows(f"select hostname from {built.tables.source('nodes')}")
    assert built.tables.is_doubtful
