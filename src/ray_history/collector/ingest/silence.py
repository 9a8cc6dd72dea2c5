"""Notices a Ray that runs without sending events, which users would otherwise notice when their session is empty."""

from __future__ import annotations

import logging
import time

from ray_history.collector.ledger import LedgerBook
from ray_history.collector.node.identity import RayNode

from .http import IngestApp

logger = logging.getLogger(__name__)

MINUTE = 60.0
"""Seconds for which a head runs before its silence is reported; its first events arrive within a few."""


def variables(events_url: str) -> str:
    """The variables that Ray needs, as a sentence."""
    return (
        "set RAY_enable_ray_event=true, RAY_enable_core_worker_ray_event_to_aggregator=true, "
        f"RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR={events_url} and "
        "RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES (a list of types, see docs/collector.md; before Ray 2.54 "
        "ALL exports none) for every Ray process, drivers included, and restart Ray"
    )


class SilenceWatch:
    """For heads only: a worker node on which nothing runs sends no events."""

    def __init__(self, node: RayNode, ingest: IngestApp, book: LedgerBook, events_url: str) -> None:
        self._node = node
        self._ingest = ingest
        self._book = book
        self._events_url = events_url
        self._session = ""
        self._began = 0.0

    def check(self, now: float) -> None:
        """Report silence once per session, and its end. `now` is monotonic."""
        session = self._node.current()
        if session is None:
            return
        if session.name != self._session:
            self._session, self._began = session.name, now
        ledger = self._book.session(session.name)
        if ledger.events.received or self._ingest.last_post > self._began:
            if ledger.silent is not None:
                logger.info("%s sends events now", session.name)
                ledger.silent = None
            return
        if ledger.silent is not None or now - self._began < MINUTE:
            return
        if not self._node.is_alive():
            self._began = now
            return
        ledger.silent = time.time()
        logger.warning(
            "%s has run for a minute and has sent no events, so its history will show no tasks: %s",
            session.name,
            variables(self._events_url),
        )
