"""The metrics in the archive of a capture, asked as the charts of its Ray ask."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from ray_history.archive.catalog import read_catalog
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.index.locks import CancelToken
from ray_history.index.metrics import MetricsSource
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import SampleReader
from ray_history.metrics.promql.vector import Vector
from tests.metrics.dashboards import expressions_of
from tests.metrics.promql.test_oracle import OfDatabase


@dataclass(frozen=True)
class RecordedMetrics:
    """What a capture has of metrics."""

    agents: set[str]
    """Nodes whose agents were scraped."""
    endpoints: set[str]
    dashboards: set[str]
    names: set[str]
    answered: list[str]
    """The queries of the session's dashboards that have a value."""
    empty: list[str]
    problems: list[str]


def recorded_metrics(folder: Path, tables: Path) -> RecordedMetrics:
    """Read the metrics of a capture; `tables` is an empty folder."""
    facts = json.loads((folder / "capture.json").read_text())
    store = open_store(resolve((folder / "archive").resolve().as_uri(), Upstream(), {}))
    (session,) = [entry for entry in read_catalog(store).sessions if entry.name == facts["session"]]
    source = MetricsSource()
    problems = source.write(store, source.list(store, session), tables, None, CancelToken())
    with duckdb.connect() as database:
        for table in ("metrics", "series", "metric_blocks", "dashboards"):
            database.execute(f"create table {table} as from '{tables / table}.parquet'")
        reader = SampleReader(OfDatabase(database), series="series", metrics="metrics")
        dashboards = dict(database.execute("select name, definition from dashboards").fetchall())
        ((first, last),) = database.execute("select min(first_ms), max(last_ms) from metric_blocks").fetchall()
        answered, empty = list[str](), list[str]()
        for query in expressions_of(json.loads(text) for text in dashboards.values()):
            value = evaluate(reader, query, np.arange(first, last + 1, 5_000, dtype=np.int64), Limits())
            (answered if isinstance(value, Vector) and len(value) else empty).append(query)
        return RecordedMetrics(
            {
                row[0]
                for row in database.execute("select node_id from metric_blocks where endpoint = 'agent'").fetchall()
            },
            {row[0] for row in database.execute("select endpoint from metric_blocks").fetchall()},
            set(dashboards),
            {row[0] for row in database.execute("select name from series").fetchall()},
            answered,
            empty,
            list(problems),
        )
