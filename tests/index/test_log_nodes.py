"""Nodes from the first lines of their raylets' logs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.log_files import LogFile
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.index.log_nodes import node_in, with_nodes
from tests.support.captured import captured, write_archive

NODE = "ab" * 28
STARTED = (
    f"[2026-11-15 20:55:39,542 I 7 7] (raylet) node_manager.cc:355: Raylet of id, {NODE} started. Raylet consists of "
    "node_manager and object_manager. node_manager address: 192.0.2.2:52790 object_manager address: 192.0.2.2:52890 "
    "hostname: vm\n"
)
DUMP = (
    'Local id: -7 Local resources: {"total":{CPU: [30000], GPU: [10000, 5000], node:192.0.2.2: [10000], a b: [25000]}, '
    '"available": {CPU: [0]}, "labels":{"cap":"side"}} is_draining: 0 Cluster resources: {"total":{CPU: 9}}\n'
)


def of(node: str, hour: int) -> LogFile:
    return LogFile(node, "raylet.out", 9, datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hour), None, ())


OLD_DUMP = (
    DUMP.replace('}, "available"', '}}, "available"')
    .replace('}, "labels"', '}}, "labels"')
    .replace('"side"}}', '"side",}')
)
"""Of Ray 2.49."""


@pytest.mark.parametrize("prefix", ["", "[state-dump] ", "[2026-11-15 20:55:39,543 I 7 7] (raylet) [state-dump] "])
@pytest.mark.parametrize("dump", [DUMP, OLD_DUMP])
def test_the_first_lines_of_a_raylet_describe_its_node(prefix: str, dump: str) -> None:
    assert node_in(f"before\n{STARTED}{prefix}{dump}".encode(), NODE) == {
        "started": "2026-11-15 20:55:39,542",
        "node_ip": "192.0.2.2",
        "hostname": "vm",
        "resources_total": {"CPU": 3.0, "GPU": 1.5, "node:192.0.2.2": 1.0, "a b": 2.5},
        "labels": {"cap": "side"},
    }


@pytest.mark.parametrize("text", ["", DUMP, STARTED.replace(NODE, "cd" * 28), STARTED.replace("started.", "stopped.")])
def test_other_lines_describe_no_node(text: str) -> None:
    assert node_in(text.encode(), NODE) is None


def test_without_a_dump_its_resources_are_unknown() -> None:
    node = node_in(STARTED.encode(), NODE)
    assert node is not None
    assert "resources_total" not in node


def test_the_newest_logs_are_read_fewer_of_polled_nodes() -> None:
    logs = [of(f"{hour:056x}", hour) for hour in range(600)]
    logs += [LogFile("head", "gcs_server.out", 9, None, None, ())]
    newest = with_nodes(logs, is_polled=True)
    assert [log.node for log in newest] == [f"{hour:056x}" for hour in range(568, 600)]
    assert len(with_nodes(logs, is_polled=False)) == 512


def test_a_real_session_of_logs_alone_has_its_nodes(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    (session,) = read_catalog(store).sessions
    files = list_session(store, session)
    store.delete_many([info.key for name, info in files.endpoints.items() if name != "restful__timezone"])
    store.delete_many([file.stored.key for file in files.event_files])
    with Indexer(store, Cache(tmp_path / "cache", 1 << 30)).open(session) as opened:
        tables = Tables(opened.directory)
        source = tables.source("nodes", LAST)
        columns = "node_id, node_ip, is_head_node, resources_total::varchar, labels::varchar, start_ns // 1000000000"
        found = tables.rows(f"select {columns} from {source} order by node_id")
    rows = captured().truth["v0_nodes"]["data"]["result"]["result"]
    assert [(*row[:3], json.loads(row[3]), json.loads(row[4]), row[5]) for row in found] == [
        (
            *(row["node_id"], row["node_ip"], row["is_head_node"], row["resources_total"], row["labels"]),
            row["start_time_ms"] // 1000,
        )
        for row in sorted(rows, key=lambda row: str(row["node_id"]))
    ]
