"""Limits what SQL can reach, in case that a text from an event or a request ever became a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from .sql import text


def seal(database: duckdb.DuckDBPyConnection, *directories: Path, changeable: Sequence[str] = ()) -> None:
    """From now on, SQL reads and writes files in these directories only, loads no extension, and changes no setting
    but those named. It cannot be undone."""
    places, names = (", ".join(map(text, entries)) for entries in (directories, changeable))
    database.execute(
        f"""
        set global allowed_directories = [{places}];
        set global enable_external_access = false;
        set global allowed_configs = [{names}]::varchar[];
        set global lock_configuration = true
        """
    )
