"""The database that builds indexes: DuckDB within limits, at low priority, and cancellable at any time."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import duckdb

from .sealing import seal
from .sql import text

NICE_INCREMENT = 5
"""The niceness of building threads, as for nice(2)."""

MEMORY_SLACK = 2
"""DuckDB returns freed memory to the system as soon as it would not fit under its limit, and then takes it anew, page
by page. With the limit that ordinary events need, this takes a fifth of all processor time. Reading ordinary events
stays far below twice the memory of a build, whatever the limit is."""

_PARTS_FACTOR, _MAX_PARTS = 4, 256

OUT_OF_MEMORY = (duckdb.OutOfMemoryException, MemoryError)
"""What a build raises when its memory limit does not suffice."""

Database: TypeAlias = duckdb.DuckDBPyConnection

_Result = TypeVar("_Result")


class Cancelled(Exception):
    """The build was cancelled."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a build may use."""

    memory: int = 1 << 30
    threads: int = 2
    runs: int = 3
    """Runs whose JSON is as large as the memory."""

    @property
    def frugal(self) -> Limits:
        """For a session that does not fit otherwise: each thread has rows in memory."""
        return replace(self, threads=1, runs=2 * self.runs)

    @property
    def run_bytes(self) -> int:
        """JSON per run: its events take half of that in memory, and merging them about as much again."""
        return self.memory // self.runs

    @property
    def batch_bytes(self) -> int:
        """JSON per batch; the next one is downloaded and unpacked while it is read."""
        return self.run_bytes // self.runs


def open_database(threads: int) -> Database:
    """A database for `Engine`. It takes as long as all reading in a small session, so a server has one ready."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": max(1, threads // 2),
        "preserve_insertion_order": False,
        "disabled_optimizers": "join_order,statistics_propagation",  # the queries are written in the right order
    }
    with ThreadPoolExecutor(1, "build-open", lower_priority) as starter:  # DuckDB's threads inherit its priority
        database = starter.submit(lambda: duckdb.connect(config=config)).result()
    database.execute("set enable_progress_bar = false")
    return database


class Engine:
    """A database for several threads, each with its own cursor.

    Until `use_all_cores`, DuckDB uses half of the cores: while events are read, several statements run side by side and
    keep the other half busy. More threads would only contend, which takes a tenth of all processor time.
    """

    def __init__(self, database: Database, limits: Limits, spill: Path, *directories: Path) -> None:
        """`database` is from `open_database`; `directories` are those whose files the statements use."""
        self._limits, self._cancelled = limits, False
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self._background = ThreadPoolExecutor(1, "build", lower_priority)
        self.database = database
        self.execute(
            f"""
            set memory_limit = '{limits.memory * MEMORY_SLACK >> 20}MB';
            set temp_directory = {text(spill)}
            """
        )
        seal(database, *directories, changeable=("threads", "memory_limit"))
        self._has_strict_limit = False

    def execute(self, sql: str, cursor: duckdb.DuckDBPyConnection | None = None) -> list[tuple[Any, ...]]:
        """The rows of the last of these statements. Statements of several threads run at the same time."""
        if self._cancelled:
            raise Cancelled
        running = cursor or self.database
        self._running.add(running)
        try:
            return running.execute(sql).fetchall()
        except duckdb.InterruptException:
            raise Cancelled from None
        except duckdb.IOException as error:
            for full in (errno.ENOSPC, errno.EDQUOT):  # DuckDB names the cause in the message only
                if os.strerror(full) in str(error):
                    raise OSError(full, os.strerror(full)) from error
            raise
        finally:
            self._running.discard(running)

    def submit(self, work: Callable[..., _Result], *arguments: object) -> Future[_Result]:
        """Run something in the background, after what was submitted before."""
        return self._background.submit(work, *arguments)

    def write_in_parts(self, stem: Path, key: str, write: Callable[[str, Path], None]) -> list[Path]:
        """Write rows to a file, or to several if one takes too much memory.

        `write` gets a condition and a file: it writes the rows that meet the condition, which is on a hash of the key.
        """
        parts = 1
        while True:
            files = [stem.with_name(f"{stem.name}-{part}-of-{parts}.parquet") for part in range(parts)]
            try:
                for part, file in enumerate(files):
                    write(f"hash({key}) % {parts} = {part}" if parts > 1 else "true", file)
            except duckdb.OutOfMemoryException:
                if parts == _MAX_PARTS:
                    raise
                parts *= _PARTS_FACTOR
            else:
                return files

    def use_all_cores(self) -> None:
        """Use all cores for each statement from now on."""
        with ThreadPoolExecutor(1, "build-cores", lower_priority) as starter:  # new threads inherit its priority
            starter.submit(self.execute, f"set threads = {self._limits.threads}").result()

    def enforce_memory_limit(self) -> None:
        """Stay within the given memory from now on, even if that is slow: the next statements may need any amount."""
        if not self._has_strict_limit:
            # Submitted, to wait for what runs in the background.
            self.submit(self.execute, f"set memory_limit = '{self._limits.memory * 3 // 4 >> 20}MB'").result()
            self._has_strict_limit = True

    def cancel(self) -> None:
        """Make running and later statements raise `Cancelled`. Can be called from any thread."""
        self._cancelled = True
        for running in list(self._running):
            running.interrupt()

    def close(self) -> None:
        self._background.shutdown(cancel_futures=True)
        threading.Thread(target=self.database.close, name="close").start()  # freeing the memory takes long


def lower_priority() -> None:
    """Let threads that answer requests, or download event files, run before this one and the threads it starts."""
    if sys.platform == "linux":  # elsewhere it would slow down the whole process
        os.nice(max(0, NICE_INCREMENT - os.nice(0)))
