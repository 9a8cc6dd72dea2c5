"""Metrics: what endpoints of Ray show, blocks in the bucket, and queries of viewers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from ray_history.collector.metrics import workers
from ray_history.decoding import DECODING_ERRORS
from ray_history.metrics.block import MAX_KEY, MAX_SAMPLES, UP, CorruptBlock, OpenBlock, read_block
from ray_history.metrics.dashboards import FILE_SUFFIX, MAX_BYTES, InvalidDashboards, pack, unpack
from ray_history.metrics.exposition import NAME_LABEL, InvalidSeries, labels_of, samples
from ray_history.metrics.grafana.charts import ChartMaker
from ray_history.metrics.grafana.dashboard import InvalidDashboard, read_dashboard
from ray_history.metrics.grafana.pickers import choices
from ray_history.metrics.grafana.times import InvalidTime, TimeRange, moment, steps
from ray_history.metrics.grafana.variables import texts
from ray_history.metrics.promql.errors import PromQLError
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import SampleReader
from ray_history.server.metrics import prometheus
from ray_history.server.metrics.panels import Patterns
from ray_history.zstandard import zstd
from tests.fuzz.target import target

_START = 1_790_000_000_000
_PAGE = (
    b'# HELP ray_tasks x\nray_tasks{State="RUNNING",Name="f \\"g\\""} 7.0\nray_tasks{State="FAILED"} 1e3 1700000000\n'
    b'ray_nodes 2\nup NaN\nbucket{le="+Inf"} +Inf\n'
)


@target(
    "exposition",
    lambda: [_PAGE, b'a{b="c\\n\\\\",} 1', b"a 1 2"],
    tokens=(b'{a="', b'\\"', b'",', b"} ", b" NaN", b"\n", b"#"),
)
def exposition(data: bytes) -> None:
    """A scrape is stored as a whole or not at all, and read again; labels are found, or the series is invalid."""
    lines = data.decode(errors="replace").split("\n")
    with suppress(InvalidSeries):
        for key, _ in samples(lines):
            with suppress(InvalidSeries):
                labels = labels_of(key)
                assert labels[NAME_LABEL] == key.partition("{")[0].strip()
                assert all(labels.values())
    block = OpenBlock("10.0.0.1:8080")
    block.add_failure(_START)
    with suppress(ValueError):
        block.add(_START + 1, lines)
    read = read_block(block.encode())
    assert len(read.timestamps) == len(block)
    assert UP in read.series
    assert all(len(column) == len(block) for column in read.columns())


def _blocks() -> list[bytes]:
    block = OpenBlock("10.0.0.1:8080")
    for number in range(3):
        block.add(_START + number, ["a 1", f'b{{c="d"}} {number}'])
    return [block.encode()]


@target("metric_blocks", _blocks, tokens=(b"RHM1", b"RHM2", b"\x28\xb5\x2f\xfd"))
def metric_blocks(data: bytes) -> None:
    """A block within its limits, or a CorruptBlock."""
    with suppress(CorruptBlock):
        block = read_block(data)
        assert len(block.series) == len(block.kinds)
        assert len(block.packed) <= MAX_SAMPLES
        assert all(len(key) <= MAX_KEY for key in block.series)
        assert all(len(column) == len(block.timestamps) for column in block.columns())


def _dashboards() -> list[bytes]:
    files = {"default_grafana_dashboard.json": b'{"uid": "a", "panels": [{"id": 1}]}'}
    return [pack(files), zstd.compress(b'{"serve_grafana_dashboard.json": {"uid": "b"}}')]


@target("metric_dashboards", _dashboards, tokens=(b"\x28\xb5\x2f\xfd", FILE_SUFFIX.encode(), b'"uid"', b"\\ud800"))
def metric_dashboards(data: bytes) -> None:
    """Dashboards within their limits, or InvalidDashboards, compressed or not."""
    for stored in (data, zstd.compress(data)):
        with suppress(InvalidDashboards):
            for dashboard in unpack(stored):
                assert 0 < len(dashboard.uid) <= 200
                assert len(dashboard.definition) <= MAX_BYTES
                assert "/" not in dashboard.name


def _nodes() -> list[bytes]:
    node = b'{"nodeId": "%s", "nodeManagerAddress": "10.0.0.1", "metricsExportPort": 8080}' % (b"a" * 56)
    return [
        b'[{"labels": {"job": "ray"}, "targets": ["10.0.0.1:8080"]}]',
        b'{"data": {"summary": [{"raylet": %s}]}}' % node,
    ]


@target("metric_workers", _nodes, tokens=(b'"nodeManagerAddress"', b'"metricsExportPort"', b"a" * 56))
def metric_workers(data: bytes) -> None:
    """Endpoints of nodes with valid ids, or a decoding error."""
    with suppress(*DECODING_ERRORS):
        workers.endpoints(data)
    with suppress(*DECODING_ERRORS):
        for name, node in workers.owners(data).items():
            assert re.fullmatch("[0-9a-f]{56}", node)
            assert 0 < int(name.rpartition(":")[2]) < 65_536


def _written_dashboards() -> list[bytes]:
    panel = (
        b'{"uid": "a", "templating": {"list": [{"name": "v", "type": "query", "includeAll": true,'
        b' "query": "label_values(ray_tasks{}, Name)"}]}, "panels": [{"type": "row", "panels": [{"id": 1,'
        b' "type": "graph",'
        b' "targets": [{"expr": "ray_tasks{Name=~\\"$v\\"}", "legendFormat": "{{State, Name}}", "refId": "A"}],'
        b' "yaxes": [{"min": "0"}], "seriesOverrides": [{"alias": "/(F.*)+$/i", "hiddenSeries": true}]}]}]}'
    )
    return [panel, b'{"panels": [{"id": 2, "type": "gauge", "fieldConfig": {"defaults": {"unit": "s"}}}]}']


@target(
    "dashboards_of_grafana",
    _written_dashboards,
    tokens=(
        b'"alias": "/',
        b'"expr": "',
        b"$__range",
        b"{{",
        b"label_values(",
        b"query_result(",
        b'"regex": "',
        b"\\ud800",
    ),
    is_linear=False,
    examples=100,
)
def dashboards_of_grafana(data: bytes) -> None:
    """A dashboard is read or refused as a whole; each of its panels is drawn or says why not, and each variable too."""
    shown = TimeRange(_START, _START + 120_000)
    with _reader() as reader, suppress(InvalidDashboard):
        dashboard = read_dashboard(data)
        patterns = Patterns(reader.database)
        values = texts(dashboard, {"v": ["f", "g"]}, shown, 30_000)
        maker = ChartMaker(reader, patterns.matching, lambda: Limits(max_samples=100_000, max_cells=10_000))
        for panel in (panel for row in dashboard.rows for panel in row.panels[:5]):
            chart = maker.chart(panel, values, steps(shown, 30_000))
            assert all(len(series.values) == len(chart.times) for series in chart.series)
        for variable in dashboard.variables[:5]:
            with suppress(PromQLError, ValueError):
                found = choices(variable, values, reader, shown.end, Limits(), patterns.extracting)
                assert all(isinstance(value, str) for value in found)


@target("grafana_times", lambda: [b"now-5m", b"now-2d/d", b"17e11", b"2026-01-31T12:00:00+02:00"], tokens=(b"now",))
def grafana_times(data: bytes) -> None:
    """A moment, none, or InvalidTime."""
    with suppress(InvalidTime):
        found = moment(data.decode(errors="replace"), _START)
        assert found is None or isinstance(found, int)


_QUERIES = (
    b'sum by (State) (ray_tasks{State=~"R.*", Name!=""})',
    b"rate(ray_tasks[5m] offset 1m) / on (a) group_left (b) ray_nodes > bool 3",
    b'histogram_quantile(0.99, sum(rate(bucket{le="+Inf"}[1m])) by (le)) or vector(1)',
    b'label_replace(ray_tasks, "a", "$1", "Name", "(.*)") unless topk(3, ray_nodes @ end())',
    b"max_over_time(ray_tasks[1h:1m] @ 1790000000) ^ -2 and absent(x{a='b'}) or time() % 7",
)
_WORDS = (
    *(
        b"ray_tasks",
        b"[5m]",
        b"[1h:1m]",
        b" offset -1y",
        b"@ start()",
        b"quantile(",
        b"predict_linear(",
        b"count_values(",
    ),
    *(
        b"=~",
        b"!~",
        b"(",
        b")",
        b"1e400",
        b"0x1f",
        b"Inf",
        b"group_right",
        b"label_join(",
        b"day_of_month(",
        b"'",
        b"`",
    ),
)


@dataclass(frozen=True)
class _Database:
    """Runs SQL, as the tables of an open session do."""

    connection: duckdb.DuckDBPyConnection

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters).fetchall()

    def arrays(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        return self.connection.execute(sql, parameters).fetchnumpy()


@contextmanager
def _reader() -> Iterator[SampleReader]:
    """Three series with a few samples."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("create table series(series_id integer, name varchar, labels map(varchar, varchar))")
        connection.execute("create table metrics(series_id integer, time_ms bigint, value double)")
        for number, labels in enumerate(("{'State': 'RUNNING', 'Name': 'f'}", "{'State': 'FAILED'}", "{'le': '+Inf'}")):
            connection.execute(f"insert into series values ({number}, 'ray_tasks', map {labels})")
            times = f"select {number}, {_START} + 15000 * i, i * {number} from range(8) as t(i)"
            connection.execute(f"insert into metrics {times}")
        yield SampleReader(_Database(connection), series="series", metrics="metrics")


@target("promql", lambda: _QUERIES, tokens=_WORDS, is_linear=False, examples=100)
def promql(data: bytes) -> None:
    """Every query has a value at each time, or is refused as Prometheus does."""
    times = np.arange(_START, _START + 120_000, 30_000, dtype=np.int64)
    with _reader() as reader, suppress(PromQLError):
        value = evaluate(reader, data.decode(errors="replace"), times, Limits(max_samples=100_000, max_cells=10_000))
        assert not isinstance(value, np.ndarray) or len(value) == len(times)


@target("promql_texts", lambda: [*_QUERIES, b"1m30s", b"2026-01-31T12:00:00Z", b"1790000000.5"], tokens=_WORDS)
def promql_texts(data: bytes) -> None:
    """A query, a time or a step is understood, or refused as Prometheus does."""
    text = data.decode(errors="replace")
    for read in (prometheus._selection, prometheus._step_ms, lambda text: prometheus._time_ms("time", text)):
        with suppress(PromQLError):
            read(text)
