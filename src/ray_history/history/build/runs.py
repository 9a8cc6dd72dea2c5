"""From events to runs: one row per attempt of a task, in Parquet files, or in a table if there is only one run.

Invariants:
* events are read in batches, each into its own tables. Several batches become a run, which is merged from them alone.
  Merging is min, max and union, so order, repetition and the division into batches and runs change nothing;
* the events of at most two runs are in memory: of the one that is merged, and of the next one, which is read meanwhile,
  or merged too if reading is faster;
* events that are not about tasks are stored as they are, in the table `rare_event`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

import duckdb

from ray_history.history.engine import Engine, Limits, lower_priority
from ray_history.history.events import TASK_EVENTS, TASK_PAYLOADS, all_columns, rare_payload, task_columns
from ray_history.history.sql import query, text

from .event_lines import OTHERS, EventLines

_PARQUET = "(format parquet, parquet_version v2, compression uncompressed, row_group_size 6144)"
"""Row groups are so small that they stay in the processor's cache until they are written."""
_MAX_EVENT = 4 << 20
"""DuckDB reads twice this at a time, in each thread. Longer events are read leniently, with a larger limit."""
_ONLY_RUN = "only_run"
"""The table of the only run: writing and reading a file would take a tenth of a small session's time."""
_BATCH_TOLERANCE = 1.5
"""How much larger than planned a batch may be before the memory limit is enforced."""

_EventCounts: TypeAlias = "list[tuple[str | None, int]]"
"""The number of events of each type in a file; None is the type of lines that are not events."""


class Unreadable(Exception):
    """A batch contains something else than lines of JSON objects."""


@dataclass(slots=True)
class Counts:
    """The events that were read."""

    events: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    """Unknown types included."""
    dropped: int = 0
    """Lines that could not be read, even leniently."""

    def add(self, by_type: Iterable[tuple[str, int]]) -> None:
        for name, number in by_type:
            if not number:
                continue
            self.by_type[name] = self.by_type.get(name, 0) + number
            self.events += number


@dataclass(slots=True)
class _Batches:
    """Batches of events that become one run, each with a table for every file of lines."""

    tables: list[dict[str, str]] = field(default_factory=list)
    load: int = 0


class Runs:
    """Reads events into files in `directory`. For one thread."""

    def __init__(self, engine: Engine, limits: Limits, directory: Path) -> None:
        self._engine, self._limits, self._directory = engine, limits, directory
        self._files: list[Path] = []
        self._pending, self._batches, self._merged = _Batches(), 0, 0
        self.counts = Counts()
        self._readers = ThreadPoolExecutor(limits.threads, "read", lower_priority)
        self._merging: list[Future[None]] = []
        self._is_one_table = False

    def close(self) -> None:
        self._readers.shutdown(cancel_futures=True)

    def add(self, lines: EventLines, *, lenient: bool = False) -> None:
        """Read one batch of events. Nothing of an `Unreadable` batch is kept; if `lenient`, lines that cannot be read
        are counted and left out instead."""
        is_ordinary = lines.load <= self._limits.batch_bytes * _BATCH_TOLERANCE
        if not is_ordinary or self._pending.load + lines.load > self._limits.run_bytes:
            self.merge()
        if not is_ordinary:
            self._engine.enforce_memory_limit()
        tables = {name: f"{name}_{self._batches}" for name in lines.files}
        try:
            counts = _counted(self._read(tables, lines, lenient=lenient))
            if counts.dropped and not lenient:
                raise Unreadable(f"{counts.dropped} lines")
        except Unreadable:
            for table in tables.values():
                self._engine.execute(f"drop table if exists {table}")
            raise
        self.counts.add(counts.by_type.items())
        self.counts.dropped += counts.dropped
        self._engine.execute(
            f"""
            insert into rare_event
            select eventId, eventType, to_ns("timestamp"), nodeId, severity, message, rare
            from {tables[OTHERS]}
            where rare is not null
            """
        )
        self._batches += 1
        self._pending.tables.append(tables)
        self._pending.load += lines.load

    def _read(self, tables: dict[str, str], lines: EventLines, *, lenient: bool) -> dict[str, _EventCounts]:
        """Make a table of each file, several at a time: one alone does not keep all cores busy."""
        reading = dict[str, Future[_EventCounts]]()
        for name, file in lines.files.items():
            reading[name] = self._readers.submit(self._read_file, tables[name], name, file, lenient=lenient)
            if lenient:  # one at a time: several would not have room for the longest event
                wait([reading[name]])
        wait(reading.values())
        return {name: read.result() for name, read in reading.items()}

    def _read_file(self, table: str, name: str, file: Path, *, lenient: bool) -> _EventCounts:
        with self._engine.database.cursor() as cursor:
            try:
                ((rows,),) = self._engine.execute(_create_event_table(table, name, file, lenient=lenient), cursor)
                if name != OTHERS and not lenient:
                    return [(name, rows)]
                counted = table if name == OTHERS else _events(name, file, lenient=True)
                return cast(
                    "_EventCounts",
                    self._engine.execute(f"select eventType, count(*) from {counted} group by all", cursor),
                )
            except (duckdb.InvalidInputException, duckdb.ConversionException, UnicodeDecodeError) as error:
                # DuckDB's message may quote half a character of the line; it then raises UnicodeDecodeError.
                raise Unreadable(str(error)) from None

    def merge(self) -> None:
        """Start to merge the batches read since the last call into a run, while the next ones are read: neither keeps
        all cores busy. `add` calls it before the batches become too many."""
        is_late = any(not merging.done() for merging in self._merging)
        if self._pending.tables and is_late:  # nothing is read meanwhile, so the readers have time for this run
            self._readers.submit(self._merge_into_files, *self._take_pending()).result()
        self._wait()
        self._start_merging(self._merge_into_files)

    def _start_merging(self, merge: Callable[[list[dict[str, str]], int], None]) -> None:
        if self._pending.tables:
            self._merging.append(self._engine.submit(merge, *self._take_pending()))

    def _take_pending(self) -> tuple[list[dict[str, str]], int]:
        """The tables of the next run, and its number."""
        pending, self._pending = self._pending, _Batches()
        self._merged += 1
        return pending.tables, self._merged

    def finish(self, *, is_complete: bool) -> None:
        """Start to merge the last run, which may have no rows. If these are all events of a session, its only run is
        left to `create_event_views`, which is faster."""
        if not self._batches:
            empty = EventLines(self._directory / "empty")
            with empty.writing():
                self.add(empty)
        if self._merged:
            self._start_merging(self._merge_into_files)
        elif not is_complete:
            self._start_merging(self._merge_into_table)

    def create_event_views(self) -> bool:
        """Create views of all events of tasks, if there is only one run and it is not merged yet."""
        if self._merged:
            return False
        self._create_event_views(self._pending.tables, "true", self._engine.database)
        return True

    def rows(self) -> str:
        """SQL: the rows of all runs, once they are merged."""
        self._start_merging(self._merge_into_table)  # a pending run is the only one
        self._wait()
        if self._is_one_table:
            return f"from {_ONLY_RUN}"
        return f"from read_parquet([{', '.join(map(text, self._files))}])"

    def _wait(self) -> None:
        while self._merging:
            self._merging.pop(0).result()

    def _merge_into_table(self, batches: list[dict[str, str]], number: int) -> None:
        try:
            with self._engine.database.cursor() as cursor:
                self._create_event_views(batches, "true", cursor)
                self._engine.execute(f"create table {_ONLY_RUN} as {query('tasks/run')}", cursor)
        except duckdb.OutOfMemoryException:
            self._merge_into_files(batches, number)
        else:
            self._is_one_table = True
            self._drop_later(batches)

    def _merge_into_files(self, batches: list[dict[str, str]], number: int) -> None:
        with self._engine.database.cursor() as cursor:

            def write(condition: str, file: Path) -> None:
                self._create_event_views(batches, condition, cursor)
                self._engine.execute(f"copy ({query('tasks/run')}) to {text(file)} {_PARQUET}", cursor)

            self._files += self._engine.write_in_parts(self._directory / f"run-{number}", "taskId", write)
        self._drop_later(batches)

    def _create_event_views(
        self, batches: list[dict[str, str]], condition: str, cursor: duckdb.DuckDBPyConnection
    ) -> None:
        """Create views of the task events in these batches that meet the condition."""
        for name, payload in TASK_EVENTS.items():
            rows = [f"from {tables[name]}" for tables in batches] + [
                f"select {_fields(payload)} from {tables[OTHERS]} where {payload} is not null" for tables in batches
            ]
            events = f"from ({' union all '.join(rows)}) where {condition}"
            self._engine.execute(f"create or replace temp view {name.lower()} as {events}", cursor)

    def _drop_later(self, batches: list[dict[str, str]]) -> None:
        self._engine.submit(self._drop, itertools.chain.from_iterable(tables.values() for tables in batches))

    def _drop(self, tables: Iterable[str]) -> None:
        with self._engine.database.cursor() as cursor:
            for table in tables:
                self._engine.execute(f"drop table {table}", cursor)


def _counted(files: dict[str, _EventCounts]) -> Counts:
    """Events by type; in the file of another type, or without a type, they do not count."""
    counts = Counts()
    for name, events in files.items():
        for event_type, number in events:
            if event_type is not None and name in (event_type, OTHERS):
                counts.add([(event_type, number)])
            else:
                counts.dropped += number
    return counts


def _create_event_table(table: str, name: str, file: Path, *, lenient: bool) -> str:
    events = _events(name, file, lenient=lenient)
    if name == OTHERS:
        return f"create table {table} as select * exclude (sessionName), {rare_payload()} as rare from {events}"
    other_type = "false" if lenient else "error('another type: ' || coalesce(eventType, 'none'))::boolean"
    return f"""
        create table {table} as
        select {_fields(TASK_EVENTS[name])} from {events} where eventType = {text(name)} or {other_type}
        """


def _fields(payload: str) -> str:
    """SQL: the columns of an event of a task. Its time is needed only for errors and pauses, which are rare."""
    dated = [name for name in ("rayErrorInfo", "isDebuggerPaused") if name in TASK_PAYLOADS[payload]]
    if not dated:
        return f"{payload}.*"
    is_dated = " or ".join(f"{payload}.{name} is not null" for name in dated)
    return f'{payload}.*, case when {is_dated} then "timestamp" end as "timestamp"'


def _events(name: str, file: Path, *, lenient: bool) -> str:
    """SQL: the events of a file. Lenient reading skips lines that it cannot read; strict reading fails, and is a fifth
    faster."""
    return f"""read_json({text(file)}, format = 'newline_delimited', records = true, ignore_errors = {lenient},
        maximum_object_size = {_MAX_EVENT * 32 if lenient else _MAX_EVENT},
        columns = {all_columns() if name == OTHERS else task_columns(TASK_EVENTS[name])})"""
