"""The queries that make the tables; each file describes one table, or one step of `tasks`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from ray_history.history.registry import TABLES

from .absent import LATER, without

if TYPE_CHECKING:
    import duckdb

END_OF_TIME = 2**63 - 1
"""A moment after all events."""

_ROOT = resources.files(__name__)


@cache
def query(name: str) -> str:
    """The query of `<name>.sql`, with the sources of columns as the registry declares them."""
    text = _ROOT.joinpath(f"{name}.sql").read_text()
    table = TABLES.get(name.partition("/")[0])
    return table.precedence.expanded(text) if table and table.precedence else text


def query_at(name: str, moment: int, kinds: Collection[str]) -> str:
    """The query of a small table, as of a moment, for a session that has these kinds of rows (see absent.py)."""
    present = kinds if moment == END_OF_TIME else {*kinds, LATER}
    return re.sub(r"\bmoment\b", str(moment), without(name, query(name), present))


def all_queries() -> list[str]:
    """All queries, in the order of their paths."""
    return [query(name) for name in sorted(_names(_ROOT, ""))]


def _names(folder: Traversable, path: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".sql"):
            yield path + entry.name.removesuffix(".sql")


def create_source_tables(database: duckdb.DuckDBPyConnection) -> None:
    """Create the tables that the queries read, and the macros that they use."""
    for name in ("source_tables", "macros", "death_causes"):
        database.execute(query(name))


def text(value: object) -> str:
    """A string as a SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"
