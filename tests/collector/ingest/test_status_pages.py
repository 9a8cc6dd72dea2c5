"""Health, readiness, metrics and ledgers of the collector."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ray_history.collector.ingest.status_pages import METRICS, pages

STATUS: dict[str, Any] = {
    "warnings": [],
    "intake": {
        "batches": 3,
        "bytes": 12345678,
        "duplicated": 0,
        "refused": {"full": 1, "busy": 0},
        "connections": 2,
        "closed": {"unfinished": 4},
    },
    "spool": {"bytes": 20, "limit": 100, "full": False, "lag_seconds": 0.5},
    "store": {"ever_reached": True, "reached": True, "error": "", "failures": 0},
    "sessions": {
        "session_x": {
            "events": {"received": 5, "stored": 5, "quarantined": 0, "dropped_by_ray": None},
            "logs": {"files": 1, "bytes_seen": 2, "bytes_stored": 2, "bytes_uploaded": 1, "bytes_lost": 0},
        }
    },
}


def test_it_is_not_ready_while_the_spool_is_full_or_the_store_was_never_reached() -> None:
    full = {**STATUS, "spool": {**STATUS["spool"], "full": True}}
    assert pages(lambda: full)["/readyz"]()[0] == 503
    away = {**STATUS, "store": {**STATUS["store"], "ever_reached": False, "error": "no route"}}
    status, _, body = pages(lambda: away)["/readyz"]()
    assert (status, body) == (503, b"the store has not been reached yet: no route\n")


def test_what_will_be_missing_is_reported_without_becoming_unready() -> None:
    assert pages(lambda: STATUS)["/readyz"]()[::2] == (200, b"ready\n")
    silent = {**STATUS, "warnings": ["Ray sends no events", "the dashboard refused"]}
    answer = pages(lambda: silent)["/readyz"]()
    assert answer[::2] == (200, b"ready\nwarning: Ray sends no events\nwarning: the dashboard refused\n")


def test_metrics_are_prometheus_text() -> None:
    status, kind, body = pages(lambda: STATUS)["/metrics"]()
    assert (status, kind) == (200, b"text/plain; version=0.0.4")
    text = body.decode()
    families = list(text_string_to_metric_families(text))
    found = {(sample.name, *sample.labels.items()): sample.value for family in families for sample in family.samples}
    prefix = "ray_history_collector_"
    assert found[f"{prefix}batch_bytes_total",] == 12345678
    assert found[f"{prefix}refused_batches_total", ("reason", "full")] == 1
    assert found[f"{prefix}connections_closed_total", ("reason", "unfinished")] == 4
    assert found[f"{prefix}events_stored_total", ("session", "session_x")] == 5
    assert found[f"{prefix}store_reached",] == 1
    assert "events_dropped_by_ray_total{" not in text, "an unknown number is not 0"
    for metric in METRICS:
        assert f"# TYPE {prefix}{metric.name} {metric.kind}\n" in text
    assert {name for name, *_ in found} <= {prefix + metric.name for metric in METRICS}
