"""Ray's own counters of lost events, from the aggregator agent that sends a node's events.

The agent has a bounded buffer and drops the oldest events if the collector is unreachable for too long. Only Ray can
count those; the ledger has the number as part of the completeness of a session.

A missing counter is None, not 0: Ray creates each one when it first counts, so a missing counter beside a present
`received` means "none so far", while a page without any of them means that nothing is known (metrics are off, or this
Ray version has no aggregator).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from .dashboard_client import Dashboard, DashboardError

PREFIX, OLDEST_PREFIX = "ray_aggregator_agent_", "ray_event_aggregator_agent_"
_OLDEST_NAMES = {
    "events_published": "published_events",
    "events_filtered_out": "filtered_events",
    "events_dropped_at_event_aggregator": "queue_dropped_events",
    "events_failed_to_add_to_aggregator": "events_buffer_add_failures",
}
"""The names of counters in Ray 2.49, and since."""
CONSUMER = "http_service"
"""The collector, as a consumer of the agent. Others are the GCS and the dashboard (`ray_gcs`, `dashboard_head`)."""
MAX_TEXT_BYTES = 32 * 1024 * 1024
"""A busy node exports a few MB; more would take too much memory in a sidecar."""


@dataclass(frozen=True, slots=True)
class AgentMetrics:
    """Counters since the agent of this node started."""

    received: int | None = None
    """Events that workers and the GCS sent to the agent."""
    published: int | None = None
    """Events that a collector acknowledged."""
    filtered: int | None = None
    """Events of types that Ray is not configured to export."""
    dropped: Mapping[str, int] | None = None
    """Events lost because the buffer was full, by event type."""
    failed: int | None = None
    """Events given up after the retries; by default Ray retries for ever."""
    not_buffered: int | None = None
    """Events that the agent could not buffer at all."""
    failing_in_a_row: int | None = None
    """Failed attempts since the last success: not 0 while the collector does not answer."""

    @property
    def lost(self) -> int | None:
        """All lost events; None if there are no counters at all."""
        if self.received is None and self.dropped is None and self.failed is None and self.not_buffered is None:
            return None
        return sum((self.dropped or {}).values()) + (self.failed or 0) + (self.not_buffered or 0)


def dropped_events(metrics_text: str) -> AgentMetrics:
    """The counters of the aggregator agent on a metrics page."""
    totals: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for name, labels, value in _samples(metrics_text):
        if labels.get("consumer", CONSUMER) != CONSUMER:
            continue
        totals[name] = totals.get(name, 0) + value
        if name == "queue_dropped_events":
            event_type = labels.get("event_type") or "unknown"
            dropped[event_type] = dropped.get(event_type, 0) + value
    return AgentMetrics(
        received=totals.get("events_received"),
        published=totals.get("published_events"),
        filtered=totals.get("filtered_events"),
        dropped=dropped or None,
        failed=totals.get("publish_failures"),
        not_buffered=totals.get("events_buffer_add_failures"),
        failing_in_a_row=totals.get("consecutive_failures_since_last_success"),
    )


def scrape(port: int, timeout: float, host: str = "127.0.0.1") -> AgentMetrics | None:
    """Request the metrics page of the agent at `port`; None if there is no answer."""
    try:
        metrics = Dashboard(f"http://{host}:{port}", lambda: None, max_body=MAX_TEXT_BYTES)
        body = metrics.get("/metrics", timeout=timeout).body
    except DashboardError:
        return None
    return dropped_events(body.decode(errors="replace"))


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], int]]:
    for line in text.splitlines():
        # Nearly all lines are of other metrics, and parsing them would take a hundred times as long.
        if not line.startswith((PREFIX, OLDEST_PREFIX)):
            continue
        try:
            found = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
        except (ValueError, LookupError):
            continue
        for sample in found:
            if math.isfinite(sample.value):
                # Some exporters add `_total` to counters, such as Ray 2.60, some do not.
                name = sample.name.removeprefix(PREFIX).removeprefix(OLDEST_PREFIX).removesuffix("_total")
                yield _OLDEST_NAMES.get(name, name), sample.labels, int(sample.value)
