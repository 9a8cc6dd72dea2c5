"""Queries are answered as a real Prometheus answers them, point by point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pytest

from ray_history.metrics.promql.errors import PromQLError
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.operators import filled
from ray_history.metrics.promql.samples import SampleReader
from ray_history.metrics.promql.vector import Vector, stacked
from tests.metrics.dashboards import VERSIONS, expressions
from tests.metrics.generated import Cluster, cluster
from tests.support.prometheus import Prometheus

STEPS = (7_000, 15_000, 60_000, 300_000)
OTHERS = (
    "ray_tasks offset 1m",
    "ray_tasks offset -30s",
    "-ray_node_mem_used",
    "abs(delta(ray_node_mem_used[1m]))",
    "ray_tasks > bool 1",
    'ray_tasks{State="RUNNING"} unless on(instance) ray_tasks{State="FAILED"}',
    "sum without(instance, SessionName)(ray_tasks)",
    "sum(ray_node_mem_used) / ignoring(State) sum(ray_tasks)",
    "max_over_time(rate(ray_object_store_memory[1m])[2m:10s])",
    "avg_over_time(sum(ray_node_mem_used)[5m:])",
    "min_over_time(ray_node_cpu_utilization[1m])",
    "avg_over_time(ray_node_cpu_utilization[2m])",
    "sum_over_time(ray_node_mem_used[1m])",
    "stddev_over_time(ray_node_mem_used[2m])",
    "stdvar_over_time(ray_node_mem_used[2m])",
    "quantile_over_time(0.3, ray_node_mem_used[2m])",
    "count_over_time(ray_node_mem_used[1m])",
    "last_over_time(ray_node_mem_used[1m])",
    "present_over_time(ray_node_mem_used[1m])",
    "changes(ray_tasks[5m])",
    "resets(ray_tasks[5m])",
    "irate(ray_tasks[1m])",
    "idelta(ray_tasks[1m])",
    "deriv(ray_node_mem_used[5m])",
    "predict_linear(ray_node_mem_used[5m], 600)",
    "absent(nothing)",
    'absent(nothing{a="b", c=~"d"})',
    "absent(ray_tasks)",
    'absent_over_time(nothing{a="b"}[1m])',
    "clamp(ray_node_cpu_utilization, 10, 20)",
    "clamp_max(ray_node_cpu_utilization, 20)",
    "round(ray_node_cpu_utilization)",
    "round(ray_node_cpu_utilization, 5)",
    "ceil(ray_node_cpu_utilization) - floor(ray_node_cpu_utilization)",
    "sqrt(ray_node_cpu_utilization)",
    "ln(ray_node_mem_used)",
    "ray_node_cpu_utilization % 7",
    "ray_node_cpu_utilization ^ 2",
    "2 ^ 3 ^ 2",
    "scalar(sum(ray_node_mem_used))",
    "scalar(ray_node_mem_used)",
    "time()",
    "vector(time())",
    "1 > bool 2",
    "count by (State)(ray_tasks)",
    "group(ray_tasks)",
    "stddev(ray_node_mem_used)",
    "stdvar by (instance)(ray_node_mem_used)",
    "quantile(0.9, ray_node_mem_used)",
    "quantile by (instance)(2, ray_node_mem_used)",
    'label_replace(ray_tasks, "host", "$1-$2", "instance", "(.*):(.*)")',
    'label_replace(ray_tasks, "State", "", "State", ".*")',
    'label_join(ray_tasks, "both", "/", "instance", "State")',
    "ray_tasks @ end()",
    "rate(ray_tasks[1m] @ start())",
    '{__name__=~"ray_node_(cpu|mem).*", instance!~"10.0.0.[12].*"}',
    "ray_tasks or ray_node_mem_used",
    "ray_node_mem_used and ray_node_cpu_utilization",
    "ray_node_mem_used == ray_node_mem_used",
    "ray_node_mem_used > on(instance) group_left sum by (instance)(ray_tasks)",
    "histogram_quantile(2, ray_serve_http_request_latency_ms_bucket)",
    "histogram_quantile(0.5, rate(ray_serve_http_request_latency_ms_bucket[2m]))",
    "topk(1, sum by (instance)(ray_node_mem_used) > 0)",
    "bottomk(1, sum by (instance)(ray_node_mem_used) > 0)",
    "sum(ray_tasks) by (nothing)",
    "ray_tasks + ray_tasks",
    "ray_tasks * on(instance) ray_node_mem_used",
    "atan2(ray_tasks, 2)",
    "rate(ray_tasks)",
    "sum(",
    "nothing",
    "1 / 0",
    "0 / 0",
)
"""What users' own dashboards contain besides, and errors."""


@dataclass(frozen=True)
class OfDatabase:
    """Runs SQL, as the tables of an open session do."""

    database: duckdb.DuckDBPyConnection

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.database.cursor().execute(sql, parameters).fetchall()

    def arrays(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        return self.database.cursor().execute(sql, parameters).fetchnumpy()


pytestmark = pytest.mark.xdist_group("prometheus")


@pytest.fixture(scope="module")
def invented() -> Cluster:
    return cluster([*expressions("2.60"), *expressions("2.49"), "ray_tasks", "ray_node_mem_used"])


@pytest.fixture(scope="module")
def oracle(prometheus: Prometheus, invented: Cluster) -> Prometheus:
    prometheus.write(invented.series())
    return prometheus


@pytest.fixture(scope="module")
def reader(invented: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleReader]:
    directory = tmp_path_factory.mktemp("tables")
    invented.write_tables(directory)
    with duckdb.connect() as database:
        for table in ("series", "metrics"):
            database.execute(f"create table {table} as from read_parquet('{directory / table}.parquet')")
        yield SampleReader(OfDatabase(database), series="series", metrics="metrics")


@pytest.fixture(scope="module")
def grouping_reader(reader: SampleReader) -> SampleReader:
    """One that always lets the database find the last samples, as it does for long ranges of many series."""
    return SampleReader(reader.database, series="series", metrics="metrics", few_samples=0)


Points = dict[frozenset[tuple[str, str]], dict[int, float]]


def ours(reader: SampleReader, query: str, times: np.ndarray) -> Points | None:
    try:
        value = evaluate(reader, query, times, Limits())
    except PromQLError:
        return None
    vector = value if isinstance(value, Vector) else stacked(filled(np.asarray(value)), len(times))
    return {
        frozenset(row.labels.items()): {
            int(time): float(each) for time, each, there in zip(times, row.values, row.present, strict=True) if there
        }
        for row in vector.rows()
    }


def theirs(oracle: Prometheus, query: str, times: np.ndarray, step: int) -> Points | None:
    status, answer = oracle.ask(
        "query_range", query=query, start=times[0] / 1000, end=times[-1] / 1000, step=step / 1000
    )
    if status != 200:
        return None
    return {
        frozenset(series["metric"].items()): {round(time * 1000): float(value) for time, value in series["values"]}
        for series in answer["data"]["result"]
    }


def difference(ours: Points, theirs: Points) -> str:
    """The first difference; empty if there is none."""
    if ours.keys() != theirs.keys():
        only_here, only_there = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
        return f"only here {len(only_here)} {list(only_here)[:1]}, only there {len(only_there)} {list(only_there)[:1]}"
    for labels, points in theirs.items():
        if ours[labels].keys() != points.keys():
            return f"{dict(labels)}: other moments: {sorted(ours[labels].keys() ^ points.keys())[:5]}"
        for time, value in points.items():
            if not is_equal(ours[labels][time], value):
                return f"{dict(labels)} at {time}: {ours[labels][time]} instead of {value}"
    return ""


def is_equal(left: float, right: float) -> bool:
    return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-8)


def compared(
    oracle: Prometheus, reader: SampleReader, queries: list[str], end: int, step: int
) -> tuple[list[str], int]:
    """The differences, and the number of queries that had points."""
    times = np.arange((end - 30 * 60_000) // step * step, end + 60_000, step, dtype=np.int64)
    differences, with_points = [], 0
    for query in queries:
        here, there = ours(reader, query, times), theirs(oracle, query, times, step)
        if here is None or there is None:
            if here is not there:
                differences.append(f"{query}: {'refused' if here is None else 'answered'} only here")
            continue
        with_points += bool(there)
        found = difference(here, there)
        if found:
            differences.append(f"{query}: {found}")
    return differences, with_points


@pytest.mark.parametrize("step", STEPS)
def test_the_queries_of_the_newest_dashboards(
    oracle: Prometheus, reader: SampleReader, invented: Cluster, step: int
) -> None:
    queries = expressions("2.60")
    differences, with_points = compared(oracle, reader, queries, invented.end, step)
    assert differences == []
    assert with_points > 0.9 * len(queries)


@pytest.mark.parametrize("step", STEPS)
def test_many_samples_are_read_like_few(
    reader: SampleReader, grouping_reader: SampleReader, invented: Cluster, step: int
) -> None:
    times = np.arange((invented.end - 30 * 60_000) // step * step, invented.end + 60_000, step, dtype=np.int64)
    for query in expressions("2.60"):
        few, many = ours(reader, query, times), ours(grouping_reader, query, times)
        assert few is not None
        assert many is not None
        assert difference(few, many) == ""


@pytest.mark.parametrize("step", STEPS)
def test_other_queries(oracle: Prometheus, reader: SampleReader, invented: Cluster, step: int) -> None:
    differences, _ = compared(oracle, reader, list(OTHERS), invented.end, step)
    assert differences == []


def test_the_queries_of_older_dashboards(oracle: Prometheus, reader: SampleReader, invented: Cluster) -> None:
    older = {each for version in VERSIONS for each in expressions(version)} - set(expressions("2.60"))
    valid = [each for each in sorted(older) if theirs(oracle, each, np.array([invented.end]), 1_000) is not None]
    differences, with_points = compared(oracle, reader, valid, invented.end, 15_000)
    assert differences == []
    assert with_points > len(valid) / 2


def test_surplus_commas_are_ignored(oracle: Prometheus, reader: SampleReader, invented: Cluster) -> None:
    """Prometheus refuses some queries of older dashboards."""
    older = {each for version in VERSIONS for each in expressions(version)}
    times = np.array([invented.end])
    refused = [each for each in sorted(older) if theirs(oracle, each, times, 1_000) is None]
    assert len(refused) > 50
    assert [each for each in refused if ours(reader, each, times) is None] == []
