"""The state API of a real cluster, for tests that compare it with the rebuilt history."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.collector.collector_process import CollectorProcess
from tests.support.ray_cluster import RayCluster

WORKLOADS = Path(__file__).with_name("workloads")
Row = dict[str, Any]
Rows = dict[str, Row]
"""Rows by their key."""

KEYS = {
    "tasks": ("task_id", "attempt_number"),
    "actors": ("actor_id",),
    "nodes": ("node_id",),
    "workers": ("worker_id",),
    "jobs": ("submission_id", "job_id"),
    "placement_groups": ("placement_group_id",),
}
ENDED = {"tasks": ("FINISHED", "FAILED"), "jobs": ("SUCCEEDED", "FAILED", "STOPPED")}


def keyed(table: str, rows: list[Row]) -> Rows:
    found = {"/".join(str(row[name]) for name in KEYS[table]): row for row in rows}
    assert len(found) == len(rows), f"{table}: the same key twice"
    return found


def submit(cluster: RayCluster, workload: str, name: str, **variables: str) -> None:
    cluster.submit_file(WORKLOADS / f"{workload}.py", name, {"WORKLOAD": workload, **variables}, {"of": workload})


def has_status(cluster: RayCluster, name: str, wanted: str) -> bool:
    status = cluster.get(f"/api/jobs/{name}")["status"]
    assert status in (wanted, "PENDING", "RUNNING"), cluster.get(f"/api/jobs/{name}/logs")["logs"]
    return bool(status == wanted)


def listings(cluster: RayCluster) -> dict[str, Rows]:
    queries = {table: table for table in KEYS} | {"tasks": "tasks?exclude_driver=false"}
    answers = {}
    for table, query in queries.items():
        more = "&" if "?" in query else "?"
        found = cluster.get(f"/api/v0/{query}{more}detail=1&limit=10000")["data"]["result"]
        assert not found["partial_failure_warning"]
        assert found["total"] == len(found["result"])
        answers[table] = keyed(table, found["result"])
    return answers


def differences(live: Rows, rebuilt: Rows) -> Iterator[tuple[str, str, Row, Row]]:
    """The key, the field and both rows of every difference."""
    for key in sorted(live.keys() | rebuilt.keys()):
        if key not in rebuilt:
            yield key, "live", live[key], {}
        elif key not in live:
            yield key, "rebuilt", {}, rebuilt[key]
        else:
            for field in sorted(live[key].keys() | rebuilt[key].keys()):
                if live[key].get(field, "<none>") != rebuilt[key].get(field, "<none>"):
                    yield key, field, live[key], rebuilt[key]


def received(collector: CollectorProcess) -> int:
    sessions = collector.get("/v1/status")["sessions"].values()
    return sum(session["events"]["received"] for session in sessions)


def wait_for_last_events(collector: CollectorProcess) -> None:
    """Wait until no more events come from the node: events in Ray's buffers are shown live, and lost when it dies."""
    now, before = -1, -2
    deadline = time.monotonic() + 20
    while now != before and time.monotonic() < deadline:
        time.sleep(2)
        before, now = now, received(collector)
    assert now == before > 0
