"""The rows of a query as a Parquet file, in pieces.

The query writes to a pipe, so the file is never on disk, and never whole in memory.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb

from ray_history.history.sql import text

PIPES = Path("/dev/fd")
"""Where queries write to."""

_PIECE = 1 << 20
_ROW_GROUP = 20_480
"""Rows in memory; a sixth of DuckDB's default, because rows of tasks are wide."""


def in_parquet(cursor: duckdb.DuckDBPyConnection, sql: str) -> Iterator[bytes]:
    """The pieces of the file. Closing the generator ends the query."""
    reading, writing = os.pipe()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            cursor.execute(
                f"copy ({sql}) to {text(PIPES / str(writing))} "
                f"(format parquet, compression zstd, row_group_size {_ROW_GROUP}, preserve_order false, "
                "use_tmp_file false)"
            )
        except BaseException as error:  # noqa: BLE001  # raised again by the reader
            failures.append(error)
        finally:
            os.close(writing)

    writer = threading.Thread(target=write, name="parquet")
    writer.start()
    try:
        while piece := os.read(reading, _PIECE):
            yield piece
    finally:
        # Repeatedly: an interrupt before the query starts has no effect. Keep reading, or the query blocks on the pipe.
        while writer.is_alive():
            cursor.interrupt()
            if select.select([reading], [], [], 0.02)[0]:
                os.read(reading, _PIECE)
        os.close(reading)
    if failures:
        raise failures[0]
