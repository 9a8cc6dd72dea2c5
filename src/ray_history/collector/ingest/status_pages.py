"""The collector's own pages: health, readiness, metrics for Prometheus, and the ledgers as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from .http import Page

_TEXT = b"text/plain; charset=utf-8"
_FAMILIES: dict[str, type[CounterMetricFamily | GaugeMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of `/metrics`."""

    name: str
    kind: str
    help: str
    path: tuple[str, ...]
    """Of its value, or its values by label, in the status; `*` stands for each session."""
    label: str = ""


_EVENTS = ("sessions", "*", "events")
_LOGS = ("sessions", "*", "logs")

METRICS = (
    Metric("batches_total", "counter", "Batches acknowledged.", ("intake", "batches")),
    Metric("batch_bytes_total", "counter", "Bytes of acknowledged batches.", ("intake", "bytes")),
    Metric("duplicated_events_total", "counter", "Events that Ray sent again.", ("intake", "duplicated")),
    Metric("refused_batches_total", "counter", "Batches refused, by reason.", ("intake", "refused"), "reason"),
    Metric("connections_open", "gauge", "Open connections.", ("intake", "connections")),
    Metric(
        "connections_closed_total",
        "counter",
        "Connections that a limit closed, by reason.",
        ("intake", "closed"),
        "reason",
    ),
    Metric("spool_bytes", "gauge", "Bytes in the spool.", ("spool", "bytes")),
    Metric("spool_limit_bytes", "gauge", "Size limit of the spool.", ("spool", "limit")),
    Metric("spool_lag_seconds", "gauge", "Age of the oldest batch in the spool.", ("spool", "lag_seconds")),
    Metric("events_received_total", "counter", "Events received, by session.", (*_EVENTS, "received"), "session"),
    Metric("events_stored_total", "counter", "Events stored, by session.", (*_EVENTS, "stored"), "session"),
    Metric("events_quarantined_total", "counter", "Events set aside.", (*_EVENTS, "quarantined"), "session"),
    Metric(
        "events_dropped_by_ray_total",
        "counter",
        "Events that Ray dropped before sending them.",
        (*_EVENTS, "dropped_by_ray"),
        "session",
    ),
    Metric("log_files", "gauge", "Log files found, by session.", (*_LOGS, "files"), "session"),
    Metric("log_bytes_seen_total", "counter", "Log bytes written by Ray.", (*_LOGS, "bytes_seen"), "session"),
    Metric("log_bytes_stored_total", "counter", "Log bytes stored.", (*_LOGS, "bytes_stored"), "session"),
    Metric("log_bytes_uploaded_total", "counter", "Bytes uploaded for logs.", (*_LOGS, "bytes_uploaded"), "session"),
    Metric("log_bytes_lost_total", "counter", "Log bytes lost.", (*_LOGS, "bytes_lost"), "session"),
    Metric("store_failures_total", "counter", "Failed attempts to reach the store.", ("store", "failures")),
    Metric("store_reached", "gauge", "1 if the last attempt succeeded.", ("store", "reached")),
)

Status = Callable[[], dict[str, Any]]


def pages(status: Status) -> dict[str, Page]:
    """The pages by path."""
    return {
        "/healthz": lambda: (200, _TEXT, b"ok\n"),
        "/readyz": lambda: _ready(status()),
        "/metrics": lambda: (200, b"text/plain; version=0.0.4", _metrics(status())),
        "/v1/status": lambda: (200, b"application/json", msgspec.json.format(msgspec.json.encode(status()))),
    }


def _ready(status: dict[str, Any]) -> tuple[int, bytes, bytes]:
    if status["spool"]["full"]:
        return 503, _TEXT, b"the spool is full\n"
    if not status["store"]["ever_reached"]:
        return 503, _TEXT, f"the store has not been reached yet: {status['store']['error']}\n".encode()
    # Events and log lines are taken and kept: a pod that becomes unready would take its head out of service.
    return 200, _TEXT, "".join(["ready\n", *(f"warning: {each}\n" for each in status["warnings"])]).encode()


class _StatusCollector(Collector):
    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric in METRICS:
            labels = [metric.label] if metric.label else []
            family = _FAMILIES[metric.kind](f"ray_history_collector_{metric.name}", metric.help, labels=labels)
            for label, value in _values(self._status, metric):
                if value is not None:
                    family.add_metric([label] if metric.label else [], value)
            yield family


def _metrics(status: dict[str, Any]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    return generate_latest(registry)


def _values(status: Any, metric: Metric) -> list[tuple[str, float | None]]:
    if "*" in metric.path:
        return [(session, entry[metric.path[2]][metric.path[3]]) for session, entry in status["sessions"].items()]
    value = status[metric.path[0]][metric.path[1]]
    return list(value.items()) if metric.label else [("", value)]
