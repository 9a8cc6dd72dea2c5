"""Ray Data and Ray Serve after the cluster is killed: a finished pipeline and a running application.

Serve checks the health of its replicas every second, so its answers keep changing. Compared is what two live answers
some seconds apart have in common.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.server.app import AppConfig
from tests.collector.collector_process import CollectorProcess
from tests.history.living import ENDED, KEYS, Rows, differences, has_status, keyed, listings, submit
from tests.server.serving import Served, served
from tests.support.processes import free_port
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]

POLL_SECONDS = 2


@dataclass(frozen=True)
class ClusterHistory:
    """Two snapshots of a live cluster, and a server with its history."""

    snapshots: tuple[dict[str, Any], dict[str, Any]]
    server: Served
    base: str

    def stable(self, table: str) -> Rows:
        """The rows that are equal in both snapshots, of tables with final states those in one."""
        first, second = (snapshot[table] for snapshot in self.snapshots)
        final_states = ENDED.get(table)
        state = "status" if table == "jobs" else "state"
        return {
            key: row
            for key, row in first.items()
            if second.get(key) == row and (final_states is None or row[state] in final_states)
        }

    def rebuilt(self, table: str) -> Rows:
        answer = self.server.get(f"{self.base}/api/v0/{table}?detail=1&limit=100000&exclude_driver=false&raw=true")
        return keyed(table, answer.rows)


def snapshot(cluster: RayCluster) -> dict[str, Any]:
    found: dict[str, Any] = dict(listings(cluster))
    found["serve"] = cluster.get("/api/serve/applications/")
    job = next(row["job_id"] for row in found["jobs"].values() if row["submission_id"] == "pipeline")
    found["datasets"] = cluster.get(f"/api/data/datasets/{job}")
    found["data job"] = job
    return found


def serves(cluster: RayCluster) -> bool:
    """Whether the application has answered; fails at once, with its log, if its job failed."""
    has_status(cluster, "serves", "RUNNING")
    return (cluster.root / "serves.ready").exists()


@pytest.fixture(scope="module")
def cluster_history(real_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterHistory]:
    folder = tmp_path_factory.mktemp("libraries")
    store = open_store(resolve((folder / "archive").as_uri(), Upstream(), {}))
    cluster = RayCluster()
    with ExitStack() as stack:
        stack.callback(cluster.remove)
        collector = stack.enter_context(
            CollectorProcess(
                folder / "head",
                store.url,
                f"--ray-tmp-root={cluster.root}",
                "--role=Head",
                f"--ray-dashboard-address={cluster.dashboard}",
                f"--poll-interval={POLL_SECONDS}s",
            )
        )
        cluster.start_head(collector.port, cpus=4)
        submit(cluster, "serves", "serves", SERVE_PORT=str(free_port()))
        submit(cluster, "data", "pipeline")
        until(partial(serves, cluster), "the application serves")
        until(lambda: has_status(cluster, "pipeline", "SUCCEEDED"), "the pipeline has ended")
        first = snapshot(cluster)
        time.sleep(3 * POLL_SECONDS)  # polled by the collector in between
        snapshots = (first, snapshot(cluster))
        (folder / "live.json").write_text(json.dumps(snapshots, indent=1))  # for debugging
        session = cluster.session.name
        cluster.kill()
        collector.end()
        server = stack.enter_context(served(store, folder / "cache", AppConfig(redact=False)))
        yield ClusterHistory(snapshots, server, f"/s/default/oracle/{session}")


@pytest.mark.parametrize("table", sorted(KEYS.keys() - {"placement_groups"}))
def test_rows_that_did_not_change_equal_the_live_ones(cluster_history: ClusterHistory, table: str) -> None:
    live = cluster_history.stable(table)
    assert live, "no row is stable"
    rebuilt = {key: row for key, row in cluster_history.rebuilt(table).items() if key in live}
    found = [
        f"{table} {key} ({one.get('name')}): {field}\n  live    {one.get(field)}\n  rebuilt {other.get(field)}"
        for key, field, one, other in differences(live, rebuilt)
    ]
    assert not found, "\n".join(found)


def test_the_datasets_equal_the_live_ones(cluster_history: ClusterHistory) -> None:
    live = cluster_history.snapshots[1]
    assert [dataset["state"] for dataset in live["datasets"]["datasets"]]
    url = f"{cluster_history.base}/api/data/datasets/{live['data job']}"
    assert cluster_history.server.get(url).json == live["datasets"]


def test_the_application_has_its_replicas(cluster_history: ClusterHistory) -> None:
    first, second = (snapshot["serve"] for snapshot in cluster_history.snapshots)
    assert first["applications"]["greets"]["status"] == "RUNNING"
    assert len(first["applications"]["greets"]["deployments"]["Doubles"]["replicas"]) == 2
    details = cluster_history.server.get(f"{cluster_history.base}/api/serve/applications/?raw=1").json
    assert common(details, common(first, second)) == common(first, second)


def common(one: Any, other: Any) -> Any:
    """The parts that are equal in both."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: common(one[key], other[key]) for key in one if key in other and is_comparable(one[key], other[key])
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [common(*pair) for pair in zip(one, other, strict=True)]
    return one if one == other else None


def is_comparable(one: Any, other: Any) -> bool:
    return isinstance(one, (dict, list)) or one == other
