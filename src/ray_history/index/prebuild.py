"""Building indexes ahead of time: many sessions, with news for whoever watches."""

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

from .cache import CacheUnusable
from .indexer import Indexer, Progress, Stop
from .manifest import Manifest

logger = logging.getLogger(__name__)

_AT_ONCE = 4
"""Sessions on their way at the same time: while one is listed or fetched another is built."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one session."""

    session: Session
    how: str
    """`built`, `fetched`, `up to date` or `failed`."""
    manifest: Manifest | None = None
    error: str = ""


class Watch:
    """One line on the terminal that says how far all sessions together have come; silent when nobody watches."""

    def __init__(self, sessions: int) -> None:
        self._lock, self._sessions, self._done = threading.Lock(), sessions, 0
        self._news: dict[Session, Progress] = {}
        self._shown = sys.stderr.isatty()

    def report(self, session: Session, progress: Progress) -> None:
        with self._lock:
            self._news[session] = progress
            self._show()

    @contextmanager
    def done(self, session: Session) -> Iterator[None]:
        """Inside the block the terminal belongs to who tells what became of it."""
        with self._lock:
            self._done += 1
            self._news.pop(session, None)
            self.clear()
            shown, self._shown = self._shown, False
        yield
        self._shown = shown

    def end(self) -> None:
        """Nothing more is shown."""
        with self._lock:
            self.clear()
            self._shown = False

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self) -> None:
        if not self._shown:
            return
        news = self._news.values()
        files, of_files = sum(n.files for n in news), sum(n.files_total for n in news)
        done, of_bytes = sum(n.bytes for n in news), sum(n.bytes_total for n in news)
        events = sum(n.events for n in news)
        part = done / of_bytes if of_bytes else 0
        bar = "#" * round(part * 24)
        stages = ", ".join(sorted({n.stage for n in news}))
        line = (
            f"[{bar:<24}] {self._done}/{self._sessions} sessions, {files}/{of_files} files, "
            f"{done >> 20}/{of_bytes >> 20} MiB, {events:,} events: {stages}"
        )
        sys.stderr.write(f"\r\x1b[K{line[: _columns() - 1]}")  # of a longer one only the last row could be cleared
        sys.stderr.flush()


def _columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or 80


def index_ahead(indexer: Indexer, sessions: Collection[Session], stop: Stop) -> Iterator[Outcome]:
    """Open each session once, so that its index stands; outcomes come as they are done."""
    watch = Watch(len(sessions))
    with ThreadPoolExecutor(_AT_ONCE, "index") as threads:
        waiting = [threads.submit(_index, indexer, session, watch, stop) for session in sessions]
        try:
            for ready in as_completed(waiting):
                outcome = ready.result()
                with watch.done(outcome.session):
                    yield outcome
        except BaseException:
            watch.end()
            stop.ask()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _index(indexer: Indexer, session: Session, watch: Watch, stop: Stop) -> Outcome:
    stages: set[str] = set()

    def report(progress: Progress) -> None:
        stages.add(progress.stage)
        watch.report(session, progress)

    try:
        with indexer.open(session, report, stop, thoroughly=True) as opened:
            manifest = opened.manifest
            indexer.publish(session, opened)
        indexer.summarize(session)
    except (ArchiveError, CacheUnusable) as error:
        return Outcome(session, "failed", error=str(error))
    except Cancelled:
        return Outcome(session, "failed", error="stopped")
    except Exception as error:  # a mistake with one session must not cost the others
        logger.exception("%s could not be indexed", session.name)
        return Outcome(session, "failed", error=f"{type(error).__name__}: {error}")
    how = "built" if "making tables" in stages else "fetched" if "fetching the index" in stages else "up to date"
    return Outcome(session, how, manifest)
