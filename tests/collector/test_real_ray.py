"""A collector beside a real Ray: its events, logs and dashboard state arrive in the bucket."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import read_catalog
from ray_history.archive.event_files import Problem
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.session_files import SessionFiles, events_of, list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.collector.node.lookup import NodeLookup
from ray_history.metrics.block import read_block
from ray_history.metrics.dashboards import FILE_SUFFIX, unpack
from tests.collector.collector_process import CollectorProcess
from tests.support.processes import free_port
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

# With a token, Ray 2.60 enables authentication by default.
TOKEN = "of-this-test"
JOB = """
import ray, sys, time
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init()

@ray.remote
def leaf(n):
    print("leaf", n)
    return n

@ray.remote
def tree(n):
    return sum(ray.get([leaf.remote(i) for i in range(n)]))

@ray.remote(max_retries=1, retry_exceptions=True)
def failing():
    print("about to fail", file=sys.stderr)
    raise ValueError("on purpose")

@ray.remote
class Counter:
    def __init__(self):
        self.n = 0
    def add(self):
        self.n += 1
        return self.n

assert ray.get(tree.remote(5)) == 10
for node in ray.nodes():  # each has something to tell, wherever Ray put the rest
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    ray.get(leaf.options(scheduling_strategy=there, num_cpus=0.1).remote(-1))
counter = Counter.options(name="counter").remote()
assert [ray.get(counter.add.remote()) for _ in range(3)] == [1, 2, 3]
try:
    ray.get(failing.remote())
except ValueError:
    print("failed as planned")
placement = ray.util.placement_group([{"CPU": 0.1}])
ray.get(placement.ready())
print("the end")
"""


@pytest.fixture
def cluster(real_ray: str) -> Iterator[RayCluster]:
    cluster = RayCluster(TOKEN)
    yield cluster
    cluster.remove()


@pytest.fixture
def archive(tmp_path: Path) -> Store:
    return open_store(resolve((tmp_path / "archive").as_uri(), Upstream(), {}))


def collector(tmp_path: Path, cluster: RayCluster, store: Store, *flags: str) -> CollectorProcess:
    return CollectorProcess(
        tmp_path / "collector",
        store.url,
        f"--ray-tmp-root={cluster.root}",
        f"--ray-dashboard-address={cluster.dashboard}",
        *flags,
        env=cluster.authentication,
    )


def opened(store: Store, session: str) -> SessionFiles:
    (found,) = [entry for entry in read_catalog(store).sessions if entry.name == session]
    return list_session(store, found)


def task_attempts(events: list[dict[str, Any]]) -> set[tuple[str, int]]:
    payloads = ("taskDefinitionEvent", "actorTaskDefinitionEvent", "taskLifecycleEvent")
    return {
        (base64.b64decode(event[name]["taskId"]).hex(), event[name].get("taskAttempt", 0))
        for event in events
        for name in payloads
        if name in event
    }


def read_events(store: Store, files: SessionFiles) -> list[dict[str, Any]]:
    problems: list[Problem] = []
    events = [json.loads(raw) for raw in events_of(store, files, problems)]
    assert problems == []
    return events


def on_disk(session: Path) -> dict[str, bytes]:
    files = (path for path in (session / "logs").rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(session / "logs")): path.read_bytes() for path in files}


def in_bucket(store: Store, files: SessionFiles, node: str) -> dict[str, bytes]:
    logs = files.logs(store)
    found = {log.name: b"".join(logs.open(log).stream()) for log in logs.list(node)}
    assert logs.problems == []
    return found


def assert_logs_equal(bucket: dict[str, bytes], disk: dict[str, bytes]) -> None:
    assert disk.keys() - bucket.keys() == set(), "empty files, too"
    different = {name: (bucket[name][-300:], disk[name][-300:]) for name in disk if bucket[name] != disk[name]}
    assert different == {}


def test_a_session_with_two_nodes_is_stored(tmp_path: Path, cluster: RayCluster, archive: Store) -> None:
    head = collector(tmp_path, cluster, archive, "--role=Head")
    worker = CollectorProcess(
        tmp_path / "worker", archive.url, f"--ray-tmp-root={cluster.root}", "--enable-log-collector=false"
    )
    with head, worker:  # both listen before there is a Ray
        cluster.start_head(head.port)
        cluster.start_node(worker.port)
        session = cluster.session
        until(lambda: any(entry.name == session.name for entry in read_catalog(archive).sessions))
        cluster.submit(JOB, head.port, submission_id="first")
        head.kill9()  # the collector restarts under a running Ray
        head.start()
        cluster.submit(JOB, head.port, submission_id="second")
        tasks, actors, nodes = cluster.list("tasks"), cluster.list("actors"), cluster.list("nodes")
        (head_row,) = [row for row in nodes if row["is_head_node"]]
        asked = {"FQ_RAY_IP": cluster.dashboard, "POD_IP": head_row["node_ip"]}
        assert NodeLookup(asked, lambda: TOKEN)() in {row["node_id"] for row in nodes}
        until(lambda: any("jobs" in key for key in opened(archive, session.name).endpoints))
        time.sleep(3)  # Ray's workers report every second
        cluster.end()
        head.end()
        worker.end()

    files = opened(archive, session.name)
    events = read_events(archive, files)
    assert {(row["task_id"], row["attempt_number"]) for row in tasks} - task_attempts(events) == set()
    defined = {
        base64.b64decode(e["actorDefinitionEvent"]["actorId"]).hex() for e in events if "actorDefinitionEvent" in e
    }
    assert {row["actor_id"] for row in actors} - defined == set()
    assert {row["node_id"] for row in nodes} == {file.key.node for file in files.with_events}
    assert files.generations == {Generation.C}

    assert_logs_equal(in_bucket(archive, files, head_row["node_id"]), on_disk(session))
    assert files.tail_bundles == (), "superseded by whole files"

    endpoints = {name: archive.get(stored.key) for name, stored in files.endpoints.items()}
    assert json.loads(endpoints["restful__api__v0__cluster_metadata"])["data"]["rayVersion"]
    assert {job["submission_id"] for job in json.loads(endpoints["restful__api__jobs"])} == {"first", "second"}
    groups = json.loads(endpoints["restful__api__v0__placement_groups?detail=1&limit=10000"])
    assert len(groups["data"]["result"]["result"]) == 2

    recorded = metrics(archive)
    for row in nodes:
        assert {"up", "ray_node_mem_used", "ray_node_cpu_utilization"} <= recorded[row["node_id"], "agent"]
    stored = unpack(archive.get(layout.metric_dashboards_key("", Cluster("default", "oracle"), session.name)))
    written = {path.name: json.loads(path.read_text()) for path in session.glob("metrics/grafana/dashboards/*.json")}
    assert {each.name + FILE_SUFFIX: json.loads(each.definition) for each in stored} == written
    assert {"default", "data", "serve", "serve_deployment"} <= {each.name for each in stored}

    ledgers = {json.loads(archive.get(found.key))["role"]: found.key for found in archive.list("history-ledger")}
    assert set(ledgers) == {"head", "worker"}
    account = json.loads(archive.get(ledgers["head"]))
    assert account["ended"] == "graceful"
    assert account["events"]["dropped_by_ray"] == 0
    assert account["logs"]["left"] == 0
    assert account["logs"]["bytes_uploaded"] <= 2.2 * account["logs"]["bytes_seen"]


def metrics(archive: Store) -> dict[tuple[str, str], set[str]]:
    """The names of the metrics that are stored, by node and endpoint."""
    found = defaultdict[tuple[str, str], set[str]](set)
    for info in archive.list("history-metrics"):
        key = layout.parse_metric_block_key("/".join(info.key.split("/")[-3:]))
        if key is not None:
            block = read_block(archive.get(info.key))
            found[key.node, key.endpoint].update(series.partition("{")[0] for series in block.series)
    return found


def holds(archive: Store, session: str, logs: dict[str, bytes]) -> bool:
    """Whether the archive lists at least as many bytes of each log of the session's only node."""
    files = opened(archive, session).logs(archive)
    stored = {log.name: log.size for node in files.nodes() for log in files.list(node)}
    return all(stored.get(name, 0) >= len(body) for name, body in logs.items())


def test_sudden_deaths_leave_all_but_the_last_moment(tmp_path: Path, cluster: RayCluster, archive: Store) -> None:
    with collector(tmp_path, cluster, archive, "--role=Head") as head:
        cluster.start_head(head.port)
        first = cluster.session
        cluster.submit(JOB, head.port, submission_id="first")
        first_tasks = cluster.list("tasks")
        time.sleep(2)
        cluster.kill()  # everything of Ray at once, as when its container is out of memory
        time.sleep(1)
        cluster.start_head(head.port)  # a new session under the running collector
        second = cluster.session
        assert second.name != first.name
        cluster.submit(JOB, head.port, submission_id="second")
        second_tasks = cluster.list("tasks")
        before = on_disk(second)
        until(lambda: holds(archive, second.name, before))  # some seconds later, on a machine with nothing else to do
        until(lambda: (head.folder / "data" / "logs" / f"{first.name}.finished").exists())
        head.kill9()  # and now machine and all
        cluster.kill()

    for session, tasks in ((first, first_tasks), (second, second_tasks)):
        attempts = task_attempts(read_events(archive, opened(archive, session.name)))
        assert {(row["task_id"], row["attempt_number"]) for row in tasks} - attempts == set()

    files = opened(archive, first.name)
    (node,) = {file.key.node for file in files.with_events}
    assert_logs_equal(in_bucket(archive, files, node), on_disk(first))

    files = opened(archive, second.name)
    (node,) = {file.key.node for file in files.with_events}
    stitched, disk = in_bucket(archive, files, node), on_disk(second)
    assert files.tail_bundles
    for name, body in before.items():
        kept = stitched.get(name, b"")
        assert disk[name].startswith(kept), f"{name} is not a part of the file on disk"
        assert len(kept) >= len(body), f"{name} lost bytes that were stored before the death"


ON_NODE = """
import ray
ray.init()

@ray.remote(resources={"LIFE": 1})
def told():
    print("told on", ray.get_runtime_context().get_node_id())

ray.get(told.remote())
"""


def test_a_raylet_that_starts_again_is_another_node(tmp_path: Path, cluster: RayCluster, archive: Store) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="rw", dir="/tmp") as volume,  # short, as Ray's sockets need it
        CollectorProcess(tmp_path / "worker", archive.url, f"--ray-tmp-root={volume}") as worker,
    ):
        cluster.start_head(free_port(), cpus=1)  # whose events are not asked for

        def live(life: str) -> str:
            cluster.start_node(worker.port, f"--temp-dir={volume}", "--resources=" + json.dumps({life: 1}))
            cluster.submit(ON_NODE.replace("LIFE", life), worker.port, submission_id=life)
            alive = [row for row in cluster.list("nodes") if row["state"] == "ALIVE" and not row["is_head_node"]]
            newest = max(alive, key=lambda row: row["start_time_ms"])  # Ray takes a while to see a death
            until(lambda: worker.get("/v1/status")["node"] == newest["node_id"])
            return str(newest["node_id"])

        first = live("first")
        cluster.kill(volume)
        second = live("second")
        until(lambda: {first, second} <= set(opened(archive, cluster.session.name).nodes))
        worker.kill9()
        worker.start()
        cluster.end()
        worker.end()

        files, disk = opened(archive, cluster.session.name), on_disk(Path(volume) / cluster.session.name)
    stored = {node: in_bucket(archive, files, node) for node in (first, second)}
    names = [name for logs in stored.values() for name in logs]
    assert len(names) == len(set(names)), "nothing is stored twice"
    assert_logs_equal({name: body for logs in stored.values() for name, body in logs.items()}, disk)
    for node, raylet in ((first, "raylet.out"), (second, "raylet.1.out")):
        assert f"node_id={node}".encode() in stored[node][raylet]
        told = [name for name, body in stored[node].items() if name.startswith("worker-") and b"told on" in body]
        assert [f"told on {node}".encode() in stored[node][name] for name in told] == [True]

    accounts = [json.loads(archive.get(found.key)) for found in archive.list("history-ledger")]
    assert {account["node"]: account["ended"] for account in accounts} == dict.fromkeys(stored, "graceful")
    assert sum(account["logs"]["files"] for account in accounts) == len(disk)
    assert sum(account["events"]["stored"] for account in accounts) == len(read_events(archive, files))
