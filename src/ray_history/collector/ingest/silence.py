"""Notices a Ray that runs without sending events, which users would otherwise notice when their session is empty."""

from __future__ import annotations

import logging
import time

from ray_history.collector.ledger import LedgerBook
from ray_history.collector.node.identity import RayNode
from ray_history.ray_variables import export_variables

from .http import IngestApp

logger = logging.getLogger(__name__)

MINUTE = 60.0
"""Seconds for which a head runs before its silence is reported; its first events arrive within a few."""


def advice(port: int) -> str:
    """What to set so that Ray sends events."""
    variables = " ".join(f"{name}={value}" for name, value in export_variables(port).items())
    return f"set these variables for every Ray process, drivers included, and restart Ray: {variables}"


class SilenceWatch:
    """For heads only: a worker node on which nothing runs sends no events."""

    def __init__(self, node: RayNode, ingest: IngestApp, book: LedgerBook, port: int) -> None:
        self._node = node
        self._ingest = ingest
        self._book = book
        self._port = port
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
        if ledger.silent is not None:
            return
        if not self._node.exports_events(session.name):
            ledger.silent = time.time()
            return
        if now - self._began < MINUTE:
            return
        if not self._node.is_alive():
            self._began = now
            return
        ledger.silent = time.time()
        logger.warning(
            "%s has run for a minute and has sent no events, so its history will show no tasks: %s",
            session.name,
            advice(self._port),
        )
