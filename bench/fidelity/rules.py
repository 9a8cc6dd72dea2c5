"""What the comparison of answers needs to know about them: how rows are identified, and which leaves have no truth."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

ROW_KEYS = (
    ("task_id", "attempt_number"),
    ("event_id",),
    ("eventId",),
    ("actor_id",),
    ("actorId",),
    ("placement_group_id",),
    ("worker_id",),
    ("workerId",),
    ("submission_id", "job_id"),
    ("job_id",),
    ("node_id",),
    ("nodeId",),
    ("raylet.nodeId",),
    ("bundle_id",),
    ("replica_id",),
    ("key",),
    ("id",),
    ("runtime_env",),
    ("pid",),
    ("uuid",),
    ("index",),
    ("event_name", "start_time"),
    ("name", "type"),
    ("name",),
    ("state", "created_ms"),
)
"""What identifies a row: the first whose values are there and differ in all rows."""

BEGIN = ("creation_time_ms", "start_time_ms", "start_time", "startTime", "creation_time", "timestamp")
"""Fields with the time at which a row began; the first that is set."""


class Unscored(NamedTuple):
    """Leaves that cannot be compared: in which answers, where, and why."""

    url: re.Pattern[str]
    path: re.Pattern[str]
    reason: str


def _unscored(url: str, names: str, reason: str) -> Unscored:
    return Unscored(re.compile(url), re.compile(rf"(^|\.)({names})(\.|\[|$)"), reason)


_OF_NODES = r"^/nodes|^/logical/actors"
_FIGURES = (
    "objectStoreUsedMemory|objectStoreAvailableMemory|storeStats|taskQueueLength|numPendingTasks|numRunningTasks|"
    "numExecutedTasks|numInPlasma|numLocalObjects|numObjectRefsInScope|usedObjectStoreMemory|usedResources|"
    "objectRefs|objectsTotal|numOwnedObjects|numOwnedActors|numInFlightArgPinningRequests|"
    "numOfFailedArgPinningRequests|numWorkers"
)

UNSCORED = (
    _unscored(
        r"^/nodes",
        "now|cpu|mem|hostMem|cgroupMem|shm|loadAvg|disk|diskIo|diskIoSpeed|network|networkSpeed",
        "usage of a host at the second of the request",
    ),
    _unscored(_OF_NODES, "cpuPercent|cpuTimes|memoryInfo|memoryFullInfo|numFds|mem", "usage of a process"),
    _unscored(_OF_NODES, _FIGURES, "counters of raylets and core workers"),
    _unscored(r"^/api/v0/runtime_envs", "ref_cnt", "the number of users at the second of the request"),
    _unscored(
        r"^/api/cluster_status",
        r"time|timestamp|mostDelayedHeartbeats|monitorPid|requestTime|gcsRequestTime|gcs_request_time|\w+_time_s|\w*Time",
        "when the report was made, and how long it took",
    ),
    _unscored(r"^/api/cluster_status", "objectStoreMemory|object_store_memory", "bytes in use"),
    _unscored(r"^/events", r"events\.\w+\[\]\.time", "Ray adds it on a request for /api/v0/cluster_events"),
    _unscored(r"^/api/v0/", "partial_failure_warning", "says what was not recorded"),
    _unscored(
        r"^/api/v0/cluster_metadata",
        "gitCommit|sessionId|os",
        "Ray leaves them out where usage statistics are disabled",
    ),
    _unscored(r"", "msg_time|elapsed|query_time", "the time of the request itself"),
)

CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?|MostDelayedHeartbeats: \{.*?\}|"
    r"[\d.]+ ?[KMG]?i?B/[\d.]+ ?[KMG]i?B (object_store_memory|memory)"
)
"""Readings of the clock and of memory in the text of the cluster's status; its lines come in any order."""


_BY = ("task_id", "actor_id", "pid", "submission_id", "filename")
_WITH_ID = (
    (re.compile(r"^/api/jobs/[^/]+/logs$"), "/api/jobs/{id}/logs"),
    (re.compile(r"^/api/jobs/[^/]+$"), "/api/jobs/{id}"),
    (re.compile(r"^/nodes/.+"), "/nodes/{id}"),
    (re.compile(r"^/logical/actors/.+"), "/logical/actors/{id}"),
    (re.compile(r"^/api/data/datasets/.+"), "/api/data/datasets/{id}"),
)


def route(url: str) -> str:
    """The route of a URL, apart by what makes its answer another one."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    path = next((name for pattern, name in _WITH_ID if pattern.match(parts.path)), parts.path)
    if path == "/api/v0/logs/file":
        return f"{path} by {next(name for name in _BY if name in query)}"
    if path == "/api/v0/tasks/summarize":
        return f"{path} by {query.get('summary_by', ['name'])[0]}"
    if path == "/nodes":
        return f"{path} {query['view'][0]}"
    if "filter_keys" in query and path in ("/api/v0/tasks", "/api/v0/actors"):
        return f"{path} filtered"
    if "glob" in query:
        return f"{path} glob"
    if path == "/api/cluster_status" and "format" in query:
        return f"{path} as text"
    return path
