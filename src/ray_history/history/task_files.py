"""The files of the tasks table: `tasks.parquet`, and `tasks_delta.parquet` with newer rows of the same attempts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ray_history.history.sql import text

TASKS, DELTA = "tasks.parquet", "tasks_delta.parquet"
PLACES = "task_places.parquet"
"""The number of each task's row in `tasks.parquet`."""
COUNTS = "task_counts.parquet"


def observed_tasks(directory: Path, places: Sequence[int] | None = None) -> str:
    """SQL: all rows of tasks in a directory; of `tasks.parquet` only those with the given numbers, if any are given."""
    return with_delta(directory / TASKS, directory / DELTA, places)


def first_tasks(directory: Path, count: int) -> str | None:
    """SQL: the first rows of `observed_tasks`, at least `count` of them; None if they are not the first of a file."""
    if (directory / DELTA).exists():
        return None
    return _rows_at(directory / TASKS, f"file_row_number < {count}")


def with_delta(base: Path, delta: Path, places: Sequence[int] | None = None) -> str:
    """SQL: the rows of both files. Rows of the delta, if there is one, replace the older ones of the same attempt."""
    if places is None:
        rows = f"from read_parquet({text(base)})"
    else:
        rows = _rows_at(base, " or ".join(f"file_row_number = {place}" for place in places) or "false")
    if not delta.exists():
        return rows
    return f"""
        select base.* from ({rows}) as base
        anti join read_parquet({text(delta)}) as delta using (task_id, attempt_number)
        union all by name
        from read_parquet({text(delta)})
        """


def _rows_at(file: Path, condition: str) -> str:
    """SQL: rows by number; the reader skips row groups without any of them."""
    rows = f"read_parquet({text(file)}, file_row_number = true)"
    return f"select * exclude (file_row_number) from {rows} where {condition}"
