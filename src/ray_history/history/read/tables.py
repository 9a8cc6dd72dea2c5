"""The tables of a session: now or at any moment, as observed or closed; see `views.View`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from ray_history.history.registry import TABLES, TASK_COUNTS_CLOSED_FORM, TASK_LOG
from ray_history.history.sealing import seal
from ray_history.history.sql import create_source_tables, query, query_at, text
from ray_history.history.sql.absent import LATER, kinds_of_rows, without
from ray_history.history.task_files import COUNTS, PLACES, first_tasks, observed_tasks

from .json_rows import repeated_secrets, shown_environments
from .parquet import PIPES, in_parquet
from .prepared import PreparedQueries
from .steps import step
from .views import LAST, View, closed_rows

USELESS_OPTIMIZERS = "join_order,statistics_propagation,common_subexpressions"
"""Optimizers that take a quarter of the time of a query for one task and find nothing to improve: few of our queries
join anything, and none repeats itself."""

_SHOWN = """
    * exclude (
        is_defined, is_implied, is_forced, is_worker_implied, is_node_implied, polled_columns, event_spans,
        told_name, actor_repr_name, error, debugger
    )
"""
"""Columns of tasks that are not only for building on them."""

READING_FAILED = (duckdb.Error, UnicodeDecodeError)
"""Errors of tables that cannot be read. The second is raised if DuckDB's message quotes bytes of a damaged file."""

_MAX_ENVIRONMENTS, _MAX_ENVIRONMENT_BYTES = 64, 64 << 10

_STATES = (
    "pending_args_avail_ns",
    "pending_node_assignment_ns",
    "pending_obj_store_mem_avail_ns",
    "pending_args_fetch_ns",
    "submitted_to_worker_ns",
    "pending_actor_task_args_fetch_ns",
    "pending_actor_task_ordering_ns",
    "getting_and_pinning_args_ns",
    "running_ns",
    "running_in_ray_get_ns",
    "running_in_ray_wait_ns",
    "finished_ns",
    "failed_ns",
)
"""In the order in which a task enters them."""
_SENT = _STATES[_STATES.index("submitted_to_worker_ns") :]
"""States in which a task has a worker."""
_BEGUN = _STATES[_STATES.index("running_ns") :]
"""States in which its worker has started it."""


def ready_database(memory: int = 512 << 20, threads: int = 2) -> duckdb.DuckDBPyConnection:
    """A database for `Tables`. Making it takes longer than everything else when a session is opened again."""
    database = duckdb.connect(config={"memory_limit": f"{memory >> 20}MB", "threads": threads, "temp_directory": ""})
    database.execute("set enable_progress_bar = false")
    database.execute("set global parquet_metadata_cache = true")  # the files never change
    database.execute(f"set global disabled_optimizers = '{USELESS_OPTIMIZERS}'")
    create_source_tables(database)  # placeholders, which the macros need
    return database


class Tables:
    """The tables of one session, from the files that `Builder` wrote to `directory`. For many threads."""

    def __init__(
        self,
        directory: Path,
        *,
        memory: int = 512 << 20,
        threads: int = 2,
        turns: AbstractContextManager[object] | None = None,
        database: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        """`turns` limits how many large queries of all tables that share it run at once; `database` is one from
        `ready_database`."""
        self._database = database or ready_database(memory, threads)
        self.turn = turns or threading.BoundedSemaphore(threads)
        """What large queries hold: they share one memory limit, and would fail rather than wait."""
        self._directory = directory
        self._places = f"read_parquet({text(directory / PLACES)})"
        self._lock, self._has_nodes_macro = threading.Lock(), False
        self._prepared = PreparedQueries(self._database)
        self._kinds: Collection[str] | None = None
        self._columns: dict[str, str] = {}
        self._environments: Sequence[tuple[str, str, str]] | None = None
        self._clean: bool | None = None
        self.is_doubtful = False
        """Whether reading failed: the files may be damaged."""
        try:
            self._create_views()
            seal(self._database, directory, PIPES)
        except READING_FAILED:
            self._database.close()
            raise

    def _create_views(self) -> None:
        for table, file in (("rare_event", "rare_events"), ("document", "documents")):
            rows = f"from read_parquet({text(self._directory / f'{file}.parquet')})"
            self._database.execute(f"drop table {table}; create view {table} as {rows}")
        self._database.execute(f"create view observed_tasks as {observed_tasks(self._directory)}")

    def source(self, table: str, view: View = LAST) -> str:
        """SQL: the rows of a table, in parentheses."""
        if table == "spans":
            return f"(with task as (from {self.source('tasks', view)}) {query('spans')})"
        if table == "tasks":
            return self._tasks("observed_tasks", view)
        if view.at is None:
            rows = f"read_parquet({text(self._directory / f'{table}.parquet')})"
        else:
            self._create_nodes_macro()
            rows = f"({query_at(table, view.at, self._kinds_of_rows())})"
            if TABLES[table].has_mentioned_rows:
                rows = f"""(
                    with listed as (from {rows}), task as (from {self.source("tasks", View(view.at))}),
                    actor as (from {self.source("actors", View(view.at))})
                    from listed union all by name ({query_at(f"mentioned_{table}", view.at, self._kinds_of_rows())})
                )"""
        return closed_rows(TABLES[table].closed_form, rows, view)

    def file(self, name: str) -> str | None:
        """SQL: the rows of a table that does not come from events; None if the index has none."""
        path = self._directory / f"{name}.parquet"
        return f"read_parquet({text(path)})" if path.exists() else None

    def first_tasks(self, count: int, view: View = LAST) -> str | None:
        """SQL: about the first `count` rows of tasks, in the order of an unsorted query; None if it needs all rows."""
        rows = first_tasks(self._directory, count)
        return self._tasks(f"({rows})", view) if rows else None

    def task(self, task_id: str, view: View = LAST) -> str:
        """SQL: a few rows of tasks, which include all attempts of the given one, whatever the case of its id."""
        return self._tasks(f"({self._observed_task(task_id)})", view)

    def fetch_task(
        self, task_id: str, view: View, make_query: Callable[[str], str], parameters: Sequence[object] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a query over the attempts of one task. `make_query` makes it from SQL for their rows; its
        parameters must be texts."""
        if view.at is not None:  # the same moment is rarely requested twice: a prepared query would not pay off
            return self.rows(make_query(self.task(task_id, view)), parameters)
        columns = self._task_columns()
        # A literal, because a parameter takes longer to plan.
        is_task = f"task_id = {text(task_id)}"
        rows = self.rows(f"select {_SHOWN} from ({self._observed_task(task_id)}) where {is_task}")
        rows_json = msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in rows]).decode()
        fields = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        attempts = f"(select attempt.* from (select unnest(?::varchar::json::struct({fields})[]) as attempt))"
        return self._prepared.rows(make_query(self._tasks(attempts, view)), [rows_json, *parameters])

    def _observed_task(self, task_id: str) -> str:
        """SQL: rows that include all of one task."""
        if not task_id.isascii():  # not an id of Ray's; Python and DuckDB may differ in its lower case
            return observed_tasks(self._directory)
        # The same as md5_number_lower(lower(task_id)) in the builder, which would take longer to plan than to compute.
        task = int.from_bytes(md5(task_id.lower().encode(), usedforsecurity=False).digest()[8:], "little")
        places = self.rows(f"select place from {self._places} where task = {task}")
        return observed_tasks(self._directory, [place for (place,) in places])

    def _task_columns(self) -> dict[str, str]:
        """The names and types of the columns of tasks."""
        with self._lock:
            if not self._columns:
                description = self.rows(f"describe select {_SHOWN} from observed_tasks")
                self._columns = {name: kind for name, kind, *_ in description}
            return self._columns

    def task_counts(self, view: View = LAST) -> str | None:
        """SQL: the number of tasks with each name, type, state and job; None if the index has no such table."""
        file = self._directory / COUNTS
        if view.at is not None or not file.exists():
            return None
        return closed_rows(TASK_COUNTS_CLOSED_FORM, f"read_parquet({text(file)})", view)

    def _tasks(self, observed: str, view: View) -> str:
        listed = f"(from {observed} where is_listed)"
        return closed_rows(TABLES["tasks"].closed_form, listed if view.at is None else _tasks_at(listed, view.at), view)

    def _create_nodes_macro(self) -> None:
        """Create the macro that other small tables look up nodes with. Only views of a moment need it, and it takes as
        long as everything else when a session is opened."""
        kinds = self._kinds_of_rows()
        with self._lock:
            if not self._has_nodes_macro:
                nodes = without("nodes", query("nodes"), {*kinds, LATER})
                self._database.execute(f"create macro nodes_at(moment) as table {nodes}")
                self._has_nodes_macro = True

    def _kinds_of_rows(self) -> Collection[str]:
        """The kinds of rows that the session has, which its queries for a moment need."""
        with self._lock:
            if self._kinds is None:
                self._kinds = kinds_of_rows(self.rows)
            return self._kinds

    def environments(self) -> Sequence[tuple[str, str, str]]:
        """The argument of `json_rows.row`, computed once; empty if there are many environments, or long ones."""
        with self._lock:
            if self._environments is None:
                rows = self.rows(shown_environments("observed_tasks", _MAX_ENVIRONMENTS))
                size = sum(len(part) for row in rows for part in row)
                is_small = len(rows) <= _MAX_ENVIRONMENTS and size <= _MAX_ENVIRONMENT_BYTES
                self._environments = [(env, task, driver) for env, task, driver in rows] if is_small else []
            return self._environments

    def are_clean(self) -> bool:
        """Whether what tasks have in common (names, call sites, runtime environments) contains no secret; computed
        once, and false if that takes long."""
        with self._lock:
            if self._clean is None:
                names = self.task_counts()
                try:
                    self._clean = names is not None and not self.rows(repeated_secrets("observed_tasks", names))[0][0]
                except duckdb.OutOfMemoryException:  # they have little in common
                    self._clean = False
            return self._clean

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result."""
        with self._reading() as cursor, step(cursor):
            return cursor.execute(sql, parameters).fetchall()

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a large result, in a turn of its own."""
        with self.turn:
            return self.rows(sql, parameters)

    def arrays(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        """The columns of a large result as NumPy arrays, in a turn of its own."""
        with self.turn, self._reading() as cursor, step(cursor):
            return cursor.execute(sql, parameters).fetchnumpy()

    def some_rows(self, sql: str, parameters: Sequence[Any], some: int) -> Generator[list[tuple[Any, ...]]]:
        """The same, `some` rows at a time as they are made, and one empty list for an empty result. Callers must have a
        turn, and should not pause: other queries wait."""
        with self._reading() as cursor:
            yield self._first(cursor, sql, parameters, some)
            while rows := self._next(cursor, some):
                yield rows

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a result of any size, some thousands at a time, as fast as the caller takes them."""
        with self._reading() as cursor:
            rows = self._first(cursor, sql, parameters, 4096)
            while rows:
                yield rows
                rows = self._next(cursor, 4096)

    def parquet(self, sql: str) -> Iterator[bytes]:
        """The rows of a result of any size as a Parquet file, as fast as the caller takes it."""
        with self._reading() as cursor:
            yield from in_parquet(cursor, sql)

    def _first(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any], some: int
    ) -> list[tuple[Any, ...]]:
        with step(cursor):
            cursor.execute(sql, parameters)
            return cursor.fetchmany(some)

    def _next(self, cursor: duckdb.DuckDBPyConnection, some: int) -> list[tuple[Any, ...]]:
        with step(cursor):
            return cursor.fetchmany(some)

    def close(self) -> None:
        self._prepared.close()
        self._database.close()

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._database.cursor() as cursor:
            try:
                yield cursor
            except (duckdb.OutOfMemoryException, duckdb.InterruptException):
                raise
            except READING_FAILED:
                self.is_doubtful = True
                raise


def _tasks_at(listed: str, moment: int) -> str:
    """SQL: tasks as of a moment: without what came later. Values without a time count as older."""
    reached = ", ".join(f"case when {name} <= {moment} then {name} end as {name}" for name in _STATES)
    sent = ", ".join(f"case when was_sent then {name} end as {name}" for name in ("node_id", "worker_id"))
    begun = ", ".join(
        f"case when was_begun then {name} end as {name}"
        for name in ("worker_pid", "component_type", "component_id", "node_ip_address", *TASK_LOG)
    )
    return f"""(
        select * exclude (was_sent, was_begun, has_no_times) replace (
            task_state(
                failed_ns, finished_ns, running_in_ray_wait_ns, running_in_ray_get_ns, running_ns,
                getting_and_pinning_args_ns, pending_actor_task_ordering_ns, pending_actor_task_args_fetch_ns,
                submitted_to_worker_ns, pending_args_fetch_ns, pending_obj_store_mem_avail_ns,
                pending_node_assignment_ns, pending_args_avail_ns
            ) as state,
            case when failed_ns is not null then error_type end as error_type,
            case when failed_ns is not null then error_message end as error_message,
            list_filter(spans, lambda span: span.endTime <= {moment}) as spans,
            {sent},
            {begun}
        )
        from (
            select
                * replace ({reached}),
                happened_by(least({", ".join(_SENT)}), {moment}) as was_sent,
                happened_by(least({", ".join(_BEGUN)}), {moment}) as was_begun,
                coalesce({", ".join(_STATES)}) is null as has_no_times
            from {listed}
        )
        where coalesce({", ".join(_STATES)}) is not null or has_no_times
    )"""
