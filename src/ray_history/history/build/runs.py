"""From events to segments: one row per attempt of a task, in Parquet files, or in a table if there is only one (of a
whole session not even that: `show_all`).

Invariants:
* events are read in batches, each into tables of their own; some batches together become a segment, merged from those
  alone. Merging is min, max and union, so order, repetition and the cut into batches and segments change nothing;
* no more than two segments' events are in memory: of the one that is merged, and of the next, which is read, or merged,
  too, if reading is quicker;
* events that are not of tasks are kept whole, in the table `rare_event`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

import duckdb

from ray_history.history.engine import Engine, Limits, give_way
from ray_history.history.events import KNOWN_TYPES, TASK_EVENTS, all_columns, rare_payload, task_columns
from ray_history.history.sql import query, text

from .event_lines import OTHERS, EventLines

_PARQUET = "(format parquet, parquet_version v2, compression uncompressed, row_group_size 6144)"
"""Of so few rows that they stay in the processor's cache until they are written."""
_LONGEST_EVENT = 4 << 20
"""Twice this is what one thread reads of a file at a time. Longer events come the careful way, with a larger limit."""
_ONLY = "only_segment"
"""The table of the only segment: writing and reading a file would take a tenth of a small session's time."""
_ORDINARY = 1.5
"""How much larger than planned a batch may be before memory is watched."""

_Found: TypeAlias = "list[tuple[str | None, int]]"
"""How many events of each type a file holds: None for what is no event."""


class Unreadable(Exception):
    """A batch holds something that is not lines of JSON objects."""


@dataclass(slots=True)
class Counts:
    """What was read."""

    events: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    """Unknown types too."""
    dropped: int = 0
    """Lines that came the careful way and still were not understood."""

    def add(self, by_type: Iterable[tuple[str, int]]) -> None:
        for name, number in by_type:
            self.by_type[name] = self.by_type.get(name, 0) + number
            self.events += number

    @property
    def unknown(self) -> dict[str, int]:
        return {name: number for name, number in self.by_type.items() if name not in KNOWN_TYPES}


@dataclass(slots=True)
class _Gathered:
    """Batches of events that become one segment together, each with a table for every file of lines."""

    tables: list[dict[str, str]] = field(default_factory=list)
    load: int = 0


class Segments:
    """Reads events into files in `directory`; used by one thread."""

    def __init__(self, engine: Engine, limits: Limits, directory: Path) -> None:
        self._engine, self._limits, self._directory = engine, limits, directory
        self._files: list[Path] = []
        self._gathered, self._batches, self._merged = _Gathered(), 0, 0
        self.counts = Counts()
        self._readers = ThreadPoolExecutor(limits.threads, "read", give_way)
        self._merging: list[Future[None]] = []
        self._is_one_table = False

    def close(self) -> None:
        self._readers.shutdown(cancel_futures=True)

    def add(self, lines: EventLines, *, careful: bool = False) -> None:
        """Read one batch of events. If it is `Unreadable` nothing of it is kept, unless `careful`: then the lines that
        cannot be read are counted and left out."""
        is_ordinary = lines.load <= self._limits.batch_bytes * _ORDINARY
        if not is_ordinary or self._gathered.load + lines.load > self._limits.segment_bytes:
            self.merge()
        if not is_ordinary:
            self._engine.be_strict()
        tables = {name: f"{name}_{self._batches}" for name in lines.files}
        counted = Counts()
        try:
            for name, found in self._read(tables, lines, careful=careful).items():
                for kind, events in found:
                    if kind is not None and name in (kind, OTHERS):
                        counted.add([(kind, events)])
                    else:  # a line that is no object has no type; one of another type was put into the wrong file
                        counted.dropped += events
            if counted.dropped and not careful:
                raise Unreadable(f"{counted.dropped} lines")
        except Unreadable:
            for table in tables.values():
                self._engine.run(f"drop table if exists {table}")
            raise
        self.counts.add(counted.by_type.items())
        self.counts.dropped += counted.dropped
        self._engine.run(
            f"""
            insert into rare_event
            select eventId, eventType, instant("timestamp"), nodeId, severity, message, rare
            from {tables[OTHERS]}
            where rare is not null
            """
        )
        self._batches += 1
        self._gathered.tables.append(tables)
        self._gathered.load += lines.load

    def _read(self, tables: dict[str, str], lines: EventLines, *, careful: bool) -> dict[str, _Found]:
        """Make a table of each file; side by side, because one alone does not keep all cores busy."""
        reading = dict[str, Future[_Found]]()
        for name, file in lines.files.items():
            reading[name] = self._readers.submit(self._read_file, tables[name], name, file, careful=careful)
            if careful:  # one after the other: room for the longest event is more than several could have
                wait([reading[name]])
        wait(reading.values())
        return {name: found.result() for name, found in reading.items()}

    def _read_file(self, table: str, name: str, file: Path, *, careful: bool) -> _Found:
        with self._engine.database.cursor() as cursor:
            try:
                ((made,),) = self._engine.run(_table_of_events(table, name, file, careful=careful), cursor)
                if name != OTHERS and not careful:
                    return [(name, made)]
                counted = table if name == OTHERS else _events(name, file, careful=True)
                return cast(
                    "_Found", self._engine.run(f"select eventType, count(*) from {counted} group by all", cursor)
                )
            except (duckdb.InvalidInputException, duckdb.ConversionException, UnicodeDecodeError) as error:
                # DuckDB's message may quote half a character of the line, and then cannot be made into an exception.
                raise Unreadable(str(error)) from None

    def merge(self) -> None:
        """Begin to make a segment of the batches read since the last one, beside the reading of the next: neither keeps
        all cores busy. Done without being asked before there are too many."""
        is_late = any(not merging.done() for merging in self._merging)
        if self._gathered.tables and is_late:  # the readers have time for this one, as nothing is read meanwhile
            self._readers.submit(self._merge_into_files, *self._taken()).result()
        self._wait()
        self._begin_merging(self._merge_into_files)

    def _begin_merging(self, merge: Callable[[list[dict[str, str]], int], None]) -> None:
        if self._gathered.tables:
            self._merging.append(self._engine.aside(merge, *self._taken()))

    def _taken(self) -> tuple[list[dict[str, str]], int]:
        """The tables of a new segment, and its number."""
        gathered, self._gathered = self._gathered, _Gathered()
        self._merged += 1
        return gathered.tables, self._merged

    def finish(self, *, is_whole: bool) -> None:
        """Begin the last segment, which may be one without a row; not the only one of a session that `is_whole`, for
        which `show_all` is quicker."""
        if not self._batches:
            nothing = EventLines(self._directory / "nothing")
            with nothing.written():
                self.add(nothing)
        if self._merged:
            self._begin_merging(self._merge_into_files)
        elif not is_whole:
            self._begin_merging(self._merge_into_table)

    def show_all(self) -> bool:
        """Make views of all events of tasks, if there is but one segment and it is yet to be merged."""
        if self._merged:
            return False
        self._show_events(self._gathered.tables, "true", self._engine.database)
        return True

    def rows(self) -> str:
        """SQL: the rows of all segments, as soon as they are there."""
        self._begin_merging(self._merge_into_table)  # if there is one left, it is the only one
        self._wait()
        if self._is_one_table:
            return f"from {_ONLY}"
        return f"from read_parquet([{', '.join(map(text, self._files))}])"

    def _wait(self) -> None:
        while self._merging:
            self._merging.pop(0).result()

    def _merge_into_table(self, batches: list[dict[str, str]], number: int) -> None:
        try:
            with self._engine.database.cursor() as cursor:
                self._show_events(batches, "true", cursor)
                self._engine.run(f"create table {_ONLY} as {query('tasks')}", cursor)
        except duckdb.OutOfMemoryException:
            self._merge_into_files(batches, number)
        else:
            self._is_one_table = True
            self._drop_later(batches)

    def _merge_into_files(self, batches: list[dict[str, str]], number: int) -> None:
        with self._engine.database.cursor() as cursor:

            def write(which: str, file: Path) -> None:
                self._show_events(batches, which, cursor)
                self._engine.run(f"copy ({query('tasks')}) to {text(file)} {_PARQUET}", cursor)

            self._files += self._engine.in_parts(self._directory / f"segment-{number}", "taskId", write)
        self._drop_later(batches)

    def _show_events(self, batches: list[dict[str, str]], which: str, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make views of the events of tasks in these batches, as far as the condition given is true."""
        for name, payload in TASK_EVENTS.items():
            rows = [f"from {tables[name]}" for tables in batches] + [
                f"select {_told(payload)} from {tables[OTHERS]} where {payload} is not null" for tables in batches
            ]
            events = f"from ({' union all '.join(rows)}) where {which}"
            self._engine.run(f"create or replace temp view {name.lower()} as {events}", cursor)

    def _drop_later(self, batches: list[dict[str, str]]) -> None:
        self._engine.aside(self._drop, itertools.chain.from_iterable(tables.values() for tables in batches))

    def _drop(self, tables: Iterable[str]) -> None:
        with self._engine.database.cursor() as cursor:
            for table in tables:
                self._engine.run(f"drop table {table}", cursor)


def _table_of_events(table: str, name: str, file: Path, *, careful: bool) -> str:
    events = _events(name, file, careful=careful)
    if name == OTHERS:
        return f"create table {table} as select * exclude (sessionName), {rare_payload()} as rare from {events}"
    astray = "false" if careful else "error('another type: ' || coalesce(eventType, 'none'))::boolean"
    return f"""
        create table {table} as
        select {_told(TASK_EVENTS[name])} from {events} where eventType = {text(name)} or {astray}
        """


def _told(payload: str) -> str:
    """SQL: what an event tells of a task; when it told it matters for few of them."""
    if payload != "taskLifecycleEvent":
        return f"{payload}.*"
    return f"""
        {payload}.*,
        case
            when {payload}.rayErrorInfo is not null or {payload}.isDebuggerPaused is not null then "timestamp"
        end as "timestamp"
        """


def _events(name: str, file: Path, *, careful: bool) -> str:
    """SQL: the events of a file. The careful way leaves out what it cannot read; the strict one fails, and is a fifth
    faster."""
    return f"""read_json({text(file)}, format = 'newline_delimited', records = true, ignore_errors = {careful},
        maximum_object_size = {_LONGEST_EVENT * 32 if careful else _LONGEST_EVENT},
        columns = {all_columns() if name == OTHERS else task_columns(TASK_EVENTS[name])})"""
