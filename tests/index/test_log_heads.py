"""Facts about the cluster from the first lines of Ray's logs, for sessions that were not polled."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.index.log_heads import read_facts, with_facts
from tests.history.rebuilt import document, polled, rebuild
from tests.support.captured import write_archive

CLUSTER_ID = "a2a28c12016f6cd7c494fee89d8881708c1c4430b1700767ed7a1abd"
COMMIT = "b7f4259e944bf6959f721b106adc366ddfa0c356"


def of(node: str, name: str) -> LogFile:
    return LogFile(node, name, 9, datetime.now(UTC), None, ())


def test_only_the_logs_of_the_head_are_read() -> None:
    names = ("gcs_server.out", "monitor.log", "raylet.out", "dashboard.log")
    workers = [of(f"worker{number}", "raylet.out") for number in range(100)]
    chosen = with_facts([*workers, *(of("head", name) for name in names)])
    assert {(log.node, log.name) for log in chosen} == {("head", name) for name in names[:3]}


def test_without_logs_of_the_head_one_other_node_is_read() -> None:
    assert [log.node for log in with_facts([of(f"worker{number}", "raylet.out") for number in range(100)])] == [
        "worker0"
    ]
    assert with_facts([of("worker", "dashboard_agent.log")]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"(gcs_server) gcs_server_main.cc:98: Ray cluster metadata ray_version=2.49.2 ray_commit={COMMIT}\n",
            {"ray_version": "2.49.2", "ray_commit": COMMIT},
        ),
        (f"INFO monitor.py:731 -- Ray version: 3.0.0.dev0\n-- Ray commit: {COMMIT}\n", {"ray_version": "3.0.0.dev0"}),
        ("-- Ray commit: {{RAY_COMMIT_SHA}}\n", {}),
        (f"(raylet) main.cc:283: Setting cluster ID to: {CLUSTER_ID}\n", {"cluster_id": CLUSTER_ID}),
        (f"Generated new cluster ID. cluster_id={CLUSTER_ID}\n", {"cluster_id": CLUSTER_ID}),
        (f"Generated new cluster ID: {CLUSTER_ID}\n", {"cluster_id": CLUSTER_ID}),
        (
            "Starting monitor using ray installation: /opt/env/lib/python3.11/site-packages/ray/__init__.py\n",
            {"python_version": "3.11"},
        ),
        ("Starting object store with directory /dev/shm, fallback /tmp/ray/session_x, and\n", {"os": "linux"}),
        ("Starting object store with directory /tmp, fallback /tmp/ray/session_x, and\n", {}),
        ("", {}),
        ("x" * 20_000 + "ray_version=2.60.0", {}),
    ],
)
def test_facts_are_found_in_the_first_lines_in_every_form(tmp_path: Path, text: str, said: dict[str, str]) -> None:
    store = open_store(DirectorySettings(tmp_path))
    store.put("log", text.encode())
    logs = LogFiles(store, [("n", "monitor.log", next(iter(store.list(""))))], [])
    told = read_facts(logs, logs.find("n", "monitor.log"))
    assert told.items() >= said.items()
    assert bool(told) == bool(said)


def test_polled_facts_are_preferred(tmp_path: Path) -> None:
    def facts(*documents: dict[str, object]) -> tuple[object, ...]:
        told = rebuild(tmp_path, documents=documents).facts
        return told["ray_version"], told["cluster_id"]

    monitor = document("log_head", "monitor.log", {"ray_version": "2.1"})
    gcs = document("log_head", "gcs_server.out", {"ray_version": "2.2", "cluster_id": "g"})
    raylet = document("log_head", "raylet.out", {"cluster_id": "r"})
    metadata = document("endpoint", "restful__api__v0__cluster_metadata", {"data": {"rayVersion": "2.3"}})
    version = document("endpoint", "restful__api__version", {"ray_version": "2.4"})
    cluster = document("endpoint", "restful__cluster_id", {"data": {"clusterId": "c"}})
    assert facts(polled("nodes")) == (None, None)
    assert facts(monitor) == ("2.1", None)
    assert facts(monitor, gcs) == ("2.2", "g")
    assert facts(monitor, gcs, raylet, metadata) == ("2.3", "r")
    assert facts(monitor, gcs, raylet, metadata, version, cluster) == ("2.4", "c")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(made, Generation.C, Cluster("default", "demo"))
    return made


def test_a_real_session_without_polling_has_its_version_and_id(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).sessions
    files = list_session(store, session)
    store.delete_many([info.key for info in files.endpoints.values()])
    logs = [info.key for _, _, info in files.whole_logs]
    bodies = {key: store.get(key) for key in logs if key.endswith("/gcs_server.out")}
    store.delete_many(list(bodies))
    indexer = Indexer(store, Cache(tmp_path / "cache", 1 << 30))
    with indexer.open(session) as opened:
        assert opened.manifest.facts.cluster_id == CLUSTER_ID
    for key, body in bodies.items():  # the head's logs came late
        store.put(key, body)
    with indexer.open(session) as opened:
        facts = opened.manifest.facts
    assert (facts.ray_version, facts.ray_commit, facts.cluster_id) == ("2.60.0", COMMIT, CLUSTER_ID)
    assert (facts.os, facts.python_version) == ("linux", "3.11")
    ((key, body),) = bodies.items()
    monitor = next(key for key in logs if key.endswith("/monitor.log"))
    store.put(monitor, store.get(monitor) + b"it grows\n")
    stages: set[str] = set()
    indexer.open(session, lambda progress: stages.add(progress.stage)).close()
    assert stages == {"listing"}
