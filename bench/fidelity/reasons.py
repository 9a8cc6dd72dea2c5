"""Why histories differ from live dashboards: each remaining difference, by route and place, with its reason."""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """Differences with one cause: in which routes, at which places."""

    route: re.Pattern[str]
    path: re.Pattern[str]
    capture: re.Pattern[str]
    """Of which captures, such as `2.49 calm`."""
    text: str


def _reason(route: str, path: str, text: str, *, capture: str = "") -> Reason:
    return Reason(re.compile(route), re.compile(path), re.compile(capture), text)


REASONS = (
    _reason(
        r"/api/v0/tasks( filtered)?$",
        r"events|start_time_ms",
        "the constructor of an actor that restarted: Ray up to 2.53 shows its last start beside its first end; here it "
        "is the first start",
        capture=r"^2\.(49|5[0-3]) calm$",
    ),
    _reason(
        r"/api/v0/tasks( filtered)?$",
        r"events|end_time_ms",
        "tasks that failed at the end of their job: Ray's event about that end is some milliseconds late",
        capture=r"calm$",
    ),
    _reason(
        r"tasks/timeline",
        r"",
        "Ray does not send all profile spans as events: 2.52 sends few of those inside a task, and a worker that is "
        "killed sends none of its last second. Numbers of workers (`tid`) follow from the spans",
    ),
    _reason(r"/api/v0/tasks", r"profiling_data", "the same profile spans"),
    _reason(
        r"/api/v0/tasks|logs/file by task_id",
        r"task_log_info|<line>|<status>",
        "events without the place in the log: it is found by the task's name in the worker's file, or unknown",
    ),
    _reason(
        r"logs/file by (filename|pid|actor_id)",
        r"<line>",
        "the last lines before SIGKILL: log lines are uploaded every 10 s",
    ),
    _reason(
        r"/api/v0/tasks$",
        r"result\[\]$",
        "tasks that only one side knows: those whose owner died before it sent their definition are hidden by Ray and "
        "shown here with what their executor sent; drivers of the dashboard itself send no events to a slow head",
    ),
    _reason(
        r"/api/v0/tasks",
        r"error_message|error_type",
        "Ray's own decision came first, or the end of the task; Ray sends no event about such a decision",
    ),
    _reason(
        r"lineage",
        r"timestamp",
        "Ray does not sort the attempts of a task, so that it shows the time of any of them; here it is the first",
    ),
    _reason(r"summarize", r"", "the same tasks, counted"),
    _reason(
        r"/nodes|/logical/actors|/api/v0/actors|/api/v0/workers|cluster_status",
        r"",
        "processes, actors and resources in use of the last moments: polled pages are up to 30 s older than the "
        "answer, or Ray 2.60 answered from its cache",
    ),
    _reason(
        r"/events",
        r"",
        "events that were written after the answer, that Ray lists by job only after somebody asked for that job, or "
        "that the agent of another node could not report to the head",
    ),
    _reason(
        r"/api/v0/tasks filtered",
        r"result\[\]$|num_filtered|total|num_after_truncation",
        "Ray finds no task by the name that it shows if the actor's own name is part of it; tasks that the dashboard "
        "ran while it was asked, or that went on after the answer; and those that only one side knows, as above",
    ),
    _reason(r"/api/v0/tasks", r"state|events|time_ms|worker|node_id|filtered", "tasks that went on after the answer"),
    _reason(
        r"/api/v0/runtime_envs",
        r"",
        "runtime environments that came or went since the last answer: while a node is dying, Ray answers 500; rows "
        "without an id are compared by position",
    ),
    _reason(
        r"/api/v0/logs",
        r"worker_|core_worker",
        "Ray moves logs of ended workers into `old/` once 200 are open; where the collector was killed before it had "
        "stored that, they have their first name. Others were created after the answer",
    ),
    _reason(
        r"/api/v0/logs",
        r"internal",
        "earlier states of files that Ray rewrites, which are added, and files that were created after the answer",
    ),
)
"""The first that matches counts."""

UNEXPLAINED = "not explained yet"


def reason(route: str, path: str, capture: str) -> str:
    """Why leaves of a route differ at a place, in this capture."""

    def matches(each: Reason) -> bool:
        return bool(each.route.search(route) and each.path.search(path) and each.capture.search(capture))

    return next((each.text for each in REASONS if matches(each)), UNEXPLAINED)
