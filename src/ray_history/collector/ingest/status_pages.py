"""The collector's own pages: health, readiness, metrics for Prometheus, and the ledger as it is now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from .http import Page

_TEXT = b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line group of `/metrics`; the table of them is in docs/collector.md."""

    name: str
    kind: str
    help: str
    path: tuple[str, ...]
    """Where its number, or its numbers by label, stand in the status."""


METRICS = (
    Metric("batches_total", "counter", "Batches acknowledged.", ("intake", "batches")),
    Metric("batch_bytes_total", "counter", "Bytes of acknowledged batches.", ("intake", "bytes")),
    Metric("duplicated_events_total", "counter", "Events Ray sent again.", ("intake", "duplicated")),
    Metric("refused_batches_total", "counter", "Batches refused, by reason.", ("intake", "refused")),
    Metric("spool_bytes", "gauge", "Bytes waiting to be shipped.", ("spool", "bytes")),
    Metric("spool_limit_bytes", "gauge", "Bytes that may wait.", ("spool", "limit")),
    Metric("spool_lag_seconds", "gauge", "Age of the oldest waiting batch.", ("spool", "lag_seconds")),
    Metric("events_received_total", "counter", "Events received, by session.", ("sessions", "*", "events", "received")),
    Metric("events_stored_total", "counter", "Events stored, by session.", ("sessions", "*", "events", "stored")),
    Metric("events_quarantined_total", "counter", "Events kept aside.", ("sessions", "*", "events", "quarantined")),
    Metric(
        "events_dropped_by_ray_total",
        "counter",
        "Events Ray dropped before they reached us.",
        ("sessions", "*", "events", "dropped_by_ray"),
    ),
    Metric("log_files", "gauge", "Log files seen, by session.", ("sessions", "*", "logs", "files")),
    Metric("log_bytes_seen_total", "counter", "Log bytes written by Ray.", ("sessions", "*", "logs", "bytes_seen")),
    Metric("log_bytes_stored_total", "counter", "Log bytes kept.", ("sessions", "*", "logs", "bytes_stored")),
    Metric("log_bytes_uploaded_total", "counter", "Bytes sent for logs.", ("sessions", "*", "logs", "bytes_uploaded")),
    Metric("log_bytes_lost_total", "counter", "Log bytes lost.", ("sessions", "*", "logs", "bytes_lost")),
    Metric("store_failures_total", "counter", "Failed attempts to reach the store.", ("store", "failures")),
    Metric("store_reached", "gauge", "1 when the last attempt succeeded.", ("store", "reached")),
)

Status = Callable[[], dict[str, Any]]


def pages(status: Status) -> dict[str, Page]:
    """Our pages by path."""
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
        return 503, _TEXT, f"the store was not reached yet: {status['store']['error']}\n".encode()
    return 200, _TEXT, b"ready\n"


def _metrics(status: dict[str, Any]) -> bytes:
    lines: list[str] = []
    for metric in METRICS:
        name = f"ray_history_collector_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        lines += [
            f"{name}{labels} {int(value) if isinstance(value, bool) else value}"
            for labels, value in _samples(status, metric.path)
        ]
    return "\n".join(lines).encode() + b"\n"


def _samples(status: Any, path: tuple[str, ...]) -> list[tuple[str, float]]:
    if "*" in path:
        every = status[path[0]]
        return [
            (f'{{session="{session}"}}', value)
            for session, entry in every.items()
            if (value := entry[path[2]][path[3]]) is not None
        ]
    value = status
    for step in path:
        value = value[step]
    if isinstance(value, dict):
        return [(f'{{reason="{reason}"}}', number) for reason, number in value.items()]
    return [] if value is None else [("", int(value) if isinstance(value, bool) else value)]
