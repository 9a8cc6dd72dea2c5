"""The tables of metrics, as a part of an index."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster, MetricBlockKey
from ray_history.archive.stores import Store
from ray_history.index.locks import CancelToken
from ray_history.index.metrics import MetricsSource
from ray_history.metrics.block import OpenBlock
from ray_history.metrics.dashboards import pack
from tests.metrics.dashboards import dashboards as captured
from tests.server.ui.written_sessions import SESSION, write_session

OWNER = Cluster("default", "written")
START = 1_790_000_000_000
DASHBOARDS = layout.metric_dashboards_key("", OWNER, SESSION)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write_session(tmp_path, [])


def write_block(store: Store, number: int = 0) -> None:
    block = OpenBlock("10.0.0.1:8080")
    block.add(START + number * 300_000, [f"ray_node_mem_used {number}"])
    store.put(
        layout.metric_block_key("", OWNER, SESSION, MetricBlockKey("a" * 56, "agent", block.first)), block.encode()
    )


def write_tables(store: Store, directory: Path, base: Path | None = None) -> list[str]:
    directory.mkdir()
    source = MetricsSource()
    (session,) = read_catalog(store).sessions
    return list(source.write(store, source.list(store, session), directory, base, CancelToken()))


def rows(directory: Path, table: str) -> list[tuple[object, ...]]:
    return duckdb.sql(f"from '{directory / table}.parquet'").fetchall()


def test_dashboards_become_a_table(store: Store, tmp_path: Path) -> None:
    written = captured("2.60")
    store.put(DASHBOARDS, pack({file: json.dumps(content).encode() for file, content in written.items()}))
    assert write_tables(store, tmp_path / "alone") == []
    write_block(store)
    assert write_tables(store, tmp_path / "extended", tmp_path / "alone") == []
    for directory in (tmp_path / "alone", tmp_path / "extended"):
        found = {str(name): (uid, json.loads(str(text))) for name, uid, text in rows(directory, "dashboards")}
        assert found == {
            file.removesuffix("_grafana_dashboard.json"): (content["uid"], content) for file, content in written.items()
        }
    assert len(rows(tmp_path / "extended", "metric_blocks")) == 1


@pytest.mark.parametrize("body", [b"", b"no dashboards", bytes(9 << 20)], ids=["empty", "text", "too large"])
def test_damaged_dashboards_cost_only_themselves(store: Store, tmp_path: Path, body: bytes) -> None:
    write_block(store)
    store.put(DASHBOARDS, body)
    (problem,) = write_tables(store, tmp_path / "tables")
    assert problem.startswith(DASHBOARDS)
    assert len(rows(tmp_path / "tables", "metric_blocks")) == 1
    assert not (tmp_path / "tables" / "dashboards.parquet").exists()


def test_every_column_is_documented(store: Store, tmp_path: Path) -> None:
    write_block(store)
    store.put(DASHBOARDS, pack({"default_grafana_dashboard.json": b'{"uid": "a"}'}))
    assert write_tables(store, tmp_path / "tables") == []
    documented = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    for file in (tmp_path / "tables").glob("*.parquet"):
        (line,) = [line for line in documented.splitlines() if line.startswith(f"| `{file.stem}` |")]
        names = [str(row[0]) for row in duckdb.sql(f"describe from '{file}'").fetchall()]
        assert [name for name in names if f"`{name}`" not in line] == []


def test_a_session_without_metrics_has_no_tables(store: Store, tmp_path: Path) -> None:
    assert write_tables(store, tmp_path / "tables") == []
    assert list((tmp_path / "tables").iterdir()) == []
