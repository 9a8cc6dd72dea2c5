"""Indexes made while nobody waits: the newest sessions, so that lists tell all about them and they open at once.

Invariants:
* one session at a time, by one process of this machine, on a thread of low priority, and only while no request runs;
* a session whose event files are larger than the limit is left for whoever opens it;
* a session that goes on is looked at again after some minutes, the less often the longer it is silent; one that could
  not be indexed after an hour.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.history.engine import Cancelled
from ray_history.index.cache import CacheUnusable
from ray_history.index.indexer import Indexer, Progress, Stop
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.overview import OverviewCache

logger = logging.getLogger(__name__)

MOST_BYTES = 256 << 20
"""Of compressed event files: about two million tasks."""
_PAUSE = 30.0
_AGAIN, _AFTER_FAILURE = 300.0, 3600.0
"""Seconds until a session is looked at again."""
_NICE = 10


class TooLarge(Exception):
    """The session has more event files than are read ahead of time."""


class IndexAhead:
    """The thread; it does nothing if `newest` is 0."""

    def __init__(
        self,
        indexer: Indexer,
        catalog: SessionCatalog,
        known: OverviewCache,
        newest: int,
        idle: Callable[[], bool],
        *,
        most_bytes: int = MOST_BYTES,
        pause: float = _PAUSE,
    ) -> None:
        self._indexer, self._catalog, self._known = indexer, catalog, known
        self._newest, self._idle = newest, idle
        self._most_bytes, self._pause = most_bytes, pause
        self._not_before: dict[Session, float] = {}
        self._ending = threading.Event()
        self._work = Stop()
        self._thread = threading.Thread(target=self._run, name="index-ahead", daemon=True)

    def start(self) -> None:
        if self._newest:
            self._thread.start()

    def stop(self) -> None:
        """Ends what is under way; waits for it."""
        self._ending.set()
        self._work.ask()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # of this thread and those it starts
        lock = None
        while not self._ending.is_set():
            lock = lock or self._alone()
            if lock is not None:
                try:
                    self._round()
                except ArchiveError as error:
                    logger.warning("nothing is indexed ahead for now: %s", error)
            self._ending.wait(self._pause)
        if lock is not None:
            lock.close()

    def _alone(self) -> BinaryIO | None:
        """A lock that one process of this machine has; the kernel gives it back when that process ends."""
        folder = self._indexer.cache.root
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / "indexing").open("ab")
        except OSError as error:
            logger.warning("nothing is indexed ahead: %s", error)
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def _round(self) -> None:
        sessions = self._catalog.everything().sessions[: self._newest]
        self._known.refresh(sessions, time.time())
        for session in sessions:
            while not self._idle() and not self._ending.is_set():
                self._ending.wait(0.2)
            if self._ending.is_set():
                return
            if self._is_due(session):
                self._index(session)

    def _is_due(self, session: Session) -> bool:
        if time.monotonic() < self._not_before.get(session, 0.0):
            return False
        return not self._known.of(session).is_settled(time.time())

    def _index(self, session: Session) -> None:
        known = self._known.of(session)
        wait = max(_AGAIN, (time.time() - known.last_sign) / 4) if known.summary else _AGAIN
        try:
            self._indexer.open(session, self._small_enough, self._work).close()
            self._indexer.summarize(session)
        except TooLarge:
            wait = _AFTER_FAILURE
        except Cancelled:
            pass
        except (ArchiveError, CacheUnusable) as error:
            wait = _AFTER_FAILURE
            logger.warning("%s is not indexed ahead: %s", session.name, error)
        except Exception:  # one strange session must not end the indexing of the others
            wait = _AFTER_FAILURE
            logger.exception("%s is not indexed ahead", session.name)
        self._not_before[session] = time.monotonic() + wait

    def _small_enough(self, progress: Progress) -> None:
        if progress.bytes_total > self._most_bytes:
            raise TooLarge
