"""The queries of tasks agree on their columns, and every query counts into the digest of the rules."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from ray_history.history.build.builder import Builder
from ray_history.history.engine import Limits
from ray_history.history.events import TASK_EVENTS, TASK_PAYLOADS, rules_digest, task_columns
from ray_history.history.sql import all_queries, create_source_tables, query


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    directory = tmp_path_factory.mktemp("tables")
    with Builder(directory, Limits()) as builder:
        builder.finish()
    database = duckdb.connect()
    create_source_tables(database)
    for name, payload in TASK_EVENTS.items():
        file = directory / f"{name}.jsonl"
        file.touch()
        events = f"read_json('{file}', format = 'newline_delimited', columns = {task_columns(payload)})"
        database.execute(f'create view {name.lower()} as select {payload}.*, "timestamp" from {events}')
    database.execute(f"create view tasks as from '{directory / 'tasks.parquet'}'")
    database.execute(f"create view run as {query('tasks/run')}")
    return database


def columns(database: duckdb.DuckDBPyConnection, rows: str) -> dict[str, str]:
    return {name: kind for name, kind, *_ in database.execute(f"describe {rows}").fetchall()}


def test_merging_keeps_every_column_of_a_run(database: duckdb.DuckDBPyConnection) -> None:
    """A column that merging forgot would be lost only in sessions of several runs."""
    merged = columns(database, f"with attempt as (from run) {query('tasks/merge')}")
    assert merged == columns(database, "from run")


def test_reopening_restores_every_column_of_a_run(database: duckdb.DuckDBPyConnection) -> None:
    reopened = columns(database, f"with final_attempt as (from tasks) {query('tasks/reopen')}")
    assert reopened == columns(database, "from run")


def test_every_task_payload_has_an_event() -> None:
    assert set(TASK_EVENTS.values()) == set(TASK_PAYLOADS)


def test_every_query_is_in_the_digest_of_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2] / "src" / "ray_history" / "history" / "sql"
    texts = [query(str(file.relative_to(root).with_suffix(""))) for file in root.rglob("*.sql")]
    assert sorted(texts) == sorted(all_queries())
    assert any("tasks" in file.parts[-2] for file in root.rglob("*.sql"))
    before = rules_digest()
    rules_digest.cache_clear()
    monkeypatch.setattr("ray_history.history.events.all_queries", lambda: [*texts[1:], texts[0] + " "])
    try:
        assert rules_digest() != before
    finally:
        rules_digest.cache_clear()
