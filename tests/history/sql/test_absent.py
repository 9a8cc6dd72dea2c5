"""Leaving out what a session does not have changes no row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ray_history.history.sql import END_OF_TIME, create_source_tables, query, query_at
from ray_history.history.sql.absent import DOCUMENT_KIND, LATER, NEEDS, body_of, kinds_of_rows, without
from tests.history.rebuilt import rebuild
from tests.history.test_precedence import documents, events

EXPRESSIONS = [(name, expressions) for name, needs in NEEDS.items() for expressions in needs]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a session with every source."""
    place = tmp_path_factory.mktemp("everything")
    lines = [line for source in events().values() for line in source]
    built = rebuild(place, lines, [part for source in documents().values() for part in source])
    built.tables.close()
    return place


@pytest.fixture(scope="module")
def everything(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    (rare_events,) = directory.rglob("rare_events.parquet")
    tables = rare_events.parent
    with duckdb.connect(config={"threads": 1}) as made:
        create_source_tables(made)
        made.execute(
            f"""
            insert into rare_event from '{rare_events}';
            insert into document from '{tables}/documents.parquet';
            create table observed_tasks as from '{tables}/tasks.parquet';
            create table node as from '{tables}/nodes.parquet';
            create macro nodes_at(moment) as table from node
            """
        )
        yield made


@pytest.fixture
def database(everything: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Rows that are removed come back."""
    everything.begin()
    yield everything
    everything.rollback()


def remove(database: duckdb.DuckDBPyConnection, kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds.split())
    database.execute(f"delete from rare_event where event_type in ({listed})")
    database.execute(f"delete from document where {DOCUMENT_KIND} in ({listed})")


def kinds_in(database: duckdb.DuckDBPyConnection) -> frozenset[str]:
    return kinds_of_rows(lambda sql: database.execute(sql).fetchall())


def rows(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    return database.execute(f"from ({sql}) order by all").fetchall()


def expression_rows(database: duckdb.DuckDBPyConnection, name: str, expression: str) -> list[tuple[object, ...]]:
    text = re.sub(r"\bmoment\b", str(END_OF_TIME), query(name))
    _, end = body_of(expression, text)
    return rows(database, f"{text[:end]}) from {expression}")


@pytest.mark.parametrize(("name", "expressions"), EXPRESSIONS)
def test_what_a_session_lacks_is_left_out(database: duckdb.DuckDBPyConnection, name: str, expressions: str) -> None:
    needed, had = NEEDS[name][expressions], kinds_in(database)
    remove(database, needed)
    kinds = kinds_in(database)
    assert kinds == had - set(needed.split())
    for expression in expressions.split():
        assert expression_rows(database, name, expression) == []
    shorter, full = query_at(name, END_OF_TIME, kinds), re.sub(r"\bmoment\b", str(END_OF_TIME), query(name))
    assert shorter != full
    assert rows(database, shorter) == rows(database, full)
    columns = [database.execute(f"describe {sql}").fetchall() for sql in (shorter, full)]
    assert columns[0] == columns[1]


def test_what_a_session_has_stays(database: duckdb.DuckDBPyConnection) -> None:
    """Kinds are recognized by their names as they are stored; otherwise their rows would be missing."""
    kinds = kinds_in(database)
    for name, needs in NEEDS.items():
        with_rows = [e for expressions in needs for e in expressions.split() if expression_rows(database, name, e)]
        text = without(name, query(name), {*kinds, LATER})
        for expression in with_rows:
            start, end = body_of(expression, query(name))
            assert query(name)[start:end] in text, f"{name}: {expression}"


def test_a_moment_keeps_what_is_later(database: duckdb.DuckDBPyConnection) -> None:
    kinds = kinds_in(database)
    start, end = body_of("later", query("nodes"))
    later = query("nodes")[start:end]
    assert later.replace("moment", "5") in query_at("nodes", 5, kinds)
    assert later.replace("moment", str(END_OF_TIME)) not in query_at("nodes", END_OF_TIME, kinds)
