"""Queries over nothing but their parameters are planned once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from ray_history.history.read.prepared import PreparedQueries

GREETINGS = "select noted('dear') || ' ' || name from (select unnest(?::varchar::json::varchar[]) as name)"


class Planning:
    """A database whose word `noted` tells when it is planned: DuckDB works out then what depends on nothing."""

    def __init__(self) -> None:
        self.database, self.noted = duckdb.connect(), list[str]()
        self.database.create_function("noted", self._note, ["VARCHAR"], "VARCHAR")
        self.plans = PreparedQueries(self.database)

    def _note(self, word: str) -> str:
        self.noted.append(word)
        return word

    def close(self) -> None:
        self.plans.close()
        self.database.remove_function("noted")
        self.database.close()


@pytest.fixture
def planning() -> Iterator[Planning]:
    opened = Planning()
    yield opened
    opened.close()


def test_a_query_is_planned_once_for_all_parameters(planning: Planning) -> None:
    for given, found in (
        ('["Ray"]', ["dear Ray"]),
        ("[]", []),
        ('["d\'Artagnan", "; drop", "ö\\n"]', ["dear d'Artagnan", "dear ; drop", "dear ö\n"]),
    ):
        assert [greeting for (greeting,) in planning.plans.rows(GREETINGS, [given])] == found
    assert planning.noted == ["dear"]


@pytest.mark.parametrize("given", ["'", "''", "\\", "a\0b", "$1", "?", "; --", "\n", "ö", ""])
def test_parameters_are_texts(planning: Planning, given: str) -> None:
    assert planning.plans.rows("select ?::varchar", [given]) == [(given,)]


def test_a_query_that_reads_a_table_would_be_planned_each_time(planning: Planning) -> None:
    """Why rows are given as a parameter. Should it fail with another DuckDB, they need not be."""
    planning.database.execute("create table person as select 'Ray' as name")
    for _ in range(3):
        assert planning.plans.rows("select noted('dear') from person where name = ?", ["Ray"]) == [("dear",)]
    assert len(planning.noted) > 2


def test_least_recently_used_plans_are_removed(planning: Planning) -> None:
    for number in (0, 1, 2, 3, 0, 4, 0, 1):
        assert planning.plans.rows(f"select noted('{number}') || ?::varchar", ["x"]) == [(f"{number}x",)]
    assert planning.noted == ["0", "1", "2", "3", "4", "1"]


def test_a_query_after_a_failed_one_succeeds(planning: Planning) -> None:
    for wrong in ("select ?::int", "select nothing || ?", "selekt ?"):
        with pytest.raises(duckdb.Error):
            planning.plans.rows(wrong, ["x"])
    assert planning.plans.rows("select ?::int", ["7"]) == [(7,)]


def test_many_threads_can_query_at_once() -> None:
    with duckdb.connect() as database:
        plans = PreparedQueries(database)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda number: plans.rows("select ?::int * 2", [number]), range(200)))
        assert found == [[(number * 2,)] for number in range(200)]
        plans.close()
