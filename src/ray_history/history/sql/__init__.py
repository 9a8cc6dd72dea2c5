"""The queries that are the tables; each file says what one of them is."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def query(name: str) -> str:
    """The text of `<name>.sql`."""
    return resources.files(__name__).joinpath(f"{name}.sql").read_text()


def text(value: object) -> str:
    """A string as SQL: a path, mostly."""
    return "'" + str(value).replace("'", "''") + "'"
