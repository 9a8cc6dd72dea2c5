"""What Ray itself says it lost: the counters of the aggregator agent, which sends the events of a node.

The agent keeps a bounded buffer and drops the oldest events when the collector was away too long. Those never reach
us, so only Ray can tell how many there were; the ledger shows it to users as part of the proof of completeness.

A counter that is not in the text is None, never 0: Ray creates each one when it first counts, so an absent counter
beside a present `received` means "none so far", while a text without any of them means that nothing is known (metrics
are off, or this Ray has no aggregator).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .dashboard_client import Dashboard, DashboardError

PREFIX = "ray_aggregator_agent_"
OUR_CONSUMER = "http_service"
"""The agent also feeds the GCS and the dashboard (`ray_gcs`, `dashboard_head`); what those lose is not our loss."""
MAX_TEXT_BYTES = 32 * 1024 * 1024
"""A busy node exports a few MB; more is not worth the memory of a sidecar."""

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*", re.ASCII)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentMetrics:
    """Counters since the agent of this node started."""

    received: int | None = None
    """Events that workers and the GCS handed to the agent."""
    published: int | None = None
    """Events that a collector acknowledged."""
    filtered: int | None = None
    """Events of kinds that Ray was not told to export."""
    dropped: Mapping[str, int] | None = None
    """Events lost because the buffer was full, by event type."""
    failed: int | None = None
    """Events given up after the retries; Ray retries forever unless told otherwise."""
    not_buffered: int | None = None
    """Events that the agent could not take in at all."""
    failing_in_a_row: int | None = None
    """Attempts that failed since the last success: not 0 while the collector does not answer."""

    @property
    def lost(self) -> int | None:
        """All events that Ray says will never come; None when it says nothing at all."""
        if self.received is None and self.dropped is None and self.failed is None and self.not_buffered is None:
            return None
        return sum((self.dropped or {}).values()) + (self.failed or 0) + (self.not_buffered or 0)


def dropped_events(metrics_text: str) -> AgentMetrics:
    """Read the aggregator's counters out of a node's Prometheus text."""
    totals: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for name, labels, value in _samples(metrics_text):
        if labels.get("consumer", OUR_CONSUMER) != OUR_CONSUMER:
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
    """Ask the agent that exports on `port`; None when it does not answer."""
    try:
        metrics = Dashboard(f"http://{host}:{port}", lambda: None, max_body=MAX_TEXT_BYTES)
        body = metrics.get("/metrics", timeout=timeout).body
    except DashboardError:
        return None
    return dropped_events(body.decode(errors="replace"))


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], int]]:
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        name, labels, written = sample.groups()
        try:
            value = float(written)
        except ValueError:
            continue
        if math.isfinite(value):
            # Some exporters add `_total` to counters, some do not: 2.60 does.
            yield name.removeprefix(PREFIX).removesuffix("_total"), dict(_LABEL.findall(labels or "")), int(value)
