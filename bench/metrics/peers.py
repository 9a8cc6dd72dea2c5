"""The same samples in our archive and index, in Prometheus and in VictoriaMetrics: bytes, seconds to load, and seconds
for all panels of Ray's Core dashboard after a start of the server."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import cpu_seconds
from tests.metrics.dashboards import dashboards, expressions, expressions_of
from tests.metrics.generated import Cluster, cluster
from tests.server.metrics.recorded_sessions import PATH, write_recorded
from tests.support.debian import program_of
from tests.support.processes import Process, free_port, port_is_open
from tests.support.prometheus import Prometheus, program

from .pages import steady_values

PLACE = Path(".parts/bench/metrics")
SCRAPES = 960
"""Four hours."""
STEP = 15
HOUR = 3600


@dataclass(frozen=True)
class Dashboard:
    """All queries of a dashboard, one after the other."""

    seconds: float
    processor: float
    """Seconds of processor time of the server."""
    points: int


@dataclass(frozen=True)
class Result:
    """What one of the three needs."""

    name: str
    sizes: str
    load: float
    dashboard: Dashboard


def side_by_side() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    recorded = cluster(expressions("2.60"), scrapes=SCRAPES, values=steady_values)
    core = expressions_of([dashboards("2.60")["default_grafana_dashboard.json"]])
    samples = sum(len(found) for _, found in recorded.series())
    print(f"  {len(recorded.series()):,} series, {samples:,} samples of {SCRAPES * STEP // HOUR} hours;")
    print(f"  the {len(core)} queries of the Core dashboard over the last hour, every {STEP} s")
    for measure in (_ours, _prometheus, _victoria_metrics):
        found = measure(recorded, core, samples)
        print(
            f"    {found.name:<16} {found.sizes}; loaded in {found.load:5.1f} s; "
            f"dashboard {found.dashboard.seconds:5.2f} s, {found.dashboard.processor:.2f} s of processor time "
            f"({found.dashboard.points:,} points)",
            flush=True,
        )


def _ours(recorded: Cluster, queries: list[str], samples: int) -> Result:
    archive, cache = PLACE / "ours" / "archive", PLACE / "cache"
    write_recorded(archive.parent, recorded)
    blocks = _size(archive / "history-metrics")
    begin = time.monotonic()
    with _server(archive, cache) as (url, _):
        _get(f"{url}/query", {"query": "up"})
        load = time.monotonic() - begin
    index = sum(path.stat().st_size for path in cache.rglob("metrics*.parquet"))
    index += sum(path.stat().st_size for path in cache.rglob("series*.parquet"))
    with _server(archive, cache) as (url, pid):
        dashboard = _dashboard(url, pid, queries, recorded.end)
    sizes = f"archive {blocks / samples:.2f}, index {index / samples:.2f} bytes a sample"
    return Result("ray-history", sizes, load, dashboard)


@contextmanager
def _server(archive: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """A history server; the URL of the API of Prometheus below the session, and the id of the process."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "ray_history", "--log-level", "warning", "serve", "--port", str(port)),
        *("--storage", archive.absolute().as_uri(), "--cache-dir", str(cache), "--prebuild", "0"),
    ]
    with Process(command, log=PLACE / "server.log", ready=lambda: port_is_open(port)) as server:
        yield f"http://127.0.0.1:{port}{PATH}/prometheus/api/v1", server.pid


def _prometheus(recorded: Cluster, queries: list[str], samples: int) -> Result:
    """Blocks as `promtool` makes them: a Prometheus that scrapes has its last hours in a write-ahead log instead."""
    folder = PLACE / "prometheus"
    text = folder / "samples.txt"
    folder.mkdir()
    with text.open("w") as out:
        out.writelines(_open_metrics(recorded))
    begin = time.monotonic()
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"]
    subprocess.run(command, check=True, capture_output=True)
    load = time.monotonic() - begin
    size = _size(folder / "data")
    with Prometheus(folder) as running:
        running.wait_until_ready()
        dashboard = _dashboard(f"{running.url}/api/v1", running.pid, queries, recorded.end)
    return Result("Prometheus", f"blocks {size / samples:.2f} bytes a sample", load, dashboard)


def _victoria_metrics(recorded: Cluster, queries: list[str], samples: int) -> Result:
    """It interprets some of PromQL differently; its points are printed, not compared."""
    folder, port = PLACE / "victoria", free_port()
    url = f"http://127.0.0.1:{port}"
    folder.mkdir()
    command = [
        *(program_of("victoria-metrics", "victoria-metrics"), f"-storageDataPath={folder / 'data'}"),
        *(f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y", "-search.disableCache"),
        "-search.latencyOffset=0s",
    ]

    def running() -> Process:
        return Process(command, log=folder / "victoria.log", ready=lambda: port_is_open(port))

    begin = time.monotonic()
    with running():
        lines = (line.rpartition(" ") for line in _open_metrics(recorded) if not line.startswith("#"))
        body = "".join(f"{sample} {round(float(moment) * 1000)}\n" for sample, _, moment in lines)
        _post(f"{url}/api/v1/import/prometheus", body.encode())
        _post(f"{url}/internal/force_flush", b"")
    load = time.monotonic() - begin
    size = _size(folder / "data")
    with running() as server:
        dashboard = _dashboard(f"{url}/api/v1", server.pid, queries, recorded.end)
    return Result("VictoriaMetrics", f"data {size / samples:.2f} bytes a sample", load, dashboard)


def _open_metrics(recorded: Cluster) -> Iterator[str]:
    """The samples in OpenMetrics, metric by metric. Stale markers cannot be written in it."""
    by_name = sorted(recorded.series(), key=lambda found: found[0]["__name__"])
    for name, series in itertools.groupby(by_name, key=lambda found: found[0]["__name__"]):
        yield f"# TYPE {name} unknown\n"
        for labels, samples in series:
            inside = ",".join(f'{label}="{text}"' for label, text in labels.items() if label != "__name__" and text)
            for moment, value in samples:
                if not math.isnan(value):  # a stale marker; the values have no other NaN
                    yield f"{name}{{{inside}}} {value!r} {moment / 1000:.3f}\n"
    yield "# EOF\n"


def _dashboard(url: str, pid: int, queries: list[str], end_ms: int) -> Dashboard:
    end = end_ms // 1000
    times = {"start": end - HOUR, "end": end, "step": STEP}
    points, begin, processor = 0, time.monotonic(), cpu_seconds(pid)
    for query in queries:
        answer = _get(f"{url}/query_range", {"query": query, **times})
        points += sum(len(series["values"]) for series in answer["data"]["result"])
    return Dashboard(time.monotonic() - begin, cpu_seconds(pid) - processor, points)


def _get(url: str, parameters: dict[str, Any]) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=300) as answer:
        return json.load(answer)


def _post(url: str, body: bytes) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=300):
        return


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
