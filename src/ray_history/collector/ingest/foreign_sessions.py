"""Which sessions events may name: any process on the node can send events, and invent thousands of sessions.

Events of sessions with a directory on this machine go first. Others may be real too, such as those of a collector that
does not see Ray's directory; the first few of them are stored behind the others, and the rest is quarantined.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock

logger = logging.getLogger(__name__)

MOST_FOREIGN = 20
"""Sessions without a directory on this machine that get a history."""


class ForeignSessions:
    """The sessions without a directory that this process stores, first come, first served."""

    def __init__(self, is_local: Callable[[str], bool], ray_root: Path, most: int = MOST_FOREIGN) -> None:
        self._is_local = is_local
        self._ray_root = ray_root
        self._most = most
        self._local: set[str] = set()
        """Sessions that had a directory at some time: it may be deleted before their last events are stored."""
        self._admitted: set[str] = set()
        self._is_reported = False
        self._lock = Lock()  # the shipper and the journal ask

    def is_local(self, session: str) -> bool:
        """Whether this machine has, or had, a directory of the session."""
        if session in self._local:
            return True
        if not self._is_local(session):
            return False
        with self._lock:
            self._local.add(session)
            self._admitted.discard(session)
        return True

    def admits(self, session: str) -> bool:
        """Whether events of the session are stored; False if they must be quarantined."""
        if self.is_local(session):
            return True
        with self._lock:
            if session in self._admitted:
                return True
            if len(self._admitted) < self._most:
                self._admitted.add(session)
                return True
            if not self._is_reported:
                self._is_reported = True
                logger.warning(
                    "events name more than %d sessions without a directory in %s; the rest is quarantined: "
                    "check --ray-tmp-root, or which process sends them",
                    self._most,
                    self._ray_root,
                )
        return False
