"""Runs one cycle at a time, until it is stopped, and reports each failure once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from ray_history.collector.destination import Destination

from .cycle import ARCHIVE, Cycle, PollReport
from .dashboard_client import Dashboard
from .endpoints import When, with_extras
from .memory import SessionMemory

FINAL_SECONDS = 8.0
"""Kubernetes kills after 30 s; the spool and the logs need the rest."""

logger = logging.getLogger(__name__)


class Poller:
    """Polls one dashboard, cycle by cycle."""

    def __init__(
        self,
        destination: Destination,
        dashboard: Dashboard,
        *,
        extra_endpoints: Iterable[str] = (),
        sends_events: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`sends_events` tells whether events of a session can be expected; if not, all of its tasks are polled."""
        self._sends_events = sends_events
        self._destination = destination
        self._dashboard = dashboard
        self._endpoints = with_extras(extra_endpoints)
        self._session = SessionMemory("")
        self._reported: dict[str, str] = {}
        self._stopped: Future[None] = Future()
        self._turn = threading.Lock()

    @property
    def urls(self) -> list[str]:
        """The URLs of the endpoints of every Ray, with `{}` for the id of a job or node."""
        return [endpoint.url for endpoint in self._endpoints if endpoint.when is not When.WITHOUT_SPANS]

    def poll(self, session: str, *, deadline: float) -> PollReport:
        """Run one cycle, until `deadline` (monotonic) at the latest."""
        return self._run(session, deadline, self._stopped, final=False)

    def stop(self) -> None:
        """End a running cycle in another thread, and prevent further periodic ones."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def final_poll(self, session: str, *, deadline: float) -> PollReport:
        """Run the last cycle before the cluster is gone; no empty answer replaces a full one."""
        self.stop()
        return self._run(session, min(deadline, time.monotonic() + FINAL_SECONDS), Future(), final=True)

    def _run(self, session: str, deadline: float, stopped: Future[None], *, final: bool) -> PollReport:
        with self._turn:
            if session != self._session.name:
                self._session = SessionMemory(session)
                self._session.lists_tasks = not self._sends_events(session)
            self._session.number += 1
            cycle = Cycle(self._destination, self._dashboard, self._endpoints, self._session, deadline, final)
            report = cycle.run(stopped)
            self._log_failures(report)
            return report

    def _log_failures(self, report: PollReport) -> None:
        for what, why in report.failures.items():
            # Messages about the archive name an object: another text is not another failure.
            if self._reported.get(what) != why and not (what == ARCHIVE and ARCHIVE in self._reported):
                logger.warning("not stored, %s: %s", what, why)
        answered = report.stored + report.unchanged + report.empty > 0
        self._reported = report.failures if answered else self._reported | report.failures
