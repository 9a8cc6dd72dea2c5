"""Why histories differ from live dashboards: each remaining difference, by route and place, with its reason."""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """Differences with one cause: in which routes, at which places."""

    route: re.Pattern[str]
    path: re.Pattern[str]
    text: str


def _reason(route: str, path: str, text: str) -> Reason:
    return Reason(re.compile(route), re.compile(path), text)


REASONS = (
    _reason(
        r"tasks/timeline",
        r"",
        "Ray does not send all profile spans as events: none up to 2.50, few of those inside a task up to 2.53. "
        "Numbers of workers (`tid`) follow from the spans",
    ),
    _reason(r"/api/v0/tasks", r"profiling_data", "the same profile spans"),
    _reason(
        r"/api/v0/tasks|logs/file by task_id",
        r"task_log_info|<line>|<status>",
        "events without the place in the log: it is found by the task's name in the worker's file, or unknown",
    ),
    _reason(
        r"/api/v0/tasks",
        r"result\[\]$",
        "tasks whose owner died before it sent their definition: Ray hides them; here they show what the executor sent",
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
        r"/nodes/|/logical/actors",
        r"workers|processStats|coreWorker|actors",
        "what a process used, and processes of the last moments, are only in polled pages, which are up to 30 s older",
    ),
    _reason(r"/api/v0/tasks", r"state|events|time_ms|worker|node_id|filtered", "tasks that went on after the answer"),
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


def reason(route: str, path: str) -> str:
    """Why leaves of a route differ at a place."""
    return next((each.text for each in REASONS if each.route.search(route) and each.path.search(path)), UNEXPLAINED)
