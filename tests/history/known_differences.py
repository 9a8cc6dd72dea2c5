"""What the live dashboard and the rebuilt tables of the same session may differ in, and why.

Everything else is an error. A difference is not listed because it happens, but because its cause is Ray's: one of the
two was never sent, is sent with another moment, or changes for as long as the cluster lives.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.history.living import Row, Rows, differences

EXECUTOR_STATES = {
    "PENDING_ACTOR_TASK_ARGS_FETCH",
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY",
    "GETTING_AND_PINNING_ARGS",
    "RUNNING",
    "RUNNING_IN_RAY_GET",
    "RUNNING_IN_RAY_WAIT",
}
"""States that the worker reports which runs the task; its owner reports the others."""

EXECUTOR_FIELDS = ("node_id", "worker_id", "worker_pid", "start_time_ms", "task_log_info", "is_debugger_paused")
"""Fields that come with these states, and with nothing else if the owner did not report them."""

Moments = set[tuple[str, float]]


@dataclass(frozen=True)
class Comparison:
    """The listings of a live cluster, and the same listings of its rebuilt session."""

    live: dict[str, Rows]
    rebuilt: dict[str, Rows]
    silent_job: str = field(default="", kw_only=True)
    """The job whose driver did not export events."""

    @cached_property
    def last_reports(self) -> dict[str, float]:
        """By worker, the last moment that both sides know from it."""
        last: dict[str, float] = {}
        for key in self.live["tasks"].keys() & self.rebuilt["tasks"].keys():
            live, rebuilt = self.live["tasks"][key], self.rebuilt["tasks"][key]
            worker = executor(live, rebuilt)
            common = [moment for _, moment in reported(live) & reported(rebuilt)]
            if worker and common:
                last[worker] = max(last.get(worker, 0), *common)
        return last

    def was_killed(self, worker_id: str) -> bool:
        """Whether the worker ended without the chance to send what it had not sent yet."""
        worker = self.live["workers"].get(worker_id)
        if worker is None or worker["is_alive"]:
            return False
        node = self.live["nodes"].get(worker["node_id"], {})
        detail = worker["exit_detail"] or ""
        return bool(worker["exit_type"] == "SYSTEM_ERROR" or "actor is killed" in detail or node.get("state") == "DEAD")

    def unexplained(self, table: str, known: list[KnownDifference]) -> list[str]:
        """Every difference that no known one explains, as text."""
        found = []
        for key, name, live, rebuilt in differences(self.live[table], self.rebuilt[table]):
            if not any(each.explains(self, table, name, live, rebuilt) for each in known):
                shown = [json.dumps(row.get(name, row), ensure_ascii=False) for row in (live, rebuilt)]
                title = (live or rebuilt).get("name")
                found.append(f"{table} {key} ({title}): {name}\n  live    {shown[0]}\n  rebuilt {shown[1]}")
        return found


Rule = Callable[[Comparison, Row, Row], bool]


@dataclass(frozen=True)
class KnownDifference:
    table: str
    fields: str
    """Names of fields; `live` or `rebuilt` for a row that only that side has."""
    rule: Rule
    reason: str

    def explains(self, comparison: Comparison, table: str, name: str, live: Row, rebuilt: Row) -> bool:
        return table == self.table and name in self.fields.split() and self.rule(comparison, live, rebuilt)


# Rules ---------------------------------------------------------------------------------------------------------------


def near(name: str) -> Rule:
    """Ray writes the moment into its tables and, a little later, another into the event."""
    return lambda _, live, rebuilt: abs((live[name] or 0) - (rebuilt[name] or 0)) <= 20


def of_silent_driver(comparison: Comparison, live: Row, _: Row) -> bool:
    return bool(live["parent_task_id"] == f"{'f' * 40}{comparison.silent_job}")


def is_silent_driver(comparison: Comparison, live: Row, _: Row) -> bool:
    return bool(live["task_id"] == f"{'f' * 40}{comparison.silent_job}")


def only_its_executor_reported(_: Comparison, __: Row, rebuilt: Row) -> bool:
    return rebuilt["language"] is None and rebuilt["creation_time_ms"] is None


def failed_at_job_end(comparison: Comparison, live: Row, rebuilt: Row) -> bool:
    at_job_end = "as driver exits. Marking all non-terminal tasks as failed" in (live["error_message"] or "")
    return (
        at_job_end and live["events"][:-1] == rebuilt["events"][:-1] and near("end_time_ms")(comparison, live, rebuilt)
    )


def finished_and_failed(_: Comparison, live: Row, rebuilt: Row) -> bool:
    reached = {event["state"] for event in live["events"]}
    return reached >= {"FINISHED", "FAILED"} and rebuilt["state"] == "FINISHED"


def failed_before_its_owner_reported(_: Comparison, live: Row, rebuilt: Row) -> bool:
    by_ray = (live["error_message"] or "").startswith("Worker running the task")
    return by_ray and rebuilt["error_message"] == "" and live["error_type"] == rebuilt["error_type"] == "WORKER_DIED"


def only_more_pings(comparison: Comparison, before: Row, after: Row) -> bool:
    """The driver inside the dashboard checks each second whether a job lives: each check adds a span to its profile."""
    spans = [row["profiling_data"].get("events", []) for row in (before, after)]
    only_more = all(span in spans[1] for span in spans[0]) and {span["event_name"] for span in spans[1]} == {
        "submit_task"
    }
    jobs = {row["job_id"] for row in comparison.live["jobs"].values()}
    return before["type"] == "DRIVER_TASK" and before["job_id"] not in jobs and only_more


def is_still_pending(_: Comparison, before: Row, after: Row) -> bool:
    return bool(before["state"] == after["state"] == "PENDING")


def executor(*rows: Row) -> str:
    """The worker that runs an attempt, as far as a row says so."""
    named = [row.get("worker_id") or (row.get("profiling_data") or {}).get("component_id") for row in rows]
    return next(filter(None, named), "")


def reported(row: Row) -> Moments:
    """The states and spans of an attempt that its executor reported."""
    states = {(event["state"], event["created_ms"]) for event in row["events"] if event["state"] in EXECUTOR_STATES}
    spans = (row["profiling_data"] or {}).get("events", ())
    return states | {(span["event_name"], span["end_time"]) for span in spans}


def of_owner(row: Row) -> list[Any]:
    return [event for event in row["events"] if event["state"] not in EXECUTOR_STATES]


def last_report_reached_one_side(comparison: Comparison, live: Row, rebuilt: Row) -> bool:
    """A worker sends each report to Ray's GCS and then to the agent that exports it; one killed in between has sent it
    to one of them only.

    So this holds for nothing but the last report of a killed worker: what is missing is younger than everything of
    this worker that both sides have, and all that others reported of the attempt is equal.
    """
    less, more = sorted((live, rebuilt), key=lambda row: len(reported(row)))
    missing = reported(more) - reported(less)
    worker = executor(live, rebuilt)
    return (
        bool(missing)
        and reported(less) < reported(more)
        and of_owner(live) == of_owner(rebuilt)
        and all(less[name] in (None, more[name]) for name in EXECUTOR_FIELDS)
        and comparison.was_killed(worker)
        and min(moment for _, moment in missing) > comparison.last_reports.get(worker, 0)
    )


# What there is -------------------------------------------------------------------------------------------------------

MOVING = [
    KnownDifference("tasks", "profiling_data", only_more_pings, "it never stops"),
    KnownDifference("placement_groups", "stats", is_still_pending, "Ray retries to place it for as long as it lives"),
]
"""What changes while a cluster lives."""

KNOWN = [
    *MOVING,
    KnownDifference(
        "tasks",
        "end_time_ms error_message error_type events state",
        finished_and_failed,
        "its worker ended before Ray knew that it had finished: Ray failed it, and then learned of it",
    ),
    KnownDifference(
        "tasks",
        "creation_time_ms end_time_ms events language parent_task_id required_resources runtime_env_info",
        of_silent_driver,
        "only the executor reports a task whose owner does not export",
    ),
    KnownDifference(
        "tasks",
        "rebuilt",
        only_its_executor_reported,
        "its owner was killed before it reported it: Ray hides such a task, we show what its executor reported",
    ),
    KnownDifference("tasks", "live", is_silent_driver, "a driver that does not export is reported by no other process"),
    KnownDifference(
        "tasks",
        "end_time_ms events",
        failed_at_job_end,
        "the event of a job's end carries a moment some milliseconds after the one that Ray keeps",
    ),
    KnownDifference(
        "tasks",
        "error_message",
        failed_before_its_owner_reported,
        "a second after a worker's death Ray fails its task with a message, unless the owner did, which gives none",
    ),
    KnownDifference(
        "tasks",
        " ".join(("events", "profiling_data", *EXECUTOR_FIELDS)),
        last_report_reached_one_side,
        "its worker was killed between sending its last report to Ray and sending it to the agent",
    ),
    KnownDifference("nodes", "end_time_ms", near("end_time_ms"), "the event is later, and Ray was not polled since"),
    KnownDifference("jobs", "start_time", near("start_time"), "the event is later, and Ray was not polled since"),
    KnownDifference("jobs", "end_time", near("end_time"), "the event is later, and Ray was not polled since"),
]
