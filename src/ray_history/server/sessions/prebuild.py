"""Prebuilding: the newest sessions are indexed in the background, so that lists are complete and sessions open at once.

Invariants:
* one session at a time, in one process of the machine, on a thread of low priority, and only while no request runs;
* a session with more event files than the limit is indexed only when a user opens it;
* a live session is checked again after some minutes, less often the longer it is silent; one that could not be indexed
  after an hour.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.history.engine import Cancelled
from ray_history.index.build.order import BuildFailed, Progress
from ray_history.index.cache import CacheUnusable
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.overview import OverviewCache

logger = logging.getLogger(__name__)

MOST_BYTES = 256 << 20
"""Of compressed event files: about two million tasks."""
_PAUSE = 30.0
_RECHECK, _RETRY = 300.0, 3600.0
"""Seconds until a session is checked again, and after a failure."""
_NICE = 10


class TooLarge(Exception):
    """The session has more event files than the limit of prebuilding."""


class Prebuilder:
    """A background thread that indexes the `newest` sessions; 0 disables it."""

    def __init__(
        self,
        indexer: Indexer,
        catalog: SessionCatalog,
        overviews: OverviewCache,
        newest: int,
        is_idle: Callable[[], bool],
        *,
        most_bytes: int = MOST_BYTES,
        pause: float = _PAUSE,
    ) -> None:
        self._indexer, self._catalog, self._overviews = indexer, catalog, overviews
        self._newest, self._is_idle = newest, is_idle
        self._most_bytes, self._pause = most_bytes, pause
        self._not_before: dict[Session, float] = {}
        self._closing = threading.Event()
        self._cancel = CancelToken()
        self._thread = threading.Thread(target=self._run, name="prebuild", daemon=True)

    def start(self) -> None:
        if self._newest:
            self._thread.start()

    def stop(self) -> None:
        """Cancel the current build and wait for the thread."""
        self._closing.set()
        self._cancel.cancel()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        if sys.platform == "linux":  # elsewhere there is no priority of a thread, and those it starts
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        lock = None
        while not self._closing.is_set():
            lock = lock or self._machine_lock()
            if lock is not None:
                try:
                    self._round()
                except ArchiveError as error:
                    logger.warning("prebuilding is paused: %s", error)
            self._closing.wait(self._pause)
        if lock is not None:
            lock.close()

    def _machine_lock(self) -> BinaryIO | None:
        """A lock that one process of this machine holds; the kernel releases it when the process ends."""
        folder = self._indexer.cache.root
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / "indexing").open("ab")
        except OSError as error:
            logger.warning("prebuilding is disabled: %s", error)
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def _round(self) -> None:
        sessions = self._catalog.everything().sessions[: self._newest]
        self._overviews.refresh(sessions, time.time())
        for session in sessions:
            while not self._is_idle() and not self._closing.is_set():
                self._closing.wait(0.2)
            if self._closing.is_set():
                return
            if self._is_due(session):
                self._index(session)

    def _is_due(self, session: Session) -> bool:
        if time.monotonic() < self._not_before.get(session, 0.0):
            return False
        return not self._overviews.of(session).is_settled(time.time())

    def _index(self, session: Session) -> None:
        overview = self._overviews.of(session)
        wait = max(_RECHECK, (time.time() - overview.last_sign) / 4) if overview.summary else _RECHECK
        try:
            self._indexer.open(session, self._check_size, self._cancel, is_background=True).close()
            self._indexer.summarize(session)
        except TooLarge:
            wait = _RETRY
        except Cancelled:
            return
        except (ArchiveError, BuildFailed, CacheUnusable) as error:
            wait = _RETRY
            logger.warning("%s cannot be prebuilt: %s", session.name, error)
        except Exception:  # an unexpected failure must not end the prebuilding of other sessions
            wait = _RETRY
            logger.exception("%s cannot be prebuilt", session.name)
        self._not_before[session] = time.monotonic() + wait

    def _check_size(self, progress: Progress) -> None:
        if progress.bytes_total > self._most_bytes:
            raise TooLarge
