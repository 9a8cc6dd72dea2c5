"""Redacted tables: they contain nothing that the API redacts, and are otherwise unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_history.history.read.tables import Tables
from ray_history.server.redaction import tables as hidden_texts
from ray_history.server.redaction.rules import redacted
from ray_history.server.redaction.tables import without_secrets
from tests.history.rebuilt import TABLES, Rebuilt, profile, rebuild, span, task, task_id

from .secretive import SECRET, documents, told


def rows_of(tables: Tables, sql: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines(tables, sql)]


def lines(tables: Tables, sql: str) -> list[str]:
    return sorted(line for (line,) in tables.rows(f"select to_json(row)::varchar from ({sql}) as row"))


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Rebuilt:
    return rebuild(tmp_path_factory.mktemp("hidden"), told(), documents())


@pytest.mark.parametrize("table", TABLES)
def test_a_table_contains_nothing_that_the_api_redacts(rebuilt: Rebuilt, table: str) -> None:
    before = lines(rebuilt.tables, f"from {rebuilt.tables.source(table)}")
    assert SECRET in str(before)
    assert SECRET not in str(lines(rebuilt.tables, without_secrets(rebuilt.tables, table)))


@pytest.mark.parametrize("table", TABLES)
def test_columns_and_other_values_are_unchanged(rebuilt: Rebuilt, table: str) -> None:
    tables = rebuilt.tables
    sql = without_secrets(tables, table)
    assert tables.rows(f"describe ({sql})") == tables.rows(f"describe from {tables.source(table)}")
    for row, was in zip(*(rows_of(tables, rows) for rows in (sql, f"from {tables.source(table)}")), strict=True):
        assert row == redacted(was)


def test_suspected_texts_without_secrets_are_unchanged(rebuilt: Rebuilt) -> None:
    where = f"where task_id = '{task_id(2)}'"
    tables = rebuilt.tables
    hidden = lines(tables, f"from ({without_secrets(tables, 'tasks')}) {where}")
    assert hidden == lines(tables, f"from {tables.source('tasks')} {where}")


def test_texts_beyond_the_memory_limit_are_redacted_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        each
        for number in range(1, 50)
        for each in (
            task(task_id(number), taskName=f"load(password={SECRET}{number})" if number % 2 else "plain"),
            profile(task_id(number), span("execute", 1, 2, f'{{"auth_token": "{SECRET}{number}"}}')),
        )
    ]
    rebuilt = rebuild(tmp_path, events)
    monkeypatch.setattr(hidden_texts, "_MAX_TEXTS", 500)
    rows = rows_of(rebuilt.tables, without_secrets(rebuilt.tables, "tasks"))
    assert SECRET not in str(rows)
    names = [row["name"] for row in rows]
    assert set(names) == {"load(password=<redacted>", "<redacted>", "plain"}
    assert names.count("plain") == 24
    assert None in [row["spans"] for row in rows]
