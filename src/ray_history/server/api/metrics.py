"""`/metrics`, for Prometheus."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from ray_history.connections import CLOSING_REASONS, Connections
from ray_history.index.cache import Cache, CacheUnusable
from ray_history.server.http.middleware import RequestStatistics
from ray_history.server.live import Fleet
from ray_history.server.sessions.manager import Sessions

_MEASURE_AGAIN = 30.0
"""Seconds for which the size of the cache counts as known: measuring takes a look at each of its files."""


@dataclass(slots=True)
class CacheSize:
    """The size of the local cache, measured now and then, however often it is asked for."""

    cache: Cache
    clock: Callable[[], float] = time.monotonic
    _bytes: float = 0.0
    _measured: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> float:
        """Bytes; NaN if the cache cannot be used."""
        with self._lock:
            if self.clock() - self._measured >= _MEASURE_AGAIN:
                try:
                    self._bytes = self.cache.used_bytes()
                except CacheUnusable:
                    self._bytes = math.nan
                self._measured = self.clock()
            return self._bytes


@dataclass(frozen=True, slots=True)
class ServerMetrics(Collector):
    """The metrics of this process, read when Prometheus asks for them.

    A server with several processes answers a scrape from any of them: each labels its values with its `worker`, because
    otherwise its counters would seem to go up and down.
    """

    statistics: RequestStatistics
    connections: Connections
    sessions: Sessions
    fleet: Fleet
    cache_size: CacheSize
    worker: str = ""

    def collect(self) -> Iterator[Metric]:
        worker = {"worker": self.worker} if self.worker else {}
        for metric in self._metrics():
            # In the text format, the creation times of a histogram would be another metric.
            samples = (sample for sample in metric.samples if not sample.name.endswith("_created"))
            metric.samples = [sample._replace(labels={**sample.labels, **worker}) for sample in samples]
            yield metric

    def _metrics(self) -> Iterator[Metric]:
        statistics, sessions, heads = self.statistics, self.sessions, self.fleet.heads
        requests = CounterMetricFamily(
            "ray_history_requests", "Requests answered, by method and status.", labels=("method", "status")
        )
        for (method, status), number in list(statistics.requests.items()):  # the event loop adds keys meanwhile
            requests.add_metric((method, str(status)), number)
        yield requests
        yield CounterMetricFamily("ray_history_request_seconds", "Time spent on all requests.", statistics.seconds)
        yield from statistics.durations.collect()
        yield GaugeMetricFamily("ray_history_requests_running", "Requests being answered.", statistics.running)
        yield GaugeMetricFamily(
            "ray_history_connections_open", "Open connections, without web sockets.", self.connections.open_count
        )
        closed = CounterMetricFamily(
            "ray_history_connections_closed", "Connections that a limit closed, by reason.", labels=("reason",)
        )
        for reason in CLOSING_REASONS:
            closed.add_metric((reason,), self.connections.closed[reason])
        yield closed
        yield GaugeMetricFamily("ray_history_sessions_open", "Open sessions.", sessions.open_count)
        yield CounterMetricFamily("ray_history_sessions_opened", "Sessions opened or refreshed.", sessions.opened_total)
        yield GaugeMetricFamily("ray_history_cache_bytes", "Size of the local cache.", self.cache_size.read())
        yield GaugeMetricFamily(
            "ray_history_live_clusters", "Running clusters found in Kubernetes.", len(self.fleet.running)
        )
        yield GaugeMetricFamily(
            "ray_history_live_missing",
            "API servers and namespaces whose running clusters are unknown.",
            len(self.fleet.missing),
        )
        yield CounterMetricFamily(
            "ray_history_heads_asked",
            "Requests forwarded to heads of running clusters.",
            heads.requests_total if heads else 0,
        )
        yield CounterMetricFamily(
            "ray_history_heads_silent",
            "Requests that the head of a running cluster did not answer.",
            heads.failures_total if heads else 0,
        )


def metrics(values: ServerMetrics) -> Response:
    page = generate_latest(values)
    return Response(page, media_type="text/plain; version=0.0.4")
