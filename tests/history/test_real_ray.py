"""The tables of a dead cluster are what its live dashboard showed just before: listing by listing, field by field.

One cluster of three nodes goes through all that tasks, actors, jobs, placement groups and nodes can go through (see
`workloads`), falls silent, is listed by its own state API, and is killed. What may differ then, and why, is in
`known_differences`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.history.read.json_rows import row
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST, View
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from tests.collector.collector_process import CollectorProcess
from tests.history.known_differences import KNOWN, MOVING, Comparison
from tests.history.living import (
    ENDED,
    KEYS,
    WORKLOADS,
    Rows,
    has_status,
    keyed,
    listings,
    submit,
    wait_for_last_events,
)
from tests.support.ray_cluster import RayCluster, plain_environment
from tests.support.waiting import LIMIT, until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

POLL_SECONDS = 2
STATUSES = {"tasks": "SUCCEEDED", "actors": "SUCCEEDED", "fails": "FAILED", "stopped": "STOPPED", "lives": "RUNNING"}


@dataclass(frozen=True)
class Session:
    """A session that ended, and what its dashboard showed last."""

    live: dict[str, Rows]
    silent_job: str
    tables: Tables
    last_ns: int

    def rebuilt(self, table: str, view: View = LAST) -> Rows:
        rows = self.tables.rows(f"select {row(table, detail=True)} from {self.tables.source(table, view)}")
        return keyed(table, [json.loads(text) for (text,) in rows])


def run_driver(cluster: RayCluster, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(WORKLOADS / "plain.py")],
        env={**environment, "RAY_ADDRESS": cluster.address},
        cwd=cluster.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def is_settled(live: dict[str, Rows]) -> bool:
    """Whether Ray has failed what ended jobs left behind; it waits for 15 s."""
    ended = {row["job_id"] for row in live["jobs"].values() if row["status"] in ENDED["jobs"]}
    return all(row["state"] in ENDED["tasks"] for row in live["tasks"].values() if row["job_id"] in ended)


def quiet(cluster: RayCluster) -> dict[str, Rows]:
    """The listings once they have stopped changing."""
    changes, now = ["all"], listings(cluster)
    deadline = time.monotonic() + LIMIT
    while changes and time.monotonic() < deadline:
        time.sleep(2)
        before, now = now, listings(cluster)
        comparison = Comparison(before, now)
        changes = [text for table in KEYS for text in comparison.unexplained(table, MOVING)]
        changes += [] if is_settled(now) else ["tasks of ended jobs are under way"]
    assert not changes, "\n".join(changes)
    users = keyed("tasks", cluster.list("tasks"))
    assert set(users) == {key for key, row in now["tasks"].items() if row["type"] != "DRIVER_TASK"}
    return now


def live_through_everything(
    cluster: RayCluster, head: CollectorProcess, east: CollectorProcess, doomed: CollectorProcess
) -> tuple[dict[str, Rows], str]:
    """Return what the dashboard showed last, and the job whose driver did not export."""
    cluster.start_head(head.port, cpus=4)
    submit(cluster, "leaves", "fails")
    cluster.start_node(east.port, "--labels=zone=east", cpus=2)  # one by one: at once they would choose the same socket
    cluster.start_node(doomed.port, '--resources={"doomed": 10}', "--labels=size=s", cpus=0)
    submit(cluster, "lives", "lives")
    submit(cluster, "leaves", "stopped")
    until((cluster.root / "stopped.ready").exists, "job stopped is under way")
    cluster.post("/api/jobs/stopped/stop", {})
    submit(cluster, "tasks", "tasks")
    until((cluster.root / "lives.ready").exists, "job lives is under way")
    wait_for_last_events(doomed)
    (raylet,) = cluster.pids("doomed,10")
    os.kill(raylet, signal.SIGKILL)
    submit(cluster, "actors", "actors")
    run_driver(cluster, cluster.environment(head.port))
    run_driver(cluster, plain_environment())
    silent = max(row["job_id"] for row in cluster.list("jobs") if row["type"] == "DRIVER")
    for name, wanted in STATUSES.items():
        until(partial(has_status, cluster, name, wanted), f"job {name} is {wanted}")
    until(lambda: any(row["state"] == "DEAD" for row in cluster.list("nodes")), "the node is dead")
    return quiet(cluster), silent


@pytest.fixture(scope="module")
def session(real_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("real")
    store: Store = open_store(resolve((folder / "archive").as_uri(), Upstream(), {}))
    cluster = RayCluster()
    with ExitStack() as stack:
        stack.callback(cluster.remove)
        root = f"--ray-tmp-root={cluster.root}"
        polling = (f"--ray-dashboard-address={cluster.dashboard}", f"--poll-interval={POLL_SECONDS}s")
        collectors = [
            CollectorProcess(folder / "head", store.url, root, "--role=Head", *polling),
            CollectorProcess(folder / "east", store.url, root, "--enable-log-collector=false"),
            CollectorProcess(folder / "doomed", store.url, root, "--enable-log-collector=false"),
        ]
        for collector in collectors:
            stack.enter_context(collector)
        live, silent = live_through_everything(cluster, *collectors)
        (folder / "live.json").write_text(json.dumps(live, indent=1))  # to look into a failure
        name = cluster.session.name
        time.sleep(POLL_SECONDS + 1)  # polled once more, and all events have left Ray
        cluster.kill()
        with ThreadPoolExecutor() as threads:
            list(threads.map(CollectorProcess.end, collectors))
        (found,) = [entry for entry in read_catalog(store).sessions if entry.name == name]
        opened = stack.enter_context(Indexer(store, Cache(folder / "cache", 1 << 30)).open(found))
        assert opened.manifest.problems == []
        tables = Tables(opened.directory)
        stack.callback(tables.close)
        yield Session(live, silent, tables, opened.manifest.facts.last_ns)


def test_the_cluster_went_through_every_state(session: Session) -> None:
    def values(table: str, field: str) -> set[Any]:
        return {row[field] for row in session.live[table].values()}

    assert values("tasks", "type") == {"NORMAL_TASK", "ACTOR_TASK", "ACTOR_CREATION_TASK", "DRIVER_TASK"}
    pending = {"PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT"}
    assert values("tasks", "state") > {"RUNNING", "FINISHED", "FAILED"} | pending, "none waits for its actor"
    died = {"WORKER_DIED", "NODE_DIED", "ACTOR_DIED"}
    assert values("tasks", "error_type") >= {"TASK_EXECUTION_EXCEPTION", "TASK_CANCELLED"} | died
    assert "RUNTIME_ENV_SETUP_FAILED" in values("tasks", "error_type")
    assert values("tasks", "attempt_number") == {0, 1, 2}
    assert values("actors", "state") == {"ALIVE", "DEAD", "RESTARTING", "PENDING_CREATION"}
    assert values("actors", "num_restarts") == {"0", "1"}
    assert values("actors", "name") >= {"", "counter", "detached", "orphan"}
    causes = [row["death_cause"] for row in session.live["actors"].values() if row["death_cause"]]
    died_of = {cause.get("actor_died_error_context", {}).get("reason") for cause in causes}
    assert died_of >= {"WORKER_DIED", "OWNER_DIED", "NODE_DIED", "RAY_KILL"}
    assert died_of & {"OUT_OF_SCOPE", "REF_DELETED"}, "the first becomes the second some moments later"
    assert {kind for cause in causes for kind in cause} >= {
        "creation_task_failure_context",
        "runtime_env_failed_context",
    }
    assert values("jobs", "status") == set(STATUSES.values())
    assert values("nodes", "state") == {"ALIVE", "DEAD"}
    assert values("workers", "worker_type") == {"WORKER", "DRIVER"}
    assert values("workers", "exit_type") >= {None, "SYSTEM_ERROR", "INTENDED_USER_EXIT", "INTENDED_SYSTEM_EXIT"}
    assert values("placement_groups", "state") == {"CREATED", "PENDING", "REMOVED"}


@pytest.fixture(scope="module")
def comparison(session: Session) -> Comparison:
    rebuilt = {table: session.rebuilt(table) for table in KEYS}
    return Comparison(session.live, rebuilt, silent_job=session.silent_job)


@pytest.mark.parametrize("table", KEYS)
def test_the_tables_are_what_the_dashboard_showed(comparison: Comparison, table: str) -> None:
    found = comparison.unexplained(table, KNOWN)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("table", KEYS)
def test_closed_tables_leave_nothing_alive(session: Session, table: str) -> None:
    observed, closed = session.rebuilt(table), session.rebuilt(table, View(closed_at=session.last_ns))
    assert observed.keys() == closed.keys()
    state = {"workers": "is_alive", "jobs": "status"}.get(table, "state")
    over = {"workers": (False,), "placement_groups": ("REMOVED",), **ENDED}.get(table, ("DEAD",))
    assert {row[state] for row in closed.values()} <= set(over)
    open_ones = {key for key, row in observed.items() if row[state] not in over}
    assert open_ones, "nothing was alive"
    assert {key: row for key, row in observed.items() if key not in open_ones} == {
        key: row for key, row in closed.items() if key not in open_ones
    }
    for key in open_ones:
        row = closed[key]
        end = row.get("end_time_ms", row.get("end_time", session.last_ns / 1e6))
        assert end is not None
        assert abs(end - session.last_ns / 1e6) <= 1, row
        assert {
            "tasks": row.get("error_type") in ("NODE_DIED", "WORKER_DIED") and row.get("error_message"),
            "actors": row.get("death_cause"),
            "nodes": row.get("state_message"),
            "workers": row.get("exit_type") == "SYSTEM_ERROR" and row.get("exit_detail"),
            "jobs": row.get("message"),
            "placement_groups": True,
        }[table], row
