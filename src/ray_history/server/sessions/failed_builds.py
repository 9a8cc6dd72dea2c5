"""Builds that failed: they are not repeated by every request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ray_history.archive.catalog import Session
from ray_history.index.build.order import BuildFailed, BuildOrder, Builds, Reason, Report
from ray_history.index.locks import CancelToken
from ray_history.index.manifest import Manifest

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0
"""Seconds until a failed build is tried again; the pause doubles with each failure."""
_MOST = 10_000
"""Failures that are remembered."""


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: Reason
    message: str
    """The error itself would keep what its traceback refers to: the order, with all objects of the session."""
    version: int
    pause: float
    until: float


class BuildsWithPauses:
    """Passes orders on. One that failed is refused for a while, unless its session has changed since."""

    def __init__(self, builds: Builds, clock: Callable[[], float] = time.monotonic) -> None:
        self._builds, self._clock = builds, clock
        self._lock = threading.Lock()
        self._failures: dict[Session, _Failure] = {}

    def prepare(self) -> None:
        self._builds.prepare()

    def close(self) -> None:
        self._builds.close()

    def build(self, order: BuildOrder, report: Report, cancel: CancelToken) -> Manifest:
        session, version = order.sources.files.session, hash((order.sources.events, order.sources.others))
        with self._lock:
            failure = self._failures.get(session)
        if failure is not None and failure.version == version and self._clock() < failure.until:
            raise BuildFailed(failure.reason, failure.message)
        try:
            built = self._builds.build(order, report, cancel)
        except BuildFailed as error:
            is_same = failure is not None and failure.version == version
            pause = min(failure.pause * 2, _LONGEST_PAUSE) if failure and is_same else _FIRST_PAUSE
            message = str(error)
            logger.warning("%s cannot be opened, and is tried again after %d s: %s", session.name, pause, message)
            with self._lock:
                if len(self._failures) >= _MOST:
                    self._failures.pop(next(iter(self._failures)))
                self._failures[session] = _Failure(error.reason, message, version, pause, self._clock() + pause)
            raise
        with self._lock:
            self._failures.pop(session, None)
        return built
