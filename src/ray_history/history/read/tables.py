"""The tables of a session, read: now or at any moment, as observed or closed.

A `View` says which: `at` is a moment inside the session (None for its last), `closed_at` the end of the session when
what was still open shall be shown as ended (None to show it as last observed).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from ray_history.history.build.builder import RARE_EVENTS_AND_DOCUMENTS, define_words, first_tasks, observed_tasks
from ray_history.history.registry import TABLES, TASK_COUNTS_CLOSED_FORM, TASK_LOG
from ray_history.history.sql import query, query_at, text

from .json_rows import repeated_secrets, shown_environments
from .parquet import in_parquet
from .prepared import KeptPlans
from .views import LAST, View, closed_rows

_IN_VAIN = "join_order,statistics_propagation,common_subexpressions"
"""Optimizers that take a quarter of the time of asking for one task, and find nothing to improve in our queries: few
join anything, and none should say the same thing twice."""

_SHOWN = """
    * exclude (
        is_defined, is_implied, is_forced, is_worker_implied, is_node_implied, told_name, actor_repr_name,
        error, debugger
    )
"""
"""Columns of tasks that are read by more than building upon them."""

READING_FAILED = (duckdb.Error, UnicodeDecodeError)
"""What is raised when the tables cannot be read, for whatever reason. The second: DuckDB's message may quote bytes of a
damaged file that are no text, and then cannot be made into an error of its own."""

_MOST_ENVIRONMENTS, _LONGEST_ENVIRONMENTS = 64, 64 << 10

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
"""In the order in which they are entered."""
_SENT = _STATES[_STATES.index("submitted_to_worker_ns") :]
"""From the first of them on a task has a worker."""
_BEGUN = _STATES[_STATES.index("running_ns") :]
"""From the first of them on that worker has something to tell of it."""


def ready_database(memory: int = 512 << 20, threads: int = 2) -> duckdb.DuckDBPyConnection:
    """A database for `Tables`, without any yet. Making it takes longer than all else of opening them again."""
    database = duckdb.connect(config={"memory_limit": f"{memory >> 20}MB", "threads": threads, "temp_directory": ""})
    database.execute("set enable_progress_bar = false")
    database.execute("set global parquet_metadata_cache = true")  # the files never change
    database.execute(f"set global disabled_optimizers = '{_IN_VAIN}'")
    database.execute(RARE_EVENTS_AND_DOCUMENTS)  # stand for those to come: the words speak of them
    define_words(database)
    return database


class Tables:
    """One session's tables, from the files that `Builder` left in `directory`; for many threads."""

    def __init__(
        self,
        directory: Path,
        *,
        memory: int = 512 << 20,
        threads: int = 2,
        heavy: threading.BoundedSemaphore | None = None,
        database: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        """A `database` that is ready need not be made ready."""
        self._database = database or ready_database(memory, threads)
        self._heavy = heavy or threading.BoundedSemaphore(threads)
        self._directory = directory
        self._places = f"read_parquet({text(directory / 'task_places.parquet')})"
        self._defining, self._knows_nodes = threading.Lock(), False
        self._plans = KeptPlans(self._database)
        self._columns: dict[str, str] = {}
        self._environments: Sequence[tuple[str, str, str]] | None = None
        self._clean: bool | None = None
        self.is_doubtful = False
        """Whether reading failed, so that the files may not be what was written."""
        try:
            self._define_tables()
        except READING_FAILED:
            self._database.close()
            raise

    def _define_tables(self) -> None:
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
            self._define_nodes()
            rows = f"({query_at(table, view.at)})"
        if TABLES[table].has_mentioned_rows:
            rows = f"""(
                with known as (from {rows}), task as (from {self.source("tasks", View(view.at))}),
                actor as (from {self.source("actors", View(view.at))})
                from known union all by name ({query(f"mentioned_{table}")})
            )"""
        return closed_rows(TABLES[table].closed_form, rows, view)

    def first_tasks(self, some: int, view: View = LAST) -> str | None:
        """SQL: the first rows of tasks, about so many, in the order in which a query without one gives them; None if
        they cannot be had without reading all."""
        rows = first_tasks(self._directory, some)
        return self._tasks(f"({rows})", view) if rows else None

    def task(self, task_id: str, view: View = LAST) -> str:
        """SQL: some rows of tasks, among them all attempts of that one, in whatever case: quickly found."""
        return self._tasks(f"({self._observed_task(task_id)})", view)

    def fetch_task(
        self, task_id: str, view: View, asked: Callable[[str], str], parameters: Sequence[object] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a query over the attempts of one task: `asked` makes it, of SQL for their rows. Its parameters,
        which are texts, come after those rows."""
        if view.at is not None:  # nobody asks twice for the same moment: a plan for it is not worth keeping
            return self.fetch(asked(self.task(task_id, view)), parameters)
        columns = self._task_columns()
        with self._heavy:
            # A text, not a parameter: that is planned sooner.
            is_it = f"task_id = {text(task_id)}"
            found = self.rows(f"select {_SHOWN} from ({self._observed_task(task_id)}) where {is_it}")
            told = msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in found]).decode()
            kind = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            given = f"(select attempt.* from (select unnest(?::varchar::json::struct({kind})[]) as attempt))"
            return self._plans.rows(asked(self._tasks(given, view)), [told, *parameters])

    def _observed_task(self, task_id: str) -> str:
        """SQL: rows, among them all of one task."""
        if not task_id.isascii():  # no id of Ray's; Python and DuckDB may differ in what its lower case is
            return observed_tasks(self._directory)
        # As building does it, md5_number_lower(lower(task_id)): planning that takes longer than doing it.
        task = int.from_bytes(md5(task_id.lower().encode(), usedforsecurity=False).digest()[8:], "little")
        found = self.rows(f"select place from {self._places} where task = {task}")
        return observed_tasks(self._directory, [place for (place,) in found])

    def _task_columns(self) -> dict[str, str]:
        """Columns of tasks that can be shown, with their types."""
        with self._defining:
            if not self._columns:
                told = self.rows(f"describe select {_SHOWN} from observed_tasks")
                self._columns = {name: kind for name, kind, *_ in told}
            return self._columns

    def task_counts(self, view: View = LAST) -> str | None:
        """SQL: how many tasks have the same name, type, state and job; None if they were not counted ahead."""
        file = self._directory / "task_counts.parquet"
        if view.at is not None or not file.exists():
            return None
        return closed_rows(TASK_COUNTS_CLOSED_FORM, f"read_parquet({text(file)})", view)

    def _tasks(self, observed: str, view: View) -> str:
        listed = f"(from {observed} where is_listed)"
        return closed_rows(TABLES["tasks"].closed_form, listed if view.at is None else _tasks_at(listed, view.at), view)

    def _define_nodes(self) -> None:
        """What other small tables look up; only when a moment is asked for: it takes as long as all else of opening."""
        with self._defining:
            if not self._knows_nodes:
                self._database.execute(f"create macro nodes_at(moment) as table {query('nodes')}")
                self._knows_nodes = True

    def environments(self) -> Sequence[tuple[str, str, str]]:
        """What `rows.row` takes: made once. None are worth it if they are many, or long."""
        with self._defining:
            if self._environments is None:
                found = self.rows(shown_environments("observed_tasks", _MOST_ENVIRONMENTS))
                size = sum(len(part) for row in found for part in row)
                usual = len(found) <= _MOST_ENVIRONMENTS and size <= _LONGEST_ENVIRONMENTS
                self._environments = [(told, task, driver) for told, task, driver in found] if usual else []
            return self._environments

    def are_clean(self) -> bool:
        """Whether tasks have nothing in common that tells a secret; found out once, if that is quickly done."""
        with self._defining:
            if self._clean is None:
                names = self.task_counts()
                try:
                    self._clean = names is not None and not self.rows(repeated_secrets("observed_tasks", names))[0][0]
                except duckdb.OutOfMemoryException:  # they have little in common
                    self._clean = False
            return self._clean

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        with self._reading() as cursor:
            return cursor.execute(sql, parameters).fetchall()

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a large answer; only as many at once as there are threads, the others wait: queries that run
        together share one memory limit, and fail rather than queue."""
        with self._heavy:
            return self.rows(sql, parameters)

    def fetch_some(self, sql: str, parameters: Sequence[Any], some: int) -> Generator[list[tuple[Any, ...]]]:
        """The same, some at a time, as they are made; at least once, perhaps none. Who asks should go on soon: others
        wait."""
        with self._heavy, self._reading() as cursor:
            cursor.execute(sql, parameters)
            yield cursor.fetchmany(some)
            while rows := cursor.fetchmany(some):
                yield rows

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of an answer of any size, some thousands at a time, as fast as they are taken."""
        with self._reading() as cursor:
            cursor.execute(sql, parameters)
            while rows := cursor.fetchmany(4096):
                yield rows

    def parquet(self, sql: str) -> Iterator[bytes]:
        """The rows of an answer of any size as a Parquet file, as fast as it is taken."""
        with self._reading() as cursor:
            yield from in_parquet(cursor, sql)

    def close(self) -> None:
        self._plans.close()
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
    """Tasks as they were known at a moment: what came later has not happened yet; what has no time always had."""
    reached = ", ".join(f"case when {name} <= {moment} then {name} end as {name}" for name in _STATES)
    where_it_was = ", ".join(f"case when was_sent then {name} end as {name}" for name in ("node_id", "worker_id"))
    what_it_told = ", ".join(
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
            {where_it_was},
            {what_it_told}
        )
        from (
            select
                * replace ({reached}),
                by_then(least({", ".join(_SENT)}), {moment}) as was_sent,
                by_then(least({", ".join(_BEGUN)}), {moment}) as was_begun,
                coalesce({", ".join(_STATES)}) is null as has_no_times
            from {listed}
        )
        where coalesce({", ".join(_STATES)}) is not null or has_no_times
    )"""
