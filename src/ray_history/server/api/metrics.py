"""`/metrics`, for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from ray_history.index.cache import CacheUnusable
from ray_history.server.http.connections import CLOSING_REASONS, Connections
from ray_history.server.http.middleware import RequestStatistics
from ray_history.server.live import Fleet
from ray_history.server.sessions.manager import Sessions


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
        yield GaugeMetricFamily("ray_history_cache_bytes", "Size of the local cache.", _cache_bytes(sessions))
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


def _cache_bytes(sessions: Sessions) -> float:
    try:
        return sessions.indexer.cache.used_bytes()
    except CacheUnusable:
        return math.nan


def metrics(
    statistics: RequestStatistics, connections: Connections, sessions: Sessions, fleet: Fleet, worker: str = ""
) -> Response:
    page = generate_latest(ServerMetrics(statistics, connections, sessions, fleet, worker))
    return Response(page, media_type="text/plain; version=0.0.4")
