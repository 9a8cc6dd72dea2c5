"""`/metrics`: names, types and labels are an interface of dashboards and alerts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ray_history.connections import Connections
from ray_history.server.api.metrics import CacheSize, ServerMetrics, metrics
from ray_history.server.http.middleware import RequestStatistics
from ray_history.server.live import Fleet

DOCS = Path(__file__).parents[3] / "docs"

EXPECTED = {
    "ray_history_requests_total": ("counter", {"method", "status"}),
    "ray_history_request_seconds_total": ("counter", set()),
    "ray_history_request_duration_seconds": ("histogram", {"le"}),
    "ray_history_requests_running": ("gauge", set()),
    "ray_history_connections_open": ("gauge", set()),
    "ray_history_connections_closed_total": ("counter", {"reason"}),
    "ray_history_sessions_open": ("gauge", set()),
    "ray_history_sessions_opened_total": ("counter", set()),
    "ray_history_cache_bytes": ("gauge", set()),
    "ray_history_live_clusters": ("gauge", set()),
    "ray_history_live_missing": ("gauge", set()),
    "ray_history_heads_asked_total": ("counter", set()),
    "ray_history_heads_silent_total": ("counter", set()),
}

SESSIONS: Any = SimpleNamespace(open_count=2, opened_total=3)
CACHE: Any = SimpleNamespace(used_bytes=lambda: 4096)


def page(worker: str = "") -> str:
    statistics = RequestStatistics()
    statistics.requests["GET", 200], statistics.seconds = 2, 0.75
    for seconds in (0.25, 0.5):
        statistics.durations.observe(seconds)
    return bytes(
        metrics(ServerMetrics(statistics, Connections(), SESSIONS, Fleet(), CacheSize(CACHE), worker)).body
    ).decode()


def test_names_and_types_are_stable() -> None:
    types = [line.split()[2:] for line in page().splitlines() if line.startswith("# TYPE")]
    assert types == [[name, kind] for name, (kind, _) in EXPECTED.items()]


@pytest.mark.parametrize("worker", ["", "4711"])
def test_labels_are_stable(worker: str) -> None:
    for family in text_string_to_metric_families(page(worker)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels == EXPECTED[name][1] | ({"worker"} if worker else set()), name
        assert {sample.labels["worker"] for sample in family.samples if worker} <= {worker}


def test_values_are_those_of_the_process() -> None:
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page())
        for sample in family.samples
        if "le" not in sample.labels
    }
    assert values == {
        "ray_history_requests_total": 2,
        "ray_history_request_seconds_total": 0.75,
        "ray_history_request_duration_seconds_count": 2,
        "ray_history_request_duration_seconds_sum": 0.75,
        "ray_history_requests_running": 0,
        "ray_history_connections_open": 0,
        "ray_history_connections_closed_total": 0,
        "ray_history_sessions_open": 2,
        "ray_history_sessions_opened_total": 3,
        "ray_history_cache_bytes": 4096,
        "ray_history_live_clusters": 0,
        "ray_history_live_missing": 0,
        "ray_history_heads_asked_total": 0,
        "ray_history_heads_silent_total": 0,
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_every_metric_is_documented(name: str) -> None:
    documents = (DOCS / "server.md").read_text() + (DOCS / "live-clusters.md").read_text()
    assert f"`{name}`" in documents


def test_the_cache_is_not_measured_at_each_request() -> None:
    now, sizes = 100.0, iter([1, 2])
    size = CacheSize(SimpleNamespace(used_bytes=lambda: next(sizes)), lambda: now)  # type: ignore[arg-type]
    assert [size.read() for _ in range(3)] == [1, 1, 1]
    now += 30
    assert size.read() == 2
