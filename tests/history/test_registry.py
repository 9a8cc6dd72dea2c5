"""The registry agrees with the queries that make the tables, and with what the collector stores."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from ray_history.collector.polling.endpoints import ENDPOINTS
from ray_history.history import sql
from ray_history.history.build.builder import Builder
from ray_history.history.engine import Limits
from ray_history.history.events import KNOWN_TYPES
from ray_history.history.read.json_rows import row
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import View
from ray_history.history.registry import EVENT_FILES, EXPORT_FILES, LOG_FILES, SMALL_TABLES, TABLES, Table

SQL = Path(sql.__file__).parent

EACH_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    with Builder(directory, Limits()) as builder:
        builder.finish()
    return directory


@EACH_TABLE
def test_a_table_can_be_filtered_sorted_and_closed_by_its_columns(directory: Path, table: Table) -> None:
    columns = {name for name, *_ in duckdb.sql(f"describe from '{directory}/{table.name}.parquet'").fetchall()}
    assert set(table.filters) <= columns
    assert set(table.source_filters) <= set(table.filters)
    tables = Tables(directory)
    try:
        for view in (View(), View(closed_at=1), View(at=1)):
            rows = tables.source(table.name, view)
            order = ", ".join((*table.sortable.values(), table.default_order or table.key)) + table.tie_breakers
            tables.rows(f"select {row(table.name, detail=True, redact=True)} from {rows} order by {order}")
    finally:
        tables.close()


@EACH_TABLE
def test_runtime_environments_are_parts_of_columns(table: Table) -> None:
    values = {column.name: column.value for column in table.columns}
    assert all(env in values[name] for name, env in table.runtime_envs.items())
    assert {*table.json_texts, *table.json_columns} <= set(values)


@EACH_TABLE
def test_every_source_is_an_event_a_kind_of_file_or_polled(table: Table) -> None:
    polled = {endpoint.url.partition("?")[0] for endpoint in ENDPOINTS}
    assert set(table.polled) <= polled
    assert {*table.sources} - {*table.polled} <= {*KNOWN_TYPES, EVENT_FILES, LOG_FILES, EXPORT_FILES}


@EACH_TABLE
def test_each_declared_source_is_part_of_the_query(table: Table) -> None:
    if table.precedence is None:
        return
    text = "".join(file.read_text() for file in (*SQL.glob(f"{table.name}.sql"), *SQL.glob(f"{table.name}/*.sql")))
    orders = {source for order in table.precedence.columns for source in order.split()}
    assert orders == set(table.precedence.sources)
    assert all(re.search(rf"\b{source} as \(|\bas {source}\b", text) for source in orders)
    assert len(set(table.precedence.names)) == len(table.precedence.names)
    # Which source wins is declared, and not decided in the query.
    either = "|".join(orders)
    assert not re.search(rf"coalesce\(({either})[.]\w+, ({either})[.]", text)


def test_small_tables_are_all_but_tasks() -> None:
    assert {*SMALL_TABLES, "tasks"} == set(TABLES)
