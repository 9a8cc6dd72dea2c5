"""Panels of 200 nodes over 24 hours, from tables with 17 series a node: time, and memory beyond an open session's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np

from bench.processes import use_of
from ray_history.history.read.tables import ready_database
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import SampleReader
from tests.metrics.promql.test_oracle import OfDatabase

NODES, COMPONENTS, SCRAPES = 200, 15, 5_760
POINTS = 300
"""Of a panel."""
QUERIES = {
    "node panel": "sum(ray_node_cpu_utilization) by (instance)",
    "rate by node": "sum(rate(ray_node_network_sent[1m])) by (instance)",
    "maximum of the session": "max(max_over_time(ray_node_cpu_utilization[14d]))",
    "heaviest panel": "sum(ray_component_rss_bytes) by (Component)",
}


def large_session() -> None:
    print(f"  {NODES} nodes, 24 hours, {NODES * (COMPONENTS + 2) * SCRAPES:,} samples; each panel in a new process")
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))
        for name, query in QUERIES.items():
            command = [sys.executable, "-m", __spec__.name, folder, query]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(
                f"    {name:<24} {found['wall'] * 1000:6.0f} ms, {found['cpu'] * 1000:6.0f} ms of processor time, "
                f"{found['memory'] >> 20:4} MiB",
                flush=True,
            )


def _write(folder: Path) -> None:
    """Tables as `TablesWriter` makes them: ordered by series, which are ordered by name."""
    with duckdb.connect() as database:
        database.execute("set enable_progress_bar = false")
        database.execute(f"""
            create table series as
            select (row_number() over (order by name, node, component) - 1)::integer as series_id, name,
                map(['instance', 'Component'], ['10.0.' || node // 250 || '.' || node % 250 || ':8080', component])
                    as labels
            from (
                select name, node, '' as component from range({NODES}) as nodes(node),
                    (values ('ray_node_cpu_utilization'), ('ray_node_network_sent')) as names(name)
                union all
                select 'ray_component_rss_bytes', node, 'ray::component_' || number
                from range({NODES}) as nodes(node), range({COMPONENTS}) as components(number)
            );
            copy (from series order by series_id) to '{folder}/series.parquet';
            copy (
                select series_id, 1790000000000 + 15000 * scrape as time_ms,
                    case when hash(series_id, scrape // 7) % 3 = 0 then series_id * 4096.0
                        else (hash(series_id, scrape) % 100000)::double end as value
                from series, range({SCRAPES}) as scrapes(scrape) order by series_id, time_ms
            ) to '{folder}/metrics.parquet' (parquet_version v2, compression zstd, dictionary_size_limit 1);
        """)


def _measure(folder: str, query: str) -> dict[str, float]:
    database = ready_database()
    reader = SampleReader(
        OfDatabase(database),
        series=f"read_parquet('{folder}/series.parquet')",
        metrics=f"read_parquet('{folder}/metrics.parquet')",
    )
    step = 86_400_000 // POINTS // 15_000 * 15_000
    times = np.arange(1_790_000_000_000, 1_790_000_000_000 + SCRAPES * 15_000, step, dtype=np.int64)
    evaluate(reader, "vector(1)", times, Limits())
    peak, stop = [_memory()], threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            peak.append(_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu, begin = time.process_time(), time.perf_counter()
    evaluate(reader, query, times, Limits())
    found = {"wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
    stop.set()
    watcher.join()
    return found | {"memory": max(peak) - peak[0]}


def _memory() -> int:
    return use_of([os.getpid()]).rss


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2])))
