"""The list of all sessions, from the archive and, for running clusters that are not stored yet, from Kubernetes.

A request gets the list that exists, even if it is some seconds old, with the error of the last refresh. A newer list is
made in the background.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.server.live import Fleet, RunningCluster
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.liveness import State
from ray_history.server.sessions.overview import EMPTY, OverviewCache, SessionOverview
from ray_history.server.ui.home.rows import Row, make_row

logger = logging.getLogger(__name__)

_FRESH, _USABLE = 5.0, 30.0
"""Seconds after which a list is refreshed in the background, and after which a request waits for a new one."""

_CLOCK_SKEW = 60
"""Seconds by which the clocks of Kubernetes and of a head may differ."""


class Source(Protocol):
    """A source of sessions."""

    def rows(self, now: float, /) -> list[Row]:
        """The rows from what is already read; ArchiveError if the sessions cannot be listed."""

    def refresh(self, now: float, /) -> None:
        """Read what is new about these rows. Runs in the background."""


class ArchiveSource:
    """The sessions of the archive, with what their ledgers and summaries say."""

    def __init__(
        self,
        catalog: SessionCatalog,
        overviews: OverviewCache,
        *,
        redact: bool,
        running: Callable[[], Set[tuple[str, str, str]]] = frozenset,
    ) -> None:
        self._catalog, self._overviews, self._redact, self._running = catalog, overviews, redact, running
        self._rows: dict[Session, tuple[SessionOverview, State, Row]] = {}

    def rows(self, now: float) -> list[Row]:
        rows: dict[Session, tuple[SessionOverview, State, Row]] = {}
        running = self._running()
        for session in self._catalog.everything().sessions:
            try:
                rows[session] = self._row(session, now, is_running=_names(session) in running)
            except Exception as error:  # one session must not cost the others their rows
                logger.error("%s cannot be shown in the list", _names(session), exc_info=error)
                rows[session] = EMPTY, "unknown", Row.unshown(session, f"{type(error).__name__}, see the server log")
        self._rows = rows
        return [row for _, _, row in rows.values()]

    def _row(self, session: Session, now: float, *, is_running: bool) -> tuple[SessionOverview, State, Row]:
        overview = self._overviews.of(session)
        state = overview.state(now, is_running=is_running)
        last = self._rows.get(session)
        if last is not None and last[1] == state and last[0].is_same(overview):
            return last
        return overview, state, make_row(session, overview, state, redact=self._redact)

    def refresh(self, now: float) -> None:
        sessions = self._catalog.everything().sessions
        self._overviews.refresh(sessions, now)
        self._overviews.keep(sessions)


class RunningSource:
    """Running clusters whose session is not stored yet, and suspended ones."""

    def __init__(self, fleet: Fleet, catalog: SessionCatalog) -> None:
        self._fleet, self._catalog = fleet, catalog

    def rows(self, _now: float) -> list[Row]:
        running = self._fleet.running
        stored: dict[tuple[str, str], list[Session]] = {}
        for entry in self._stored_sessions(running):
            stored.setdefault(_names(entry)[:2], []).append(entry)
        return [
            *(
                Row.running(cluster.session, cluster.cluster.ray_version or "")
                for cluster in running
                if not self._is_stored(cluster, stored.get((cluster.cluster.namespace, cluster.cluster.name), []))
            ),
            *(Row.suspended(each.session, each.cluster.ray_version or "") for each in self._fleet.suspended),
        ]

    def _is_stored(self, running: RunningCluster, sessions: Sequence[Session]) -> bool:
        name = self._fleet.session_of(running)
        if name is not None:
            return any(entry.name == name for entry in sessions)
        # The head has not reported its session: any session that started since the cluster was created counts.
        return any(entry.started >= running.cluster.created - _CLOCK_SKEW for entry in sessions)

    def _stored_sessions(self, running: Sequence[RunningCluster]) -> Sequence[Session]:
        return self._catalog.everything().sessions if running else ()

    def refresh(self, _now: float) -> None:
        """Kubernetes reports changes by itself."""


def _names(session: Session) -> tuple[str, str, str]:
    return session.cluster.namespace, session.cluster.name, session.name


@dataclass(frozen=True, slots=True)
class Listing:
    """The list at one moment."""

    rows: tuple[Row, ...]
    at: float
    error: str = ""
    """Why the last refresh failed."""
    tried: float = 0.0
    """The time of the last refresh, successful or not."""
    complete: bool = False
    """Whether every summary and ledger behind the rows was read."""

    def is_refreshing(self, now: float) -> bool:
        """Whether a newer list is being made."""
        return not self.error and (not self.complete or now - self.tried > _FRESH)


class SessionList:
    """The list from all sources; safe for many threads."""

    def __init__(self, sources: Sequence[Source], clock: Callable[[], float] = time.time) -> None:
        self._sources, self._clock = sources, clock
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._listing: Listing | None = None

    def current(self) -> Listing:
        """The list. Only the first call, and calls after a long pause, wait for a new one."""
        listing, now = self._listing, self._clock()
        if listing is None or (now - listing.tried > _USABLE and not listing.error):
            with self._lock:
                if self._listing is listing:
                    self._listing = self._make(complete=False)
                listing = self._listing
        if listing is None:
            raise AssertionError("the list is made or an error raised")
        if now - listing.tried > _FRESH or not (listing.complete or listing.error):
            self.refresh()
        return listing

    def refresh(self) -> None:
        """Start a refresh in the background, unless one is running."""
        if self._refreshing.acquire(blocking=False):
            threading.Thread(target=self._refresh, name="session-list", daemon=True).start()

    def close(self) -> None:
        """Wait for a running refresh."""
        with self._refreshing:
            return

    def _refresh(self) -> None:
        try:
            complete = True
            for source in self._sources:
                try:
                    source.refresh(self._clock())
                except ArchiveError as error:
                    complete = False
                    logger.warning("the list of sessions is incomplete: %s", error)
            self._listing = self._make(complete=complete)
        except ArchiveError as error:
            logger.warning("cannot list sessions: %s", error)
        except Exception:  # the next request tries again; meanwhile the last list is shown
            logger.exception("the list of sessions cannot be renewed")
            if (last := self._listing) is not None:
                reason = "internal error, see the server log"
                self._listing = replace(last, error=reason, tried=self._clock())
        finally:
            self._refreshing.release()

    def _make(self, *, complete: bool) -> Listing:
        now, last = self._clock(), self._listing
        try:
            rows = [row for source in self._sources for row in source.rows(now)]
        except ArchiveError as error:
            if last is None:
                raise
            return Listing(last.rows, last.at, str(error), now)
        return Listing(tuple(rows), now, "", now, complete)
