"""From events to the tables of a session, as Parquet files in one directory.

Invariants:
* events are merged into runs (see runs.py). At the end, attempts found in several runs are merged again, and the rows
  of all get their state (see sql/tasks/final.sql);
* rare events and documents are stored without duplicates. The small tables are queries over them, so that they can be
  made again for any moment;
* memory stays within the given limit, whatever the number of events: DuckDB spills to the directory;
* building on a base, the directory of an earlier build, gives the same tables as building from all files, at the cost
  of the new ones. Rows with new events, or whose state may change, go to `tasks_delta` and replace those in `tasks`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, cast

import duckdb

from ray_history.history.engine import Engine, Limits, open_database
from ray_history.history.registry import SMALL_TABLES, TABLES
from ray_history.history.sql import END_OF_TIME, create_source_tables, query, query_at, text
from ray_history.history.sql.absent import kinds_of_rows
from ray_history.history.task_files import COUNTS, DELTA, PLACES, TASKS, observed_tasks, with_delta

from .event_lines import EventLines
from .runs import Counts, Runs

_LOOKED_UP = ("nodes", "workers")
"""Tables that others look up: the small tables their nodes, tasks their workers. They are made first."""

_MADE_FROM_TASKS = ("actors",)
"""Tables that are made after tasks, which have rows that no other source has."""

_MAX_DOCUMENT = 64 << 20
_COMPACT_FROM = 0.2
"""The share of all rows from which the delta is merged into `tasks`: it slows down each query."""

_PAGE = 256 << 10
"""Bytes of a column that are unpacked at once to read one row. Smaller pages gain nothing."""

_MAX_COUNTS = 100_000
"""Tasks can have as many different names as there are tasks; the table of counts is then omitted."""

_BYTES_PER_EVENT = 128
"""With fewer bytes of memory than this per event, making the small tables may need all memory."""


def ready_database(threads: int) -> duckdb.DuckDBPyConnection:
    """A database for `Builder`, which can be made before it is needed."""
    database = open_database(threads)
    create_source_tables(database)
    return database


class Builder:
    """Builds the tables of one session in `directory`, on those in `base` if given.

    For one thread, except for `cancel`.
    """

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        base: Path | None = None,
        database: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        """`database` is one from `ready_database` that nothing else uses; it is closed at the end."""
        self._directory, self._limits, self._base = directory, limits, base
        self.work = directory / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        database = database or ready_database(limits.threads)
        self._engine = Engine(database, limits, self.work / "spill", directory, *([base] if base else []))
        self._execute = self._engine.execute
        self._parquet = f"""(
            format parquet, parquet_version v2, compression zstd, compression_level 1, row_group_size 20000,
            row_group_size_bytes {limits.memory // 16}, data_page_size_limit {_PAGE}
        )"""
        self._kinds = frozenset[str]()
        self._runs = Runs(self._engine, limits, self.work)

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self._runs.close()
        self._engine.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def cancel(self) -> None:
        """Make the running call, and later ones, raise `Cancelled`. Can be called from any thread."""
        self._engine.cancel()

    def enforce_memory_limit(self) -> None:
        """Stay within the memory limit from the beginning, which costs time."""
        self._engine.enforce_memory_limit()

    @property
    def counts(self) -> Counts:
        return self._runs.counts

    def add(self, lines: EventLines, *, lenient: bool = False) -> None:
        """Read one batch of events, as `Runs.add` does."""
        self._runs.add(lines, lenient=lenient)

    def merge(self) -> None:
        """Make a run of the batches added since the last one. `add` does it before they become too many."""
        self._runs.merge()

    def add_documents(self, file: Path) -> None:
        """Add everything that is not an exported event: lines of {source, name, node_id, body}. On a base too, these
        are all documents of the session."""
        self._execute(
            f"""
            insert into document
            select * from read_json({text(file)}, format = 'newline_delimited', records = true,
                maximum_object_size = {_MAX_DOCUMENT},
                columns = {{source: 'VARCHAR', name: 'VARCHAR', node_id: 'VARCHAR', body: 'JSON'}})
            """
        )

    def finish(self) -> dict[str, Any]:
        """Write all tables; returns the facts."""
        self._runs.finish(is_complete=self._base is None)
        self._engine.use_all_cores()
        self._write_source_tables()
        self._make_small_table("nodes")
        self._execute("create macro nodes_at(moment) as table from nodes")  # the other small tables look them up
        if self._base is not None or self.counts.events * _BYTES_PER_EVENT > self._limits.memory:
            self._engine.enforce_memory_limit()
        small_tables = self._engine.submit(self._make_small_tables)
        self._create_lookup_tables()
        if self._base is not None:
            self._create_run_view()
            self._extend_tasks(self._base)
        elif not self._make_tasks_at_once():
            self._create_run_view()
            self._make_tasks()
        small_tables.result()
        places = self._engine.submit(self._make_task_places)
        self._execute(f"create view observed_tasks as {observed_tasks(self._directory)}")
        for name in _MADE_FROM_TASKS:
            self._make_small_table(name)
        self._add_mentioned_rows()
        self._make_task_counts()
        self._execute(f"create temp table facts as {query('facts')}")
        self._execute(f"copy facts to {text(self._directory / 'facts.parquet')} {self._parquet}")
        places.result()
        facts = self._engine.database.execute("from facts")
        names = [column[0] for column in facts.description or ()]
        return dict(zip(names, cast("tuple[Any, ...]", facts.fetchone()), strict=True))

    def row_counts(self) -> dict[str, int]:
        """The number of rows of each table, after `finish`."""
        counts = self._execute(
            f"""
            select parse_filename(file_name, true), num_rows
            from parquet_file_metadata({text(self._directory / "*.parquet")})
            order by all
            """
        )
        return dict(cast("list[tuple[str, int]]", counts))

    def _write_source_tables(self) -> None:
        """Write rare events and documents without duplicates."""
        if self._base is not None:
            self._execute(f"insert into rare_event from read_parquet({text(self._base / 'rare_events.parquet')})")
        self._execute(
            """
            create or replace table rare_event as
            select distinct on (event_id, body::varchar) * from rare_event;
            create or replace table document as
            select distinct on (source, name, node_id, body::varchar) * from document;
            """
        )
        self._execute(f"copy rare_event to {text(self._directory / 'rare_events.parquet')} {self._parquet}")
        self._execute(f"copy document to {text(self._directory / 'documents.parquet')} {self._parquet}")
        self._kinds = kinds_of_rows(self._execute)

    def _make_small_tables(self) -> None:
        with self._engine.database.cursor() as cursor:
            for name in SMALL_TABLES:
                if name not in (*_LOOKED_UP, *_MADE_FROM_TASKS):
                    self._make_small_table(name, cursor)

    def _make_small_table(self, name: str, cursor: duckdb.DuckDBPyConnection | None = None) -> None:
        self._execute(f"create table {name} as {query_at(name, END_OF_TIME, self._kinds)}", cursor)
        if not TABLES[name].has_mentioned_rows:
            self._write_small_table(name, cursor)

    def _write_small_table(self, name: str, cursor: duckdb.DuckDBPyConnection | None = None) -> None:
        self._execute(f"copy {name} to {text(self._directory / f'{name}.parquet')} {self._parquet}", cursor)

    def _add_mentioned_rows(self) -> None:
        """Add the rows that only tasks and actors mention."""
        self._execute(
            """
            create view task as from observed_tasks where is_listed;
            create view actor as from actors;
            """
        )
        for name in [name for name in SMALL_TABLES if TABLES[name].has_mentioned_rows]:
            self._execute(f"create or replace view listed as from {name}")
            self._execute(f"insert into {name} by name {query_at(f'mentioned_{name}', END_OF_TIME, self._kinds)}")
            self._write_small_table(name)

    def _create_lookup_tables(self) -> None:
        """Create the tables from which tasks get what no event of theirs says: workers and jobs that ended,
        and the names of actors."""
        self._make_small_table("workers")
        self._execute(
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
            where end_time_ms > 0 and (worker_type <> 'DRIVER' or exit_type is not null);  -- other drivers: ended_job
            create temp table worker_host as select worker_id, node_id from workers where worker_type = 'WORKER';
            create temp table named_actor as from named_actors();
            """
            # Of all drivers: a submission may have started several.
            f"create temp table ended_job as from ended_jobs({END_OF_TIME});"
            f"create temp table all_polled_task as {query_at('tasks/polled', END_OF_TIME, self._kinds)};"
            "create or replace temp view polled_task as from all_polled_task"
        )

    def _create_run_view(self) -> None:
        self._execute(f"create view run as {self._runs.rows()}")

    def _make_tasks_at_once(self) -> bool:
        """Merge, finish and write the rows of tasks in one query, which keeps all cores busy.

        False if that is not possible: there are several runs, or too little memory, or an id comes in two spellings,
        so that an attempt has several rows.
        """
        if not self._runs.create_event_views():
            return False
        file = self.work / TASKS
        rows = f"""
            with attempt as ({query("tasks/run")}),
            defined_task as (
                select hex_any(taskId, 24) as task_id
                from (select taskId from task_definition_event union all select taskId from actor_task_definition_event)
                where taskId <> ''
            )
            from ({query("tasks/final")})
            """
        try:
            self._execute(f"copy ({rows}) to {text(file)} {self._parquet}")
        except duckdb.OutOfMemoryException:
            return False
        if self._execute(f"select 1 from {text(file)} group by task_id, attempt_number having count(*) > 1 limit 1"):
            return False
        file.rename(self._directory / TASKS)
        return True

    def _make_tasks(self) -> None:
        # An attempt has several rows if it is in several runs, or if its id comes in two spellings.
        self._execute(
            """
            create temp table all_split_attempt as
            select task_id, attempt_number from run group by all having count(*) > 1;
            create temp table all_defined_task as
            select distinct task_id from run
            where type is not null and task_id in (select task_id from run where type is null);
            create or replace temp view split_attempt as from all_split_attempt;
            """
        )
        if not self._execute("from all_split_attempt limit 1"):  # for a small session, planning the merge takes longest
            self._write_final_rows("tasks", "from run")
            return
        several = "select run.* from run semi join split_attempt using (task_id, attempt_number)"
        self._write_final_rows(
            "tasks",
            f"""
            select run.* from run anti join split_attempt using (task_id, attempt_number)
            union all by name (with attempt as ({several}) {query("tasks/merge")})
            """,
        )

    def _extend_tasks(self, base: Path) -> None:
        """Write the delta: rows with new events, rows whose end or node others tell, and the base's delta."""
        delta = base / DELTA
        base_delta = f"from read_parquet({text(delta)})" if delta.exists() else "from run where false"
        self._execute(f"create view base_attempt as {observed_tasks(base)}")
        self._execute(
            f"""
            create temp table all_split_attempt as select task_id, attempt_number from run where false;
            create temp table changed_attempt as
            select distinct task_id, attempt_number from run
            union
            select task_id, attempt_number from base_attempt
            where is_forced or is_implied or not is_defined or polled_columns is not null
                or state not in ('FINISHED', 'FAILED')
            union
            select task_id, attempt_number from base_attempt, worker_host
            where base_attempt.worker_id = worker_host.worker_id and base_attempt.node_id <> worker_host.node_id
            union
            select task_id, attempt_number from all_polled_task
            union
            select task_id, attempt_number {base_delta};
            create temp table all_defined_task as
            select task_id from (
                select task_id, type is not null as is_defined from run
                union all
                select task_id, is_defined from base_attempt
            )
            group by task_id
            having bool_or(is_defined) and not bool_and(is_defined);
            create view final_attempt as
            select base_attempt.* from base_attempt semi join changed_attempt using (task_id, attempt_number);
            """
        )
        self._write_final_rows(
            "tasks_delta",
            f"with attempt as (from run union all by name ({query('tasks/reopen')})) {query('tasks/merge')}",
        )
        new, total = self._execute(
            f"select (select count(*) from {text(self._directory / DELTA)}), (select count(*) from base_attempt)"
        )[0]
        if new > total * _COMPACT_FROM:
            self._compact(base)
            return
        for name in (TASKS, PLACES):
            _link(base / name, self._directory / name)

    def _write_final_rows(self, name: str, rows: str) -> None:
        """Write merged rows with their state. It depends on rows of the same task only, so they can be written in parts
        by task."""

        def write(condition: str, file: Path) -> None:
            for lookup in ("split_attempt", "defined_task", "polled_task"):
                self._execute(f"create or replace temp view {lookup} as from all_{lookup} where {condition}")
            self._execute(f"create or replace temp view attempt as from ({rows}) where {condition}")
            self._execute(f"copy ({query('tasks/final')}) to {text(file)} {self._parquet}")

        files = self._engine.write_in_parts(self.work / name, "task_id", write)
        target = self._directory / f"{name}.parquet"
        if len(files) == 1:
            files[0].rename(target)
        else:
            parts = ", ".join(map(text, files))
            self._execute(f"copy (from read_parquet([{parts}])) to {text(target)} {self._parquet}")

    def _compact(self, base: Path) -> None:
        """Merge the delta into `tasks`."""
        delta = self._directory / DELTA
        rows = with_delta(base / TASKS, delta)
        self._execute(f"copy ({rows}) to {text(self._directory / TASKS)} {self._parquet}")
        delta.unlink()

    def _make_task_places(self) -> None:
        """Write the position of each task in `tasks.parquet`, to find one in a million without scanning."""
        places = self._directory / PLACES
        if places.exists():  # linked from the base, as `tasks.parquet` is
            return
        with self._engine.database.cursor() as cursor:
            self._execute(
                f"""
                copy (
                    select md5_number_lower(lower(task_id)) as task, file_row_number::uinteger as place
                    from read_parquet({text(self._directory / TASKS)}, file_row_number = true)
                    order by task
                ) to {text(places)} {self._parquet}
                """,
                cursor,
            )

    def _make_task_counts(self) -> None:
        self._execute(f"create temp table task_counts as {query('task_counts')}")
        ((rows,),) = self._execute("select count(*) from task_counts")
        if rows <= _MAX_COUNTS:
            self._execute(f"copy task_counts to {text(self._directory / COUNTS)} {self._parquet}")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copyfile(source, target)
