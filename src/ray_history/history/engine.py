"""The database that builds: DuckDB within limits, with threads that give way to all others, ended at any time."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb

_MODESTY = 5
"""How much nicer, in the sense of nice(2), the threads that build are."""

_LOOSE = 2
"""DuckDB gives back to the system what it freed as soon as that would not fit under its limit any more, and then takes
it anew, page by page: a fifth of all processor time where the limit is what ordinary events need. Reading those stays
far below a limit of twice the memory that a build may use, whatever the limit is."""

_MORE_PARTS, _MOST_PARTS = 4, 256

_Result = TypeVar("_Result")


class Cancelled(Exception):
    """The build was stopped."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a build may use."""

    memory: int = 1 << 30
    threads: int = 2

    @property
    def segment_bytes(self) -> int:
        """JSON per segment: its events in memory take half of that, merging them about as much again."""
        return self.memory // 3

    @property
    def batch_bytes(self) -> int:
        """JSON read at once, while the next batch is fetched and unpacked."""
        return self.segment_bytes // 3


class Engine:
    """Used by several threads, each with a cursor of its own.

    Half of the cores work for whichever statement there is, until `use_all_cores`: while events are read several run
    side by side, and keep the other half busy themselves. More would only get in each other's way, which takes a tenth
    of all processor time.
    """

    def __init__(self, limits: Limits, spill: Path) -> None:
        self._limits, self._cancelled = limits, False
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self._aside = ThreadPoolExecutor(1, "build", give_way)
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{limits.memory * _LOOSE >> 20}MB",
            "threads": max(1, limits.threads // 2),
            "temp_directory": str(spill),
            "preserve_insertion_order": False,
            "disabled_optimizers": "join_order,statistics_propagation",  # our queries say how to go about it
        }
        # Its threads are as modest as the one that starts them.
        self.database = self.aside(lambda: duckdb.connect(config=config)).result()
        self.run("set enable_progress_bar = false")
        self._is_strict = False

    def run(self, sql: str, cursor: duckdb.DuckDBPyConnection | None = None) -> list[tuple[Any, ...]]:
        """The rows of the last of these statements; those of several threads run at the same time."""
        if self._cancelled:
            raise Cancelled
        running = cursor or self.database
        self._running.add(running)
        try:
            return running.execute(sql).fetchall()
        except duckdb.InterruptException:
            raise Cancelled from None
        except duckdb.IOException as error:
            for full in (errno.ENOSPC, errno.EDQUOT):  # in DuckDB's words that is but one of many errors
                if os.strerror(full) in str(error):
                    raise OSError(full, os.strerror(full)) from error
            raise
        finally:
            self._running.discard(running)

    def aside(self, work: Callable[..., _Result], *arguments: object) -> Future[_Result]:
        """Do something beside the rest, one thing after the other."""
        return self._aside.submit(work, *arguments)

    def in_parts(self, stem: Path, key: str, write: Callable[[str, Path], None]) -> list[Path]:
        """Have one file written of all rows; if that takes too much memory, several, each of the rows for which the
        condition given is true: in ever more parts, by a hash of the key."""
        parts = 1
        while True:
            files = [stem.with_name(f"{stem.name}-{part}-of-{parts}.parquet") for part in range(parts)]
            try:
                for part, file in enumerate(files):
                    write(f"hash({key}) % {parts} = {part}" if parts > 1 else "true", file)
            except duckdb.OutOfMemoryException:
                if parts == _MOST_PARTS:
                    raise
                parts *= _MORE_PARTS
            else:
                return files

    def use_all_cores(self) -> None:
        """From now on, for one statement after the other."""
        with ThreadPoolExecutor(1, "modest", give_way) as modest:  # the threads that this starts are like it
            modest.submit(self.run, f"set threads = {self._limits.threads}").result()

    def be_strict(self) -> None:
        """After all that is to be done aside, keep within the memory given, at any cost: what comes may need any
        amount."""
        if not self._is_strict:
            self.aside(self.run, f"set memory_limit = '{self._limits.memory * 3 // 4 >> 20}MB'").result()
            self._is_strict = True

    def cancel(self) -> None:
        """From any thread: whatever runs raises `Cancelled`."""
        self._cancelled = True
        for running in list(self._running):
            running.interrupt()

    def close(self) -> None:
        self._aside.shutdown(cancel_futures=True)
        threading.Thread(target=self.database.close, name="close").start()  # giving memory back takes its time


def give_way() -> None:
    """Let threads that answer people, or fetch what is to be built next, go before this one and those it starts."""
    if sys.platform == "linux":  # elsewhere it would slow down the whole process
        os.nice(_MODESTY)
