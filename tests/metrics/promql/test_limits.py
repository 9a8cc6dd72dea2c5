"""A query reads and makes only so much, however large the session is."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from ray_history.metrics.promql.errors import QueryTimedOut, QueryTooLarge
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import SampleReader
from tests.metrics.generated import INTERVAL, START, cluster
from tests.metrics.promql.test_oracle import OfDatabase

TIMES = np.arange(START, START + 20 * INTERVAL, INTERVAL)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleReader]:
    directory = tmp_path_factory.mktemp("tables")
    cluster(["ray_tasks", "ray_node_mem_used"], scrapes=20).write_tables(directory)
    with duckdb.connect() as database:
        for table in ("series", "metrics"):
            database.execute(f"create table {table} as from read_parquet('{directory / table}.parquet')")
        yield SampleReader(OfDatabase(database), series="series", metrics="metrics")


@pytest.mark.parametrize(
    ("query", "limits", "reason"),
    [
        ("ray_tasks", Limits(max_series=2), "more than 2 series"),
        ("ray_tasks", Limits(max_samples=30), "more than 30 samples"),
        ("ray_node_mem_used - ray_node_mem_used", Limits(max_samples=100), "more than 100 samples"),
        ("ray_tasks", Limits(max_cells=30), "more than 30 values"),
        ("max_over_time(ray_tasks[5m:1s])", Limits(max_cells=1000), "more than 1000 values"),
    ],
)
def test_what_is_too_large_is_refused(reader: SampleReader, query: str, limits: Limits, reason: str) -> None:
    assert evaluate(reader, query, TIMES, Limits()) is not None
    with pytest.raises(QueryTooLarge, match=reason):
        evaluate(reader, query, TIMES, limits)


def test_what_takes_too_long_is_given_up(reader: SampleReader) -> None:
    with pytest.raises(QueryTimedOut):
        evaluate(reader, "sum(ray_tasks)", TIMES, Limits(is_overdue=lambda: True))
