"""From events to the tables of a session, as Parquet files in one directory.

Invariants:
* events become segments (see segments.py); at the end only attempts found in several of them are merged again, and all
  rows are judged (see judged_tasks.sql);
* rare events and documents are kept whole, without repetition: the small tables are queries over them, so that they can
  be asked again for any moment;
* memory stays within the limit given, whatever the number of events: DuckDB spills into the directory;
* building upon the directory of an earlier build gives the same tables as building from all files, at the cost of the
  new ones: rows that new events touch, or that may be judged anew, go to `tasks_delta` and hide those in `tasks`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import duckdb

from ray_history.history.engine import Engine, Limits
from ray_history.history.registry import SMALL_TABLES
from ray_history.history.sql import query, query_at, text

from .event_lines import EventLines
from .runs import Counts, Segments

_LOOKED_UP = ("nodes", "workers")
"""Tables that others need: nodes all small ones, workers the tasks. They are made first."""

NOW = 2**63 - 1
"""The moment after everything."""

_LONGEST_DOCUMENT = 64 << 20
_TASKS, _PLACES = "tasks.parquet", "task_places.parquet"
_COMPACT_FROM = 0.2
"""The part of all rows that the delta may have before everything is written anew: it slows each query."""

_PAGE = 256 << 10
"""Bytes of a column that are unpacked at once: to read one row, those after it need not be. Smaller gains no more."""

_MOST_COUNTS = 100_000
"""Names can be as many as tasks; counting them ahead then saves nothing, and is left."""


_MANY_EVENTS = 128
"""From one event for so many bytes of memory on, making tables of them may need all of it."""


RARE_EVENTS_AND_DOCUMENTS = """
    create table rare_event (
        event_id varchar, event_type varchar, event_ns bigint, node_id varchar, severity varchar,
        message varchar, body json
    );
    create table document (source varchar, name varchar, node_id varchar, body json);
"""


def define_words(database: duckdb.DuckDBPyConnection) -> None:
    """Teach a database with the tables `rare_event` and `document` the words of the queries."""
    for words in ("words", "death_causes"):
        database.execute(query(words))


def observed_tasks(directory: Path, places: Sequence[int] | None = None) -> str:
    """SQL: all rows of tasks in a directory; with `places`, of those in `tasks.parquet` only the rows there."""
    return _with_delta(directory / _TASKS, directory / "tasks_delta.parquet", places)


def first_tasks(directory: Path, some: int) -> str | None:
    """SQL: the first rows of `observed_tasks`, at least so many if there are; None where these are not simply those of
    a file."""
    if (directory / "tasks_delta.parquet").exists():
        return None
    return _at(directory / _TASKS, f"file_row_number < {some}")


def _at(file: Path, place: str) -> str:
    """SQL: the rows at certain places; the reader skips all groups of rows in which there are none."""
    return f"select * exclude (file_row_number) from read_parquet({text(file)}, file_row_number = true) where {place}"


def _with_delta(base: Path, delta: Path, places: Sequence[int] | None = None) -> str:
    """SQL: rows of both files; those of the delta, if there is one, hide the older ones of the same attempt."""
    if places is None:
        rows = f"from read_parquet({text(base)})"
    else:
        rows = _at(base, " or ".join(f"file_row_number = {place}" for place in places) or "false")
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
        self._engine = Engine(limits, self.work / "spill")
        self._run, self._aside = self._engine.run, self._engine.aside
        self._parquet = f"""(
            format parquet, parquet_version v2, compression zstd, compression_level 1, row_group_size 20000,
            row_group_size_bytes {limits.memory // 16}, data_page_size_limit {_PAGE}
        )"""
        self._run(RARE_EVENTS_AND_DOCUMENTS)
        define_words(self._engine.database)
        self._segments = Segments(self._engine, limits, self.work)

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self._segments.close()
        self._engine.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def cancel(self) -> None:
        """From any thread: whatever runs raises `Cancelled`."""
        self._engine.cancel()

    @property
    def counts(self) -> Counts:
        return self._segments.counts

    def add(self, lines: EventLines, *, careful: bool = False) -> None:
        """Read one batch of events, as `Segments.add` does."""
        self._segments.add(lines, careful=careful)

    def merge(self) -> None:
        """Make a segment of what was added since the last one; done without being asked before it is too much."""
        self._segments.merge()

    def add_documents(self, file: Path) -> None:
        """Take what is no exported event: lines of {source, name, node_id, body}. Upon a base: all of them again."""
        self._run(
            f"""
            insert into document
            select * from read_json({text(file)}, format = 'newline_delimited', records = true,
                maximum_object_size = {_LONGEST_DOCUMENT},
                columns = {{source: 'VARCHAR', name: 'VARCHAR', node_id: 'VARCHAR', body: 'JSON'}})
            """
        )

    def finish(self) -> dict[str, Any]:
        """Write all tables; returns the facts."""
        self._segments.finish(is_whole=self._base is None)
        self._engine.use_all_cores()
        self._make_small_tables()
        if self._base is not None or self.counts.events * _MANY_EVENTS > self._limits.memory:
            self._engine.be_strict()
        others = self._aside(self._make_other_tables)
        self._tell_judge()
        if self._base is not None:
            self._show_segments()
            self._extend_tasks(self._base)
        elif not self._make_tasks_at_once():
            self._show_segments()
            self._make_tasks()
        others.result()
        places = self._aside(self._make_task_places)
        self._run(f"create view observed_tasks as {observed_tasks(self._directory)}")
        self._make_task_counts()
        self._run(f"create temp table facts as {query('facts')}")
        self._run(f"copy facts to {text(self._directory / 'facts.parquet')} {self._parquet}")
        places.result()
        facts = self._engine.database.execute("from facts")
        names = [column[0] for column in facts.description or ()]
        return dict(zip(names, cast("tuple[Any, ...]", facts.fetchone()), strict=True))

    def row_counts(self) -> dict[str, int]:
        """Rows of each table, once they are written."""
        counted = self._run(
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
        self._run(f"copy rare_event to {text(self._directory / 'rare_events.parquet')} {self._parquet}")
        self._run(f"copy document to {text(self._directory / 'documents.parquet')} {self._parquet}")
        self._make_small_table("nodes")
        self._run("create macro nodes_at(moment) as table from nodes")  # the others look them up

    def _tell_judge(self) -> None:
        """Make the tables that tasks are judged by."""
        self._make_small_table("workers")
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
            where end_time_ms > 0 and (worker_type <> 'DRIVER' or exit_type is not null);  -- else ended_job tells it
            create temp table worker_host as select worker_id, node_id from workers where worker_type = 'WORKER';
            create temp table ended_job as  -- all drivers: a submission may have started several
            select hex_id(body->>'jobId', 4) as job_id, min(instant(step->>'timestamp')) as end_ns
            from steps('DRIVER_JOB_LIFECYCLE_EVENT')
            where step->>'state' = 'FINISHED'
            group by all;
            """
        )

    def _make_other_tables(self) -> None:
        with self._engine.database.cursor() as cursor:
            for name in SMALL_TABLES:
                if name not in _LOOKED_UP:
                    self._make_small_table(name, cursor)

    def _make_small_table(self, name: str, cursor: duckdb.DuckDBPyConnection | None = None) -> None:
        self._run(f"create table {name} as {query_at(name, NOW)}", cursor)
        self._run(f"copy {name} to {text(self._directory / f'{name}.parquet')} {self._parquet}", cursor)

    def _show_segments(self) -> None:
        self._run(f"create view segment as {self._segments.rows()}")

    def _make_tasks_at_once(self) -> bool:
        """Merge, judge and write in one query, which keeps all cores busy; False if that cannot be: there are several
        segments, or too little memory, or an id is written in two ways, so that an attempt has several rows."""
        if not self._segments.show_all():
            return False
        file = self.work / _TASKS
        rows = f"""
            with part as ({query("tasks")}),
            defined_task as (
                select hex_any(taskId, 24) as task_id
                from (select taskId from task_definition_event union all select taskId from actor_task_definition_event)
                where taskId <> ''
            )
            from ({query("judged_tasks")})
            """
        try:
            self._run(f"copy ({rows}) to {text(file)} {self._parquet}")
        except duckdb.OutOfMemoryException:
            return False
        if self._run(f"select 1 from {text(file)} group by task_id, attempt_number having count(*) > 1 limit 1"):
            return False
        file.rename(self._directory / _TASKS)
        return True

    def _make_tasks(self) -> None:
        # Not only in several segments: an id may be written in two ways.
        self._run(
            """
            create temp table all_straddling as
            select task_id, attempt_number from segment group by all having count(*) > 1;
            create temp table all_defined_task as
            select distinct task_id from segment
            where type is not null and task_id in (select task_id from segment where type is null);
            create or replace temp view straddling as from all_straddling;
            """
        )
        if not self._run("from all_straddling limit 1"):  # planning to merge nothing would take a small session's time
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
            create temp table all_straddling as select task_id, attempt_number from segment where false;
            create temp table touched as
            select distinct task_id, attempt_number from segment
            union
            select task_id, attempt_number from old
            where is_forced or is_implied or not is_defined or state not in ('FINISHED', 'FAILED')
            union
            select task_id, attempt_number {old_delta};
            create temp table all_defined_task as
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
        new, total = self._run(
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
        with self._engine.database.cursor() as cursor:
            self._run(
                f"""
                copy (
                    select md5_number_lower(lower(task_id)) as task, file_row_number::uinteger as place
                    from read_parquet({text(self._directory / _TASKS)}, file_row_number = true)
                    order by task
                ) to {text(places)} {self._parquet}
                """,
                cursor,
            )

    def _make_task_counts(self) -> None:
        self._run(f"create temp table task_counts as {query('task_counts')}")
        ((rows,),) = self._run("select count(*) from task_counts")
        if rows <= _MOST_COUNTS:
            self._run(f"copy task_counts to {text(self._directory / 'task_counts.parquet')} {self._parquet}")

    def _compact(self, base: Path) -> None:
        delta = self._directory / "tasks_delta.parquet"
        rows = _with_delta(base / _TASKS, delta)
        self._run(f"copy ({rows}) to {text(self._directory / _TASKS)} {self._parquet}")
        delta.unlink()

    def _judge_into(self, name: str, part: str) -> None:
        """Nothing but what is of the same task is looked up or merged with a row: parts by task need parts of all."""

        def write(which: str, file: Path) -> None:
            for known in ("straddling", "defined_task"):
                self._run(f"create or replace temp view {known} as from all_{known} where {which}")
            self._run(f"create or replace temp view part as from ({part}) where {which}")
            self._run(f"copy ({query('judged_tasks')}) to {text(file)} {self._parquet}")

        files, target = self._engine.in_parts(self.work / name, "task_id", write), self._directory / f"{name}.parquet"
        if len(files) == 1:
            files[0].rename(target)
        else:
            self._run(f"copy (from read_parquet([{', '.join(map(text, files))}])) to {text(target)} {self._parquet}")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
