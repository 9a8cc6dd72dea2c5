"""Sessions that are open: their tables and logs, ready for requests.

Invariants:
* a session is opened once however many ask for it, and opening goes on when they leave;
* what is in use stays open; beyond `most_open` the least recently used is closed once nobody uses it;
* an open session is compared with the archive from time to time, in the background: requests are answered from what is
  there until the newer one is ready. Log files alone make no newer one: they are listed anew;
* what cannot be read is doubted: before anybody else gets it its index is looked through, and made anew if damaged. So
  is, once, an index that stood in the cache, after it was opened: damage may also be such that it can be read;
* large answers take turns: `heavy` bounds how many are made at once, over all sessions. Those of any size are made as
  they are read, so that they hold memory for as long: of one session only so many at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ray_history.archive.catalog import Session
from ray_history.archive.ledger import Ledger
from ray_history.archive.ledger import decode as decode_ledger
from ray_history.archive.log_files import LogFiles
from ray_history.archive.session_files import SessionFiles, list_session
from ray_history.history.read.tables import READING_FAILED, Tables, ready_database
from ray_history.history.read.views import View
from ray_history.index.cache import Opened
from ray_history.index.indexer import Indexer, Progress, Stop
from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.liveness import OVERDUE_AFTER, LifeSigns, State
from ray_history.server.sessions.standby import Standby

logger = logging.getLogger(__name__)

MUCH, LITTLE = 96 << 20, 24 << 20
"""Memory kept for an answer that is streamed: measured were 50 MiB for tasks with detail, 60 for spans; 11 without."""
TRUSTED_FOR = 60.0
"""Seconds after a session was looked through in which it is not looked through again."""


class Room:
    """So much of something, of which many take a part and give it back."""

    def __init__(self, size: int) -> None:
        self._size, self._taken, self._lock = size, 0, threading.Lock()

    def take(self, part: int) -> bool:
        """False if there is too little left; whoever comes alone gets a part of any size."""
        with self._lock:
            fits = not self._taken or self._taken + part <= self._size
            self._taken += part if fits else 0
            return fits

    def give_back(self, part: int) -> None:
        with self._lock:
            self._taken -= part


@dataclass(eq=False)
class OpenSession:
    """One session, open."""

    session: Session
    opened: Opened
    files: SessionFiles
    tables: Tables
    logs: LogFiles
    logs_digest: str
    """Digest over the listing of its whole log files: they may come when all events are there."""
    ledgers: dict[str, Ledger]
    """By node."""
    checked: float
    room: Room
    """Memory for answers while they are streamed."""
    users: int = 0
    retired: bool = False
    doubts: int = 0
    """How often it was doubted and opened anew: what was answered before may have been wrong."""
    trusted_until: float = 0.0
    """It was looked through a moment ago: what fails now is not the fault of its files."""
    signs: LifeSigns = field(default_factory=LifeSigns)
    state: State = "unknown"
    ended_ns: int | None = None
    """When it ended; None while it is live."""
    counts: dict[object, tuple[int, int]] = field(default_factory=dict)
    """Numbers of rows, by what was counted: they cost as much as the rows on a large session."""

    @property
    def facts(self) -> dict[str, Any]:
        return self.opened.manifest.facts

    @property
    def is_doubtful(self) -> bool:
        return self.tables.is_doubtful and time.monotonic() > self.trusted_until

    def update_state(self, now: float, *, is_running: bool) -> None:
        """Judge anew whether the session is live, from its ledgers and files."""
        self.signs = LifeSigns.from_archive(self.ledgers.values(), self.files, is_running=is_running)
        self.state = self.signs.state(now)
        self.ended_ns = self.signs.end_ns(now, started=self.session.started, last_event_ns=self.facts.get("last_ns"))

    @property
    def may_grow(self) -> bool:
        """Whether collectors may still upload: also those of workers, for a while after the head ended."""
        return self.state == "live" or time.time() <= self.signs.alive_until + OVERDUE_AFTER

    def view(self, at: int | None = None, *, raw: bool = False) -> View:
        return View(at, None if raw else self.ended_ns)

    def stream(self, sql: str, parameters: Sequence[Any] = (), memory: int = MUCH) -> Generator[list[tuple[Any, ...]]]:
        """The rows of an answer of any size, as fast as they are taken, until it is closed; the first are read already,
        so that the status tells what cannot be had."""
        pages = self._streamed(sql, parameters, memory)
        next(pages)
        return pages

    def _streamed(self, sql: str, parameters: Sequence[Any], memory: int) -> Generator[list[tuple[Any, ...]]]:
        if not self.room.take(memory):
            raise ApiError(
                503,
                "as many large answers of this session are being sent as there is memory for; try again later, "
                "or ask for less: a listing page by page with limit= and cursor=, the timeline of one job",
            )
        try:
            pages = self.tables.stream(sql, parameters)
            first = next(pages, [])
            yield []
            yield first
            yield from pages
        finally:
            self.room.give_back(memory)

    def close(self) -> None:
        self.tables.close()
        self.opened.close()


@dataclass(eq=False)
class _Work:
    """A session on its way."""

    future: Future[None]
    stop: Stop
    progress: Progress = field(default_factory=Progress)


class Sessions:
    """The open sessions of a server."""

    def __init__(
        self, indexer: Indexer, *, most_open: int, query_memory: int, threads: int, recheck: float = 15.0
    ) -> None:
        self.indexer = indexer
        self._most_open, self._recheck = most_open, recheck
        self._query_memory = query_memory
        self.heavy = threading.BoundedSemaphore(threads)
        self._databases = Standby(lambda: ready_database(query_memory, threads), lambda database: database.close())
        self._lock = threading.Lock()
        self._open: OrderedDict[Session, OpenSession] = OrderedDict()
        self._coming: dict[Session, _Work] = {}
        self._openers = ThreadPoolExecutor(4, "open")
        self.opened_total = 0
        self.running: Callable[[], Set[tuple[str, str, str]]] = frozenset
        """Namespace, cluster and session of running clusters: these sessions are live, whatever the archive says."""

    async def acquire(self, session: Session) -> OpenSession:
        """The session, open; to be given back with `release`."""
        while True:
            found = self._take(session)
            if found is not None:
                return found
            opening = asyncio.wrap_future(self._work(session).future)
            opening.add_done_callback(_taken_note_of)
            await asyncio.wait([opening])  # who leaves does not end it for others
            opening.result()

    def release(self, opened: OpenSession) -> None:
        with self._lock:
            opened.users -= 1
            unused = opened.retired and not opened.users
        if unused:
            opened.close()

    def status(self, session: Session) -> Progress:
        """How far it is; asking does not open it."""
        with self._lock:
            if session in self._open:
                return Progress(stage="ready")
            work = self._coming.get(session)
            return work.progress if work else Progress(stage="closed")

    def start(self, session: Session) -> None:
        """Begin to open it, without waiting."""
        with self._lock:
            if session in self._open:
                return
        self._work(session)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        with self._lock:
            coming = list(self._coming.values())
        for work in coming:
            work.stop.ask()
        self._openers.shutdown()
        self._databases.close()
        with self._lock:
            ended = list(self._open.values())
            self._open.clear()
        for opened in ended:
            opened.close()

    def _take(self, session: Session) -> OpenSession | None:
        with self._lock:
            found = self._open.get(session)
            if found is None or found.is_doubtful:
                return None
            found.users += 1
            self._open.move_to_end(session)
            patience = self._recheck if found.may_grow else self._recheck * 20
            due = time.monotonic() - found.checked > patience and session not in self._coming
            if due:
                found.checked = time.monotonic()
        if due:
            self._work(session)
        return found

    def _work(self, session: Session) -> _Work:
        with self._lock:
            work = self._coming.get(session)
            if work is None:
                work = self._coming[session] = _Work(Future(), Stop())
                self._openers.submit(self._open_now, session, work)
            return work

    def _open_now(self, session: Session, work: _Work) -> None:
        def report(progress: Progress) -> None:
            work.progress = progress

        doubted = self._doubted(session)
        try:
            if doubted is not None or not self._is_unchanged(session, report, work.stop):
                self._put(self._made(session, report, work.stop, doubted))
        except BaseException as error:  # noqa: BLE001  # whatever it is, those who wait are told
            self._done(session)
            work.future.set_exception(error)
        else:
            self._done(session)
            work.future.set_result(None)
            self.indexer.share_now(session)  # nobody waits for that, nor for a summary
            self.indexer.summarize(session)
            if work.progress.stage == "listing":  # it stood in the cache: nobody has read it yet
                self._look_through(session)

    def _doubted(self, session: Session) -> OpenSession | None:
        with self._lock:
            standing = self._open.get(session)
        return standing if standing is not None and standing.is_doubtful else None

    def _look_through(self, session: Session) -> None:
        """Doubt a session whose files are damaged before somebody is told what they say."""
        with self._lock:
            opened = self._open.get(session)
            if opened is None or opened.trusted_until:
                return
            opened.users += 1
        try:
            if opened.opened.is_sound():
                opened.trusted_until = time.monotonic()
            else:
                opened.tables.is_doubtful = True
        finally:
            self.release(opened)

    def _is_unchanged(self, session: Session, report: Callable[[Progress], None], stop: Stop) -> bool:
        """Whether the session is open and the archive holds nothing newer; then only its end may have come."""
        with self._lock:
            standing = self._open.get(session)
        if standing is None:
            return False
        with self.indexer.open(session, report, stop, share_later=True) as newest:
            if newest.manifest != standing.opened.manifest:
                return False
        files = list_session(self.indexer.store, session)
        if (files.whole_logs, files.tail_bundles) != (standing.files.whole_logs, standing.files.tail_bundles):
            standing.logs = standing.logs.renewed(files.whole_logs, files.tail_bundles)
            standing.logs_digest = _logs_digest(files)
        standing.files = files
        standing.update_state(time.time(), is_running=self._is_running(session))
        return True

    def _is_running(self, session: Session) -> bool:
        return (session.cluster.namespace, session.cluster.name, session.name) in self.running()

    def _done(self, session: Session) -> None:
        with self._lock:
            self._coming.pop(session, None)

    def _made(
        self, session: Session, report: Callable[[Progress], None], stop: Stop, doubted: OpenSession | None
    ) -> OpenSession:
        opened, tables, ledgers = self._tables(session, report, stop, thoroughly=doubted is not None)
        try:
            files = list_session(self.indexer.store, session)
        except BaseException:
            tables.close()
            opened.close()
            raise
        logs = files.logs(self.indexer.store)
        room, digest = Room(self._query_memory), _logs_digest(files)
        made = OpenSession(session, opened, files, tables, logs, digest, ledgers, time.monotonic(), room)
        made.update_state(time.time(), is_running=self._is_running(session))
        if doubted is not None:
            made.doubts, made.trusted_until = doubted.doubts + 1, time.monotonic() + TRUSTED_FOR
        return made

    def _tables(
        self, session: Session, report: Callable[[Progress], None], stop: Stop, *, thoroughly: bool
    ) -> tuple[Opened, Tables, dict[str, Ledger]]:
        opened = self.indexer.open(session, report, stop, share_later=True, thoroughly=thoroughly)
        try:
            tables = Tables(opened.directory, heavy=self.heavy, database=self._databases.take())
            try:
                return opened, tables, _ledgers(tables) if opened.manifest.facts.get("collectors") else {}
            except BaseException:
                tables.close()
                raise
        except READING_FAILED:
            opened.close()
            if thoroughly:
                raise
        except BaseException:
            opened.close()
            raise
        return self._tables(session, report, stop, thoroughly=True)

    def _put(self, fresh: OpenSession) -> None:
        with self._lock:
            gone = [self._open.pop(fresh.session)] if fresh.session in self._open else []
            self._open[fresh.session] = fresh
            self.opened_total += 1
            for session, opened in list(self._open.items()):
                if len(self._open) <= self._most_open:
                    break
                if not opened.users and opened is not fresh:
                    gone.append(self._open.pop(session))
            for opened in gone:
                opened.retired = True
            unused = [opened for opened in gone if not opened.users]
        for opened in unused:
            opened.close()


def _ledgers(tables: Tables) -> dict[str, Ledger]:
    """The ledgers that went into the index, by node."""
    rows = tables.rows("select node_id, body::varchar from document where source = 'ledger' order by node_id")
    return {node: ledger for node, body in rows if (ledger := decode_ledger(body)) is not None}


def _logs_digest(files: SessionFiles) -> str:
    told = sorted(f"{info.key}\0{info.size}\0{info.etag}\n" for _, _, info in files.whole_logs)
    return hashlib.blake2b("".join(told).encode(), digest_size=16).hexdigest()


def _taken_note_of(opening: asyncio.Future[None]) -> None:
    """Nobody may be left to hear why it failed; asyncio would complain of that."""
    if not opening.cancelled():
        opening.exception()
