"""The head's collector scrapes the agents of those workers that have no collector, and no others."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive import layout
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster
from ray_history.archive.ledger import Ledger
from ray_history.archive.ledger import encode as encode_ledger
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.metrics import MetricsRecorder, Schedule
from ray_history.collector.metrics import workers as metric_workers
from ray_history.collector.metrics.dashboards import SessionDashboards
from ray_history.collector.metrics.keep import chosen
from ray_history.collector.metrics.targets import AGENT, targets
from ray_history.collector.metrics.workers import DISCOVERY_FILE, PATIENCE, PAUSE, RECHECK, WorkerTargets
from ray_history.collector.node.identity import RayNode
from ray_history.collector.polling.dashboard_client import Dashboard
from ray_history.metrics.block import read_block
from tests.collector.polling.dashboard_stand_in import DashboardStandIn
from tests.support.processes import free_port
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import until

SESSION = "session_2026-11-15_20-00-00_000000_1"
OWNER = Cluster("default", "demo")
HEAD, FIRST, SECOND = "a" * 56, "b" * 56, "c" * 56
SUMMARY = "/nodes?view=summary"


def summary(nodes: dict[str, str]) -> tuple[int, bytes]:
    """The dashboard's list of nodes, from their agents' endpoints."""
    raylets = []
    for endpoint, node in nodes.items():
        address, _, port = endpoint.rpartition(":")
        state = "DEAD" if node == "d" * 56 else "ALIVE"
        raylets.append(
            {"nodeId": node, "nodeManagerAddress": address.strip("[]"), "metricsExportPort": int(port), "state": state}
        )
    return 200, json.dumps({"data": {"summary": [{"raylet": raylet} for raylet in raylets]}}).encode()


class HeadPod:
    """A head's volume, an archive and a stand-in for the dashboard; time passes when it is told to."""

    def __init__(self, folder: Path, dashboard: DashboardStandIn) -> None:
        self.store: Store = open_store(DirectorySettings(folder / "archive"))
        self.store.check(create=True)
        self.session = folder / "ray" / SESSION
        self.session.mkdir(parents=True)
        self.dashboard = dashboard
        self.now = 1000.0
        node = RayNode(self.session.parent, head=True, node_id=HEAD, session_dir=self.session)
        self.workers = WorkerTargets(
            Destination(self.store, OWNER), node, Dashboard(dashboard.url, lambda: None), clock=lambda: self.now
        )

    def has(self, nodes: dict[str, str], *others: str, place: Path | None = None) -> None:
        """Make these the endpoints of the cluster."""
        groups = [{"labels": {"job": "ray"}, "targets": [*nodes, *others]}]
        ((place or self.session) / DISCOVERY_FILE).write_text(json.dumps(groups))
        self.dashboard.answers[SUMMARY] = summary(nodes)

    def has_collector(self, node: str) -> None:
        self.store.put(layout.ledger_key("", OWNER, SESSION, node), encode_ledger(Ledger(node=node)))

    def found(self, *, after: float = 0.0) -> dict[str, str]:
        """The instances that are scraped, with their nodes, after some seconds."""
        self.now += after
        return {target.instance: target.node for target in self.workers.find()}


@pytest.fixture
def head(tmp_path: Path) -> Iterator[HeadPod]:
    with DashboardStandIn() as dashboard:
        yield HeadPod(tmp_path, dashboard)


NODES = {"10.0.0.1:8080": HEAD, "10.0.0.2:8080": FIRST, "10.0.0.3:8080": SECOND}
OTHERS = ("10.0.0.1:44217", "10.0.0.1:44227")


def test_a_worker_without_a_collector_is_scraped(head: HeadPod) -> None:
    head.has(NODES, *OTHERS)
    head.has_collector(FIRST)
    assert head.found() == {}, "its collector may be starting"
    assert head.found(after=PATIENCE) == {"10.0.0.3:8080": SECOND}
    (target,) = head.workers.find()
    assert (target.session, target.kind, target.host, target.port) == (SESSION, AGENT, "10.0.0.3", 8080)


def test_a_collector_that_starts_late_takes_over(head: HeadPod) -> None:
    head.has(NODES)
    head.found()
    assert set(head.found(after=PATIENCE).values()) == {FIRST, SECOND}
    head.has_collector(SECOND)
    assert set(head.found(after=RECHECK).values()) == {FIRST}


def test_nodes_come_and_go(head: HeadPod) -> None:
    head.has({"10.0.0.1:8080": HEAD}, *OTHERS)
    assert head.found(after=PATIENCE) == {}
    head.has(NODES, *OTHERS)
    head.found(after=PAUSE)
    assert set(head.found(after=PATIENCE).values()) == {FIRST, SECOND}
    head.has({"10.0.0.1:8080": HEAD, "10.0.0.3:8080": SECOND}, *OTHERS)
    assert head.found(after=1) == {"10.0.0.3:8080": SECOND}


def test_the_address_of_a_dead_node_belongs_to_the_living_one(head: HeadPod) -> None:
    head.has({"10.0.0.1:8080": HEAD, "10.0.0.2:8080": FIRST})
    status, body = head.dashboard.answers[SUMMARY]
    rows = json.loads(body)
    rows["data"]["summary"] += json.loads(summary({"10.0.0.2:8080": "d" * 56})[1])["data"]["summary"]
    head.dashboard.answers[SUMMARY] = status, json.dumps(rows).encode()
    head.found()
    assert head.found(after=PATIENCE) == {"10.0.0.2:8080": FIRST}


def test_idle_clusters_cost_no_requests(head: HeadPod) -> None:
    head.has(NODES, *OTHERS)
    head.has_collector(FIRST)
    head.has_collector(SECOND)
    for _ in range(10):
        head.found(after=PAUSE)
    requests = len(head.dashboard.requests)

    def listed(*_: object) -> None:
        raise AssertionError

    head.workers._destination.store.list = listed  # type: ignore[method-assign,assignment]
    for _ in range(100):
        assert head.found(after=PAUSE) == {}
    assert len(head.dashboard.requests) == requests <= 4


def test_an_archive_that_cannot_be_listed_is_asked_again(head: HeadPod, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise Unreachable("the bucket cannot be reached")

    head.has(NODES)
    head.found()
    with monkeypatch.context() as broken:
        broken.setattr(type(head.store), "list", unreachable)
        assert head.found(after=PATIENCE) == {}
    assert set(head.found(after=PAUSE).values()) == {FIRST, SECOND}


@pytest.mark.parametrize("answer", [(500, b""), (200, b"[]"), (200, b'{"data": {"summary": [{"raylet": 1}]}}')])
def test_without_a_valid_answer_of_the_dashboard_nothing_is_scraped(head: HeadPod, answer: tuple[int, bytes]) -> None:
    head.has(NODES)
    head.dashboard.answers[SUMMARY] = answer
    head.found()
    assert head.found(after=PATIENCE) == {}
    head.has(NODES)
    head.found(after=PAUSE)
    assert set(head.found(after=PATIENCE).values()) == {FIRST, SECOND}


def test_nodes_with_names_that_could_lead_elsewhere_are_ignored(head: HeadPod) -> None:
    head.has({"10.0.0.1:8080": HEAD, "10.0.0.2:8080": "../../x", "a b:8080": FIRST, "[fd00::2]:8080": SECOND})
    head.found()
    assert head.found(after=PATIENCE) == {"[fd00::2]:8080": SECOND}
    assert [target.host for target in head.workers.find()] == ["fd00::2"]


def test_the_file_of_older_rays_is_beside_the_session(head: HeadPod) -> None:
    head.has(NODES, place=head.session.parent)
    head.found()
    assert set(head.found(after=PATIENCE).values()) == {FIRST, SECOND}


def test_only_so_many_workers_are_scraped(
    head: HeadPod, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metric_workers, "MAX_WORKERS", 1)
    head.has(NODES)
    head.found()
    assert len(head.found(after=PATIENCE)) == len(head.found()) == 1
    assert sum("1 of 2 workers" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(300)
def test_a_node_of_a_real_cluster_is_recorded_without_a_collector(
    real_ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_workers, "PAUSE", 0.5)
    cluster = RayCluster()
    try:
        cluster.start_head(free_port())
        store: Store = open_store(DirectorySettings(tmp_path / "archive"))
        node = RayNode(cluster.root, head=True)
        cluster.start_node(free_port())
        (covered,) = [row["node_id"] for row in cluster.list("nodes") if not row["is_head_node"]]
        cluster.start_node(free_port())
        rows = {row["node_id"]: row for row in cluster.list("nodes")}
        nodes = {each: row["is_head_node"] for each, row in rows.items()}
        (bare,) = [each for each, is_head in nodes.items() if not is_head and each != covered]
        session = cluster.session.name
        store.put(layout.ledger_key("", OWNER, session, covered), encode_ledger(Ledger(node=covered)))

        destination = Destination(store, OWNER)
        others = WorkerTargets(destination, node, Dashboard(cluster.dashboard, lambda: None), patience=0)
        recorder = MetricsRecorder(
            destination,
            LedgerBook(tmp_path / "ledger.json"),
            tmp_path / "volume",
            lambda: [*targets(node, head=False), *others.find()],
            Schedule(0.5),
            chosen("all"),
            SessionDashboards(destination, node, {}, is_head=False),
        )
        (own,) = [each for each, is_head in nodes.items() if is_head]

        def is_recorded() -> bool:
            recorder.tick()
            return {each.target.node for each, _ in recorder._recordings.values() if each.path} == {own, bare}

        until(is_recorded, "both nodes are scraped")
        recorder.finish(time.monotonic() + 10)
        recorded = defaultdict[str, set[str]](set)
        for info in store.list(layout.metrics_prefix("", OWNER, session)):
            recorded[info.key.split("/")[-3]].add(read_block(store.get(info.key)).target)
        port = (cluster.session / f"metrics_export_port_{bare}").read_text()
        assert recorded.keys() == {own, bare}
        assert recorded[bare] == {f"{rows[bare]['node_ip']}:{port}"}
    finally:
        cluster.remove()
