"""The queries that are the tables; each file says what one of them is."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def query(name: str) -> str:
    """The text of `<name>.sql`."""
    return resources.files(__name__).joinpath(f"{name}.sql").read_text()


def query_at(name: str, moment: int) -> str:
    """The same, of a small table: what was known at a moment."""
    return re.sub(r"\bmoment\b", str(moment), query(name))


def text(value: object) -> str:
    """A string as SQL: a path, mostly."""
    return "'" + str(value).replace("'", "''") + "'"
