"""Rows as a Parquet file that is written while it is read."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pytest

from tests.history.rebuilt import lifecycle, rebuild, task, task_id


def test_the_file_contains_the_rows(tmp_path: Path) -> None:
    rebuilt = rebuild(tmp_path, [task(task_id(1)), lifecycle(task_id(1), ("RUNNING", 1), ("FINISHED", 2))])
    source = rebuilt.tables.source("tasks")
    (tmp_path / "tasks.parquet").write_bytes(b"".join(rebuilt.tables.parquet(f"from {source}")))
    assert duckdb.sql(f"from '{tmp_path / 'tasks.parquet'}'").fetchall() == rebuilt.tables.rows(f"from {source}")


def test_closing_the_generator_ends_the_query(tmp_path: Path) -> None:
    tables = rebuild(tmp_path).tables
    endless = tables.parquet("select random() as number, repeat('x', 100) as text from range(100_000_000_000)")
    assert next(endless)
    endless.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "parquet"]
    assert tables.rows("select 1") == [(1,)]


def test_a_failing_query_raises_its_error(tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error, match="no_such_column"):
        list(rebuild(tmp_path).tables.parquet("select no_such_column"))
