"""The queries that make the tables; each file describes one table, or one step of `tasks`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_ROOT = resources.files(__name__)


@cache
def query(name: str) -> str:
    """The text of `<name>.sql`."""
    return _ROOT.joinpath(f"{name}.sql").read_text()


def query_at(name: str, moment: int) -> str:
    """The query of a small table, as of a moment."""
    return re.sub(r"\bmoment\b", str(moment), query(name))


def all_queries() -> list[str]:
    """The texts of all files, in the order of their paths."""
    return [text for _, text in sorted(_files(_ROOT, ""))]


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".sql"):
            yield path + entry.name, entry.read_text()


def create_source_tables(database: duckdb.DuckDBPyConnection) -> None:
    """Create the tables that the queries read, and the macros that they use."""
    for name in ("source_tables", "macros", "death_causes"):
        database.execute(query(name))


def text(value: object) -> str:
    """A string as a SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"
