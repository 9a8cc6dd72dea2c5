"""Prebuild: build the indexes of many sessions, with progress on the terminal."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.history.engine import Cancelled

from .build.order import BuildFailed, Progress
from .cache import CacheUnusable
from .indexer import Indexer
from .locks import CancelToken
from .manifest import Manifest

logger = logging.getLogger(__name__)

_CONCURRENT = 4
"""Sessions at the same time: while one is listed or downloaded, another is built."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one session."""

    session: Session
    how: str
    """`built`, `fetched`, `up to date` or `failed`."""
    manifest: Manifest | None = None
    error: str = ""


class ProgressLine:
    """One line on the terminal with the progress of all sessions together; nothing if stderr is not a terminal."""

    def __init__(self, sessions: int) -> None:
        self._lock, self._sessions, self._done = threading.Lock(), sessions, 0
        self._progress: dict[Session, Progress] = {}
        self._is_shown = sys.stderr.isatty()

    def report(self, session: Session, progress: Progress) -> None:
        with self._lock:
            self._progress[session] = progress
            self._show()

    @contextmanager
    def done(self, session: Session) -> Iterator[None]:
        """Remove a session. Inside the block the line is hidden, so that the caller can print."""
        with self._lock:
            self._done += 1
            self._progress.pop(session, None)
            self.clear()
            was_shown, self._is_shown = self._is_shown, False
        yield
        self._is_shown = was_shown

    def end(self) -> None:
        """Hide the line for good."""
        with self._lock:
            self.clear()
            self._is_shown = False

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self) -> None:
        if not self._is_shown:
            return
        progress = self._progress.values()
        files, files_total = sum(each.files for each in progress), sum(each.files_total for each in progress)
        done, total = sum(each.bytes for each in progress), sum(each.bytes_total for each in progress)
        events = sum(each.events for each in progress)
        bar = "#" * round((done / total if total else 0) * 24)
        stages = ", ".join(sorted({each.stage for each in progress}))
        line = (
            f"[{bar:<24}] {self._done}/{self._sessions} sessions, {files}/{files_total} files, "
            f"{done >> 20}/{total >> 20} MiB, {events:,} events: {stages}"
        )
        sys.stderr.write(f"\r\x1b[K{line[: _columns() - 1]}")  # of a wrapped line only the last row could be cleared
        sys.stderr.flush()


def _columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or 80


def prebuild(indexer: Indexer, sessions: Collection[Session], cancel: CancelToken) -> Iterator[Outcome]:
    """Open each session once, so that its index exists; yields outcomes as they come."""
    line = ProgressLine(len(sessions))
    with ThreadPoolExecutor(_CONCURRENT, "index") as threads:
        waiting = [threads.submit(_prebuild, indexer, session, line, cancel) for session in sessions]
        try:
            for ready in as_completed(waiting):
                outcome = ready.result()
                with line.done(outcome.session):
                    yield outcome
        except BaseException:
            line.end()
            cancel.cancel()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _prebuild(indexer: Indexer, session: Session, line: ProgressLine, cancel: CancelToken) -> Outcome:
    stages: set[str] = set()

    def report(progress: Progress) -> None:
        stages.add(progress.stage)
        line.report(session, progress)

    try:
        with indexer.open(session, report, cancel, verify=True) as opened:
            manifest = opened.manifest
            indexer.publish(session, opened)
        indexer.summarize(session)
    except (ArchiveError, BuildFailed, CacheUnusable) as error:
        return Outcome(session, "failed", error=str(error))
    except Cancelled:
        return Outcome(session, "failed", error="cancelled")
    except Exception as error:  # an error in one session must not affect the others
        logger.exception("%s could not be indexed", session.name)
        return Outcome(session, "failed", error=f"{type(error).__name__}: {error}")
    how = "built" if "making tables" in stages else "fetched" if "fetching the index" in stages else "up to date"
    return Outcome(session, how, manifest)
