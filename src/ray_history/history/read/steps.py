"""What surrounds each step of a query, so that whoever asks can limit its time: this room knows no clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TypeAlias

import duckdb

# As text: otherwise `typing` keeps a type of DuckDB alive, which then complains at the end of the process.
Surround: TypeAlias = "Callable[[duckdb.DuckDBPyConnection], AbstractContextManager[object]]"

SURROUND: ContextVar[Surround] = ContextVar("surround", default=nullcontext)
"""Gets the cursor of the query; may interrupt it."""


def step(cursor: duckdb.DuckDBPyConnection) -> AbstractContextManager[object]:
    """The context for a step of a query."""
    return SURROUND.get()(cursor)
