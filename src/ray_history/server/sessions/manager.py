"""Open sessions: their tables and logs, ready for requests.

Invariants:
* concurrent requests for a session share one opening, which continues when they disconnect. One that failed is not
  repeated by every request (see failed_builds.py);
* a session in use stays open; beyond `most_open` the least recently used is closed as soon as it is unused;
* an open session is compared with the archive at intervals, in the background. Requests are answered from the current
  tables until newer ones are ready. New log files alone need no new tables: the files are listed again;
* after a pause without requests a session that may have grown is compared before it is used. All requests wait for the
  same comparison, at most `_WAIT_MAX` seconds after it began, so a slow archive delays only the first of them;
* a session whose tables cannot be read is doubtful: before the next request gets it, its index is verified, and rebuilt
  if damaged. An index from the cache is also verified once after it was opened, because damage may go unnoticed;
* large answers about all sessions take turns (see turns.py). Answers of unlimited size are computed
  while they are read and hold memory for that long, which the memory budget of their session limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ray_history.archive.catalog import Session
from ray_history.archive.ledger import Ledger
from ray_history.archive.ledger import decode as decode_ledger
from ray_history.archive.session_files import SessionFiles, list_session
from ray_history.history.read.tables import READING_FAILED, Tables, ready_database
from ray_history.index.build.order import BuildFailed, Progress
from ray_history.index.build.steps import BuildHere
from ray_history.index.cache import CacheUnusable, Opened
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.failed_builds import BuildsWithPauses
from ray_history.server.sessions.open_session import MemoryBudget, OpenSession
from ray_history.server.sessions.standby import Standby
from ray_history.server.sessions.turns import HandlerThreads, Turns

logger = logging.getLogger(__name__)

_OUTDATED_AFTER = 30.0
"""Seconds after a comparison with the archive in which requests do not wait for the next one."""
_WAIT_MAX = 3.0
"""Seconds after the start of a comparison with the archive in which requests wait for it."""
TRUSTED_FOR = 60.0
"""Seconds after a verification in which a session is not verified again."""


@dataclass(eq=False)
class _Opening:
    """A session that is being opened or refreshed."""

    future: Future[None]
    cancel: CancelToken
    progress: Progress = field(default_factory=Progress)
    started: float = field(default_factory=time.monotonic)


class Sessions:
    """The open sessions of a server."""

    def __init__(
        self, indexer: Indexer, *, most_open: int, query_memory: int, threads: int, recheck: float = 15.0
    ) -> None:
        builds = indexer.builds or BuildHere(indexer.store, indexer.limits)
        self.indexer = replace(indexer, builds=BuildsWithPauses(builds))
        self._most_open, self._recheck = most_open, recheck
        self._query_memory = query_memory
        self._turns, self.threads = Turns(threads), HandlerThreads()
        self._databases = Standby(lambda: ready_database(query_memory, threads), lambda database: database.close())
        self._lock = threading.Lock()
        self._open: OrderedDict[Session, OpenSession] = OrderedDict()
        self._openings: dict[Session, _Opening] = {}
        self._openers = ThreadPoolExecutor(4, "open")
        self.opened_total = 0
        self.running: Callable[[], Set[tuple[str, str, str]]] = frozenset
        """Namespace, cluster and session of running clusters: these sessions are live, whatever the archive says."""

    async def acquire(self, session: Session) -> OpenSession:
        """The open session; the caller must `release` it."""
        comparison = self._comparison_to_await(session)
        if comparison is not None:
            wait = comparison.started + _WAIT_MAX - time.monotonic()
            await asyncio.wait([_awaitable(comparison)], timeout=max(wait, 0.0))
        while True:
            found = self._use(session)
            if found is not None:
                return found
            opening = _awaitable(self._start(session))
            await asyncio.wait([opening])  # a disconnecting client must not cancel the open for other waiters
            opening.result()

    def age(self, opened: OpenSession) -> int | None:
        """Seconds since the last comparison if that is too long ago for an answer without a note, else None."""
        return round(time.monotonic() - opened.compared) if self._is_outdated(opened) else None

    def release(self, opened: OpenSession) -> None:
        with self._lock:
            opened.users -= 1
            unused = opened.retired and not opened.users
        if unused:
            opened.close()

    def status(self, session: Session) -> Progress:
        """The progress of opening it; does not start that."""
        with self._lock:
            if session in self._open:
                return Progress(stage="ready")
            opening = self._openings.get(session)
            return opening.progress if opening else Progress(stage="closed")

    def start(self, session: Session) -> None:
        """Start to open it, without waiting."""
        with self._lock:
            if session in self._open:
                return
        self._start(session)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        with self._lock:
            openings = list(self._openings.values())
        for opening in openings:
            opening.cancel.cancel()
        self._openers.shutdown()
        self.indexer.close()
        self._databases.close()
        with self._lock:
            remaining = list(self._open.values())
            self._open.clear()
        for opened in remaining:
            opened.close()

    def _use(self, session: Session) -> OpenSession | None:
        with self._lock:
            found = self._open.get(session)
            if found is None or found.is_doubtful:
                return None
            found.users += 1
            self._open.move_to_end(session)
            due = self._takes_turn(found)
        if due:
            self._start(session)
        return found

    def _comparison_to_await(self, session: Session) -> _Opening | None:
        """The comparison with the archive that a request should wait for; it is started if none runs."""
        with self._lock:
            found, running = self._open.get(session), self._openings.get(session)
            if found is None or not self._is_outdated(found):
                return None
            due = self._takes_turn(found)
        return self._start(session) if due else running

    def _is_outdated(self, opened: OpenSession) -> bool:
        # At least twice the interval: while requests keep coming, comparisons in the background are never that late.
        return opened.may_grow and time.monotonic() - opened.compared > max(self._recheck * 2, _OUTDATED_AFTER)

    def _takes_turn(self, opened: OpenSession) -> bool:
        """Whether the caller, who holds the lock, has to start the next comparison."""
        now, interval = time.monotonic(), self._recheck if opened.may_grow else self._recheck * 20
        due = now - opened.checked > interval and opened.session not in self._openings
        if due:
            opened.checked = now
        return due

    def _start(self, session: Session) -> _Opening:
        with self._lock:
            opening = self._openings.get(session)
            if opening is None:
                opening = self._openings[session] = _Opening(Future(), CancelToken())
                self._openers.submit(self._open_or_refresh, session, opening)
            return opening

    def _open_or_refresh(self, session: Session, opening: _Opening) -> None:
        def report(progress: Progress) -> None:
            opening.progress = progress

        doubtful = self._doubtful(session)
        try:
            if doubtful is not None or not self._is_unchanged(session, report, opening.cancel):
                self._publish(self._opened(session, report, opening.cancel, doubtful))
        except BaseException as error:  # noqa: BLE001  # waiters must learn of it, whatever it is
            self._finish(session)
            opening.future.set_exception(_refusal(error) or error)
        else:
            self._finish(session)
            opening.future.set_result(None)
            # After the result: requests wait neither for this nor for the summary.
            self.indexer.publish_deferred(session)
            self.indexer.summarize(session)
            if opening.progress.stage == "listing":  # it came from the cache and was not verified yet
                self._verify(session)

    def _doubtful(self, session: Session) -> OpenSession | None:
        with self._lock:
            current = self._open.get(session)
        return current if current is not None and current.is_doubtful else None

    def _verify(self, session: Session) -> None:
        """Mark a session as doubtful if its files are damaged in a way that reading does not notice."""
        with self._lock:
            opened = self._open.get(session)
            if opened is None or opened.trusted_until:
                return
            opened.users += 1
        try:
            if opened.opened.is_intact():
                opened.trusted_until = time.monotonic()
            else:
                opened.tables.is_doubtful = True
        finally:
            self.release(opened)

    def _is_unchanged(self, session: Session, report: Callable[[Progress], None], cancel: CancelToken) -> bool:
        """Whether the session is open and its index up to date. Its log files and its state are then refreshed."""
        with self._lock:
            current = self._open.get(session)
        if current is None:
            return False
        began = time.monotonic()
        with self.indexer.open(session, report, cancel, publish_later=True) as newest:
            if newest.manifest != current.opened.manifest:
                return False
        files = list_session(self.indexer.store, session)
        if (files.whole_logs, files.tail_bundles) != (current.files.whole_logs, current.files.tail_bundles):
            current.logs = current.logs.renewed(files.whole_logs, files.tail_bundles)
            current.logs_digest = _logs_digest(files)
        current.files = files
        current.update_state(time.time(), is_running=self._is_running(session))
        current.compared = began
        return True

    def _is_running(self, session: Session) -> bool:
        return (session.cluster.namespace, session.cluster.name, session.name) in self.running()

    def _finish(self, session: Session) -> None:
        with self._lock:
            self._openings.pop(session, None)

    def _opened(
        self, session: Session, report: Callable[[Progress], None], cancel: CancelToken, doubtful: OpenSession | None
    ) -> OpenSession:
        began = time.monotonic()
        opened, tables, ledgers = self._tables(session, report, cancel, verify=doubtful is not None)
        try:
            files = list_session(self.indexer.store, session)
        except BaseException:
            tables.close()
            opened.close()
            raise
        logs = files.logs(self.indexer.store)
        budget, digest = MemoryBudget(self._query_memory), _logs_digest(files)
        checked = time.monotonic()
        fresh = OpenSession(session, opened, files, tables, logs, digest, ledgers, checked, began, budget)
        fresh.update_state(time.time(), is_running=self._is_running(session))
        if doubtful is not None:
            fresh.doubts, fresh.trusted_until = doubtful.doubts + 1, time.monotonic() + TRUSTED_FOR
        return fresh

    def _tables(
        self, session: Session, report: Callable[[Progress], None], cancel: CancelToken, *, verify: bool
    ) -> tuple[Opened, Tables, dict[str, Ledger]]:
        opened = self.indexer.open(session, report, cancel, publish_later=True, verify=verify)
        try:
            tables = Tables(opened.directory, turns=self._turns, database=self._databases.take())
            try:
                return opened, tables, _ledgers(tables) if opened.manifest.facts.collectors else {}
            except BaseException:
                tables.close()
                raise
        except READING_FAILED:
            opened.close()
            if verify:
                raise
        except BaseException:
            opened.close()
            raise
        return self._tables(session, report, cancel, verify=True)

    def _publish(self, fresh: OpenSession) -> None:
        with self._lock:
            replaced = [self._open.pop(fresh.session)] if fresh.session in self._open else []
            self._open[fresh.session] = fresh
            self.opened_total += 1
            for session, opened in list(self._open.items()):
                if len(self._open) <= self._most_open:
                    break
                if not opened.users and opened is not fresh:
                    replaced.append(self._open.pop(session))
            for opened in replaced:
                opened.retired = True
            unused = [opened for opened in replaced if not opened.users]
        for opened in unused:
            opened.close()


def _ledgers(tables: Tables) -> dict[str, Ledger]:
    """The ledgers that went into the index, by node."""
    rows = tables.rows("select node_id, body::varchar from document where source = 'ledger' order by node_id")
    return {node: ledger for node, body in rows if (ledger := decode_ledger(body)) is not None}


def _refusal(error: BaseException) -> ApiError | None:
    """The answer while a session cannot be opened, if the reason is known."""
    match error:
        case BuildFailed(reason="error"):
            return ApiError(500, f"the session cannot be opened: {error}")
        case BuildFailed() | CacheUnusable():
            return ApiError(503, f"the session cannot be opened: {error}")
    return None


def _logs_digest(files: SessionFiles) -> str:
    lines = sorted(f"{info.key}\0{info.size}\0{info.etag}\n" for _, _, info in files.whole_logs)
    return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()


def _awaitable(opening: _Opening) -> asyncio.Future[None]:
    awaitable = asyncio.wrap_future(opening.future)
    awaitable.add_done_callback(_retrieve_exception)
    return awaitable


def _retrieve_exception(opening: asyncio.Future[None]) -> None:
    """All waiters may have disconnected; asyncio warns about an exception that is never retrieved."""
    if not opening.cancelled():
        opening.exception()
