"""From event files to the tables of a session, as Parquet files in one directory.

Invariants:
* events are read in batches; some batches become a segment: one row per attempt of a task, merged from those alone.
  Merging is min, max and union, so order, repetition and the cut into batches and segments never change the tables;
* at the end only attempts found in several segments are merged again; all rows are judged (see judged_tasks.sql);
* rare events and documents are kept whole, without repetition: the small tables are queries over them, so that they can
  be asked again for any moment;
* memory stays within the limit given, whatever the number of events: DuckDB spills into the directory;
* building upon the directory of an earlier build gives the same tables as building from all files, at the cost of the
  new ones: rows that new events touch, or that may be judged anew, go to `tasks_delta` and hide those in `tasks`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import duckdb

from .event_lines import OTHERS, EventLines
from .events import KNOWN_TYPES, TASK_EVENTS, all_columns, rare_payload, task_columns
from .sql import query, query_at, text

SMALL_TABLES = ("nodes", "workers", "actors", "jobs", "placement_groups", "runtime_envs", "cluster_events")
"""In the order in which they can be made: workers, actors and jobs look up their node."""

NOW = 2**63 - 1
"""The moment after everything."""

_SEGMENT = "(format parquet, parquet_version v2, compression uncompressed, row_group_size 20000)"
_PARQUET = "(format parquet, parquet_version v2, compression zstd, compression_level 1, row_group_size 20000)"
_LONGEST_EVENT = 4 << 20
"""Twice this is what one thread reads of a file at a time. Longer events come the careful way, with a larger limit."""
_MODESTY = 5
"""How much nicer, in the sense of nice(2), the threads that build are."""
_TASKS, _PLACES = "tasks.parquet", "task_places.parquet"
_COMPACT_FROM = 0.2
"""The part of all rows that the delta may have before everything is written anew: it slows each query."""

_MOST_COUNTS = 100_000
"""Names can be as many as tasks; counting them ahead then saves nothing, and is left."""


_Found: TypeAlias = "list[tuple[str | None, int]]"
"""How many events of each type a file holds: None for what is no event."""


class Unreadable(Exception):
    """A batch holds something that is not lines of JSON objects."""


class Cancelled(Exception):
    """The build was stopped by `Builder.cancel`."""


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
    bytes: int = 0


def define_words(database: duckdb.DuckDBPyConnection) -> None:
    """Teach a database with the tables `rare_event` and `document` the words of the queries."""
    for words in ("words", "death_causes"):
        database.execute(query(words))


def observed_tasks(directory: Path, places: Sequence[int] | None = None) -> str:
    """SQL: all rows of tasks in a directory; with `places`, of those in `tasks.parquet` only the rows there."""
    return _with_delta(directory / _TASKS, directory / "tasks_delta.parquet", places)


def _with_delta(base: Path, delta: Path, places: Sequence[int] | None = None) -> str:
    """SQL: rows of both files; those of the delta, if there is one, hide the older ones of the same attempt."""
    if places is None:
        rows = f"from read_parquet({text(base)})"
    else:  # each place makes the reader skip all but one group of rows
        where = " or ".join(f"file_row_number = {place}" for place in places) or "false"
        rows = f"""
            select * exclude (file_row_number) from read_parquet({text(base)}, file_row_number = true) where {where}
            """
    if not delta.exists():
        return rows
    return f"""
        select base.* from ({rows}) as base
        anti join read_parquet({text(delta)}) as delta using (task_id, attempt_number)
        union all by name
        from read_parquet({text(delta)})
        """


class Builder:
    """Builds the tables of one session in `directory`, upon those in `base` if given; used by one thread, except for
    `cancel`."""

    def __init__(self, directory: Path, limits: Limits, base: Path | None = None) -> None:
        self._directory, self._limits, self._base = directory, limits, base
        self.work = directory / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self._segments: list[Path] = []
        self._gathered, self._batches = _Gathered(), 0
        self._cancelled = False
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self.counts = Counts()
        self._readers = ThreadPoolExecutor(limits.threads, "read", _give_way)
        self._merger = ThreadPoolExecutor(1, "merge", _give_way)
        self._merging: list[Future[None]] = []
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{limits.memory * 3 // 4 >> 20}MB",
            "threads": limits.threads,
            "temp_directory": str(self.work / "spill"),
            "preserve_insertion_order": False,
            "disabled_optimizers": "join_order,statistics_propagation",  # our queries say how to go about it
        }
        # Its threads are as modest as the one that starts them.
        self._database = self._merger.submit(lambda: duckdb.connect(config=config)).result()
        self._run("set enable_progress_bar = false")
        self._run(
            """
            create table rare_event (
                event_id varchar, event_type varchar, event_ns bigint, node_id varchar, severity varchar,
                message varchar, body json
            );
            create table document (source varchar, name varchar, node_id varchar, body json);
            """
        )
        define_words(self._database)

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        for threads in (self._readers, self._merger):
            threads.shutdown(cancel_futures=True)
        shutil.rmtree(self.work, ignore_errors=True)
        threading.Thread(target=self._database.close, name="close").start()  # giving memory back takes its time

    def cancel(self) -> None:
        """From any thread: whatever runs raises `Cancelled`."""
        self._cancelled = True
        for running in list(self._running):
            running.interrupt()

    def add(self, lines: EventLines, *, careful: bool = False) -> None:
        """Read one batch of events. If it is `Unreadable` nothing of it is kept, unless `careful`: then the lines that
        cannot be read are counted and left out."""
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
                self._run(f"drop table if exists {table}")
            raise
        self.counts.add(counted.by_type.items())
        self.counts.dropped += counted.dropped
        self._run(
            f"""
            insert into rare_event
            select eventId, eventType, instant("timestamp"), nodeId, severity, message, rare
            from {tables[OTHERS]}
            where rare is not null
            """
        )
        self._batches += 1
        self._gathered.tables.append(tables)
        self._gathered.bytes += sum(file.stat().st_size for file in lines.files.values())
        if self._gathered.bytes + self._limits.batch_bytes > self._limits.segment_bytes:
            self.merge()

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
        with self._database.cursor() as cursor:
            try:
                self._rows(_table_of_events(table, name, file, careful=careful), cursor)
            except (duckdb.InvalidInputException, duckdb.ConversionException, UnicodeDecodeError) as error:
                # DuckDB's message may quote half a character of the line, and then cannot be made into an exception.
                raise Unreadable(str(error)) from None
            counted = self._rows(f"select eventType, count(*) from {table} group by all", cursor)
            return cast("_Found", counted)

    def merge(self) -> None:
        """Begin to make a segment of the batches read since the last one, beside the reading of the next: neither keeps
        all cores busy. Done without being asked as soon as they are enough."""
        self._wait()  # no more than two segments in memory: one that is merged, one that is read
        self._begin_merging()

    def _begin_merging(self) -> None:
        if self._gathered.tables:
            gathered, self._gathered = self._gathered, _Gathered()
            self._segments.append(self.work / f"segment-{len(self._segments)}.parquet")
            self._merging.append(self._merger.submit(self._merge, gathered.tables, self._segments[-1]))

    def _merge(self, batches: list[dict[str, str]], segment: Path) -> None:
        with self._database.cursor() as cursor:
            for name, payload in TASK_EVENTS.items():
                parts = [f"from {tables[name]}" for tables in batches] + [
                    f'select eventType, "timestamp", {payload}.* from {tables[OTHERS]} where {payload} is not null'
                    for tables in batches
                ]
                self._rows(f"create or replace temp view {name.lower()} as {' union all '.join(parts)}", cursor)
            self._rows(f"copy ({query('tasks')}) to {text(segment)} {_SEGMENT}", cursor)
            for table in itertools.chain.from_iterable(tables.values() for tables in batches):
                self._rows(f"drop table {table}", cursor)

    def _wait(self) -> None:
        while self._merging:
            self._merging.pop(0).result()

    def add_documents(self, file: Path) -> None:
        """Take what is no exported event: lines of {source, name, node_id, body}. Upon a base: all of them again."""
        self._run(
            f"""
            insert into document
            select * from read_json({text(file)}, format = 'newline_delimited', records = true,
                maximum_object_size = {_LONGEST_EVENT * 16},
                columns = {{source: 'VARCHAR', name: 'VARCHAR', node_id: 'VARCHAR', body: 'JSON'}})
            """
        )

    def finish(self) -> dict[str, Any]:
        """Write all tables; returns the facts."""
        if not self._batches:
            nothing = EventLines(self.work / "nothing")
            with nothing.written():
                self.add(nothing)
        self._begin_merging()
        self._make_small_tables()
        others = self._merger.submit(self._make_other_tables)
        self._wait()
        segments = ", ".join(f"{text(segment)}" for segment in self._segments)
        self._run(f"create view segment as from read_parquet([{segments}])")
        if self._base is None:
            self._make_tasks()
        else:
            self._extend_tasks(self._base)
        others.result()
        places = self._merger.submit(self._make_task_places)
        self._run(f"create view observed_tasks as {observed_tasks(self._directory)}")
        self._make_task_counts()
        self._run(f"create temp table facts as {query('facts')}")
        self._run(f"copy facts to {text(self._directory / 'facts.parquet')} {_PARQUET}")
        places.result()
        facts = self._database.execute("from facts")
        names = [column[0] for column in facts.description or ()]
        return dict(zip(names, cast("tuple[Any, ...]", facts.fetchone()), strict=True))

    def row_counts(self) -> dict[str, int]:
        """Rows of each table, once they are written."""
        counted = self._rows(
            f"""
            select parse_filename(file_name, true), num_rows
            from parquet_file_metadata({text(self._directory / "*.parquet")})
            order by all
            """
        )
        return dict(cast("list[tuple[str, int]]", counted))

    def _make_small_tables(self) -> None:
        if self._base is not None:
            self._run(f"insert into rare_event from read_parquet({text(self._base / 'rare_events.parquet')})")
        self._run(
            """
            create or replace table rare_event as
            select distinct on (event_id, body::varchar) * from rare_event;
            create or replace table document as
            select distinct on (source, name, node_id, body::varchar) * from document;
            """
        )
        self._run(f"copy rare_event to {text(self._directory / 'rare_events.parquet')} {_PARQUET}")
        self._run(f"copy document to {text(self._directory / 'documents.parquet')} {_PARQUET}")
        self._make_small_table("nodes")
        self._run("create macro nodes_at(moment) as table from nodes")  # the others look them up
        for name in ("workers", "jobs"):  # judging tasks needs these
            self._make_small_table(name)
        self._run(
            """
            create temp table dead_worker as
            select
                worker_id,
                end_time_ms::bigint * 1000000 as end_ns,
                (list_position(
                    ['SYSTEM_ERROR', 'INTENDED_SYSTEM_EXIT', 'USER_ERROR', 'INTENDED_USER_EXIT', 'NODE_OUT_OF_MEMORY'],
                    exit_type
                ) - 1)::varchar as exit_number,
                exit_detail
            from workers
            where end_time_ms > 0;
            create temp table worker_host as select worker_id, node_id from workers where worker_type = 'WORKER';
            create temp table ended_job as  -- all drivers: a submission may have started several
            select hex_id(body->>'jobId', 4) as job_id, min(instant(step->>'timestamp')) as end_ns
            from steps('DRIVER_JOB_LIFECYCLE_EVENT')
            where step->>'state' = 'FINISHED'
            group by all;
            """
        )

    def _make_other_tables(self) -> None:
        with self._database.cursor() as cursor:
            for name in ("actors", "placement_groups", "runtime_envs", "cluster_events"):
                self._make_small_table(name, cursor)

    def _make_small_table(self, name: str, cursor: duckdb.DuckDBPyConnection | None = None) -> None:
        self._rows(f"create table {name} as {query_at(name, NOW)}", cursor)
        self._rows(f"copy {name} to {text(self._directory / f'{name}.parquet')} {_PARQUET}", cursor)

    def _make_tasks(self) -> None:
        # Not only in several segments: an id may be written in two ways.
        self._run(
            """
            create temp table straddling as
            select task_id, attempt_number from segment group by all having count(*) > 1;
            create temp table defined_task as
            select distinct task_id from segment
            where type is not null and task_id in (select task_id from segment where type is null);
            """
        )
        if not self._rows("from straddling limit 1"):  # nothing to merge: planning it would take a small session's time
            self._judge_into("tasks", "from segment")
            return
        several = "select segment.* from segment semi join straddling using (task_id, attempt_number)"
        self._judge_into(
            "tasks",
            f"""
            select segment.* from segment anti join straddling using (task_id, attempt_number)
            union all by name (with part as ({several}) {query("merged_tasks")})
            """,
        )

    def _extend_tasks(self, base: Path) -> None:
        """Rows to judge: those new events touch, those that were not ended by an event, those in the old delta."""
        delta = base / "tasks_delta.parquet"
        old_delta = f"from read_parquet({text(delta)})" if delta.exists() else "from segment where false"
        self._run(f"create view old as {observed_tasks(base)}")
        self._run(
            f"""
            create temp table touched as
            select distinct task_id, attempt_number from segment
            union
            select task_id, attempt_number from old
            where is_forced or is_implied or not is_defined or state not in ('FINISHED', 'FAILED')
            union
            select task_id, attempt_number {old_delta};
            create temp table defined_task as
            select task_id from (
                select task_id, type is not null as is_defined from segment
                union all
                select task_id, is_defined from old
            )
            group by task_id
            having bool_or(is_defined) and not bool_and(is_defined);
            create view judged as select old.* from old semi join touched using (task_id, attempt_number);
            """
        )
        self._judge_into(
            "tasks_delta",
            f"with part as (from segment union all by name ({query('told_tasks')})) {query('merged_tasks')}",
        )
        new, total = self._rows(
            f"select (select count(*) from {text(self._directory / 'tasks_delta.parquet')}), (select count(*) from old)"
        )[0]
        if new > total * _COMPACT_FROM:
            self._compact(base)
            return
        for name in (_TASKS, _PLACES):
            _link(base / name, self._directory / name)

    def _make_task_places(self) -> None:
        """Where each task is in `tasks.parquet`: one among a million is found without looking through them."""
        places = self._directory / _PLACES
        if places.exists():  # of the base, whose tasks are these
            return
        with self._database.cursor() as cursor:
            self._rows(
                f"""
                copy (
                    select md5_number_lower(lower(task_id)) as task, file_row_number::uinteger as place
                    from read_parquet({text(self._directory / _TASKS)}, file_row_number = true)
                    order by task
                ) to {text(places)} {_PARQUET}
                """,
                cursor,
            )

    def _make_task_counts(self) -> None:
        self._run(f"create temp table task_counts as {query('task_counts')}")
        ((rows,),) = self._rows("select count(*) from task_counts")
        if rows <= _MOST_COUNTS:
            self._run(f"copy task_counts to {text(self._directory / 'task_counts.parquet')} {_PARQUET}")

    def _compact(self, base: Path) -> None:
        delta = self._directory / "tasks_delta.parquet"
        rows = _with_delta(base / _TASKS, delta)
        self._run(f"copy ({rows}) to {text(self._directory / _TASKS)} {_PARQUET}")
        delta.unlink()

    def _judge_into(self, name: str, part: str) -> None:
        self._run(f"create temp view part as {part}")
        self._run(f"copy ({query('judged_tasks')}) to {text(self._directory / f'{name}.parquet')} {_PARQUET}")

    def _run(self, sql: str) -> None:
        self._rows(sql)

    def _rows(self, sql: str, cursor: duckdb.DuckDBPyConnection | None = None) -> list[tuple[Any, ...]]:
        if self._cancelled:
            raise Cancelled
        running = cursor or self._database
        self._running.add(running)
        try:
            return running.execute(sql).fetchall()
        except duckdb.InterruptException:
            raise Cancelled from None
        finally:
            self._running.discard(running)


def _table_of_events(table: str, name: str, file: Path, *, careful: bool) -> str:
    """The careful way leaves out what it cannot read; the strict one fails, and is a fifth faster."""
    if name == OTHERS:
        selected, columns = f"* exclude (sessionName), {rare_payload()} as rare", all_columns()
    else:
        selected, columns = f'eventType, "timestamp", {TASK_EVENTS[name]}.*', task_columns(TASK_EVENTS[name])
    return f"""
        create table {table} as
        select {selected}
        from read_json({text(file)}, format = 'newline_delimited', records = true, ignore_errors = {careful},
            maximum_object_size = {_LONGEST_EVENT * 32 if careful else _LONGEST_EVENT}, columns = {columns})
        """


def _give_way() -> None:
    """Let threads that answer people, or fetch what is to be built next, go before this one and those it starts."""
    if sys.platform == "linux":  # elsewhere it would slow down the whole process
        os.nice(_MODESTY)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
