"""Cycle after cycle: one at a time, over when told, and each failure told once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future

from ray_history.collector.destination import Destination

from .cycle import Cycle
from .dashboard_client import Dashboard
from .endpoints import with_extras
from .memory import Session
from .report import ARCHIVE, PollReport

FINAL_SECONDS = 8.0
"""Kubernetes kills after 30 s, and the spool and the logs need the rest."""

logger = logging.getLogger(__name__)


class Poller:
    """Polls one dashboard, cycle by cycle, into one cluster's place in the archive."""

    def __init__(self, destination: Destination, dashboard: Dashboard, *, extra_endpoints: Iterable[str] = ()) -> None:
        self._destination = destination
        self._dashboard = dashboard
        self._endpoints = with_extras(extra_endpoints)
        self._session = Session("")
        self._told: dict[str, str] = {}
        self._stopped: Future[None] = Future()
        self._turn = threading.Lock()

    def poll(self, session: str, *, deadline: float) -> PollReport:
        """One cycle, over at `deadline` (of time.monotonic) at the latest."""
        return self._run(session, deadline, self._stopped, final=False)

    def stop(self) -> None:
        """End the cycle that runs in another thread, if one does, and let no periodic one start again."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def final_poll(self, session: str, *, deadline: float) -> PollReport:
        """The last look before the cluster is gone: the most important first, and nothing full made empty."""
        self.stop()
        return self._run(session, min(deadline, time.monotonic() + FINAL_SECONDS), Future(), final=True)

    def _run(self, session: str, deadline: float, stopped: Future[None], *, final: bool) -> PollReport:
        with self._turn:
            if session != self._session.name:
                self._session = Session(session)
            self._session.number += 1
            cycle = Cycle(self._destination, self._dashboard, self._endpoints, self._session, deadline, final)
            report = cycle.run(stopped)
            self._tell(report)
            return report

    def _tell(self, report: PollReport) -> None:
        for what, why in report.failures.items():
            # What an archive says names the object it was about: a new text is no news.
            if self._told.get(what) != why and not (what == ARCHIVE and ARCHIVE in self._told):
                logger.warning("not kept, %s: %s", what, why)
        answered = report.stored + report.unchanged + report.empty > 0
        self._told = report.failures if answered else self._told | report.failures
