"""Prepared queries that read nothing but their parameters.

DuckDB plans a query each time it runs, even a prepared one, unless it reads no table and no file. For a few rows,
planning takes longer than everything else. Such rows are read first, and passed as a parameter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Any

import duckdb

from ray_history.history.sql import text

_MAX_PLANS = 4
"""Per cursor; the least recently used one is removed. Most of the time it is the same query for another row."""


class PreparedQueries:
    """For many threads: it has as many cursors, each with its own plans, as were ever used at the same time."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._idle: list[_Cursor] = []

    def rows(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of a small result; each parameter is a text."""
        try:
            cursor = self._idle.pop()
        except IndexError:
            cursor = _Cursor(self._database.cursor())
        try:
            return cursor.rows(sql, parameters)
        finally:
            self._idle.append(cursor)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Cursor:
    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._numbers = count()
        self._plans: OrderedDict[str, str] = OrderedDict()

    def rows(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        arguments = ", ".join(map(text, parameters))  # EXECUTE takes no parameters from Python
        return self._cursor.execute(f"execute {self._plan(sql)}({arguments})").fetchall()

    def _plan(self, sql: str) -> str:
        if sql not in self._plans:
            if len(self._plans) == _MAX_PLANS:
                _, oldest = self._plans.popitem(last=False)
                self._cursor.execute(f"deallocate {oldest}")
            name = f"plan_{next(self._numbers)}"
            self._cursor.execute(f"prepare {name} as {sql}")
            self._plans[sql] = name
        self._plans.move_to_end(sql)
        return self._plans[sql]

    def close(self) -> None:
        self._cursor.close()
