"""The fleet: one row per session, from wherever sessions are known.

A source yields rows: the archive, and Kubernetes for clusters that run and are not stored yet. A list is shown at once
even if it is some seconds old: a newer one is made in the background, and what could not be read is told beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.server.live import Fleet, Running
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.liveness import State
from ray_history.server.sessions.overview import OverviewCache, SessionOverview
from ray_history.server.ui.home.rows import Row, make_row, running_row

logger = logging.getLogger(__name__)

_FRESH, _USABLE = 5.0, 30.0
"""Seconds until a list is renewed in the background, and until nobody wants to see it any more."""

_CLOCKS = 60
"""Seconds that the clocks of Kubernetes and of a head may differ."""


class Source(Protocol):
    """Somewhere that sessions are known."""

    def rows(self, now: float, /) -> list[Row]:
        """What is known at this moment; ArchiveError when it cannot be said."""

    def refresh(self, now: float, /) -> None:
        """Look for more about these rows, in the background."""


class ArchiveSource:
    """The sessions of the archive: its catalog, and what is known without opening them."""

    def __init__(
        self,
        catalog: SessionCatalog,
        known: OverviewCache,
        *,
        redact: bool,
        running: Callable[[], Set[tuple[str, str, str]]] = frozenset,
    ) -> None:
        self._catalog, self._known, self._redact, self._running = catalog, known, redact, running
        self._made: dict[Session, tuple[SessionOverview, State, Row]] = {}

    def rows(self, now: float) -> list[Row]:
        made: dict[Session, tuple[SessionOverview, State, Row]] = {}
        running = self._running()
        for session in self._catalog.everything().sessions:
            known = self._known.of(session)
            state = known.state(now, is_running=_names(session) in running)
            before = self._made.get(session)
            if before is not None and before[1] == state and before[0].is_same(known):
                made[session] = before
            else:
                made[session] = known, state, make_row(session, known, state, redact=self._redact)
        self._made = made
        return [row for _, _, row in made.values()]

    def refresh(self, now: float) -> None:
        self._known.refresh(self._catalog.everything().sessions, now)


class RunningSource:
    """Clusters that run by what Kubernetes says, and of whose session nothing is stored yet."""

    def __init__(self, fleet: Fleet, catalog: SessionCatalog) -> None:
        self._fleet, self._catalog = fleet, catalog

    def rows(self, _now: float) -> list[Row]:
        running = self._fleet.running
        stored: dict[tuple[str, str], list[Session]] = {}
        for entry in self._known(running):
            stored.setdefault(_names(entry)[:2], []).append(entry)
        return [
            running_row(each.session, each.cluster.ray_version or "")
            for each in running
            if not self._is_stored(each, stored.get((each.cluster.namespace, each.cluster.name), []))
        ]

    def _is_stored(self, running: Running, sessions: Sequence[Session]) -> bool:
        """By the name of its session; while nobody told that, by what began since the cluster was created."""
        name = self._fleet.session_of(running)
        if name is not None:
            return any(entry.name == name for entry in sessions)
        return any(entry.started >= running.cluster.created - _CLOCKS for entry in sessions)

    def _known(self, running: Sequence[Running]) -> Sequence[Session]:
        return self._catalog.everything().sessions if running else ()

    def refresh(self, _now: float) -> None:
        """Kubernetes tells by itself what changes."""


def _names(session: Session) -> tuple[str, str, str]:
    return session.cluster.namespace, session.cluster.name, session.name


@dataclass(frozen=True, slots=True)
class Listed:
    """The fleet at some moment."""

    rows: tuple[Row, ...]
    at: float
    error: str = ""
    """Why it is not newer."""
    tried: float = 0.0
    """When a newer one was last looked for."""
    complete: bool = False
    """Whether all that is known about the rows was read."""

    def is_coming(self, now: float) -> bool:
        """Whether a newer one is on its way."""
        return not self.error and (not self.complete or now - self.tried > _FRESH)


class SessionList:
    """All sources together."""

    def __init__(self, sources: Sequence[Source], clock: Callable[[], float] = time.time) -> None:
        self._sources, self._clock = sources, clock
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._listed: Listed | None = None

    def listed(self) -> Listed:
        """The list; the first call waits for it, later ones only when it is old and nothing is wrong."""
        listed, now = self._listed, self._clock()
        if listed is None or (now - listed.tried > _USABLE and not listed.error):
            with self._lock:
                if self._listed is listed:
                    self._listed = self._renewed(complete=False)
                listed = self._listed
        if listed is None:
            raise AssertionError("a list is made or the reason raised")
        if now - listed.tried > _FRESH or not (listed.complete or listed.error):
            self.renew()
        return listed

    def renew(self) -> None:
        """Begin to make a newer list, unless that is under way."""
        if self._renewing.acquire(blocking=False):
            threading.Thread(target=self._renew, name="fleet", daemon=True).start()

    def close(self) -> None:
        """Waits for a list on its way."""
        with self._renewing:
            return

    def _renew(self) -> None:
        try:
            complete = True
            for source in self._sources:
                try:
                    source.refresh(self._clock())
                except ArchiveError as error:
                    complete = False
                    logger.warning("the list of sessions is not complete: %s", error)
            self._listed = self._renewed(complete=complete)
        except ArchiveError as error:
            logger.warning("no list of sessions: %s", error)
        finally:
            self._renewing.release()

    def _renewed(self, *, complete: bool) -> Listed:
        now, before = self._clock(), self._listed
        try:
            rows = [row for source in self._sources for row in source.rows(now)]
        except ArchiveError as error:
            if before is None:
                raise
            return Listed(before.rows, before.at, str(error), now)
        return Listed(tuple(rows), now, "", now, complete)
