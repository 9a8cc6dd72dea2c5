"""One open session: its tables and logs, its state, and the memory for its large answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ray_history.archive.catalog import Session
from ray_history.archive.ledger import Ledger
from ray_history.archive.log_files import LogFiles
from ray_history.archive.session_files import SessionFiles
from ray_history.history.facts import Facts
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import View
from ray_history.index.cache import Opened
from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.liveness import OVERDUE_AFTER, LifeSigns, State, start_ns

Row: TypeAlias = tuple[Any, ...]

# Measured: 50 MiB for tasks with detail, 60 for spans, 11 for tasks without detail.
DETAIL_STREAM_BYTES = 96 << 20
"""Memory reserved for a streamed answer with details."""
STREAM_BYTES = 24 << 20
"""Memory reserved for a streamed answer without details."""


class MemoryBudget:
    """Memory that is reserved in parts."""

    def __init__(self, size: int) -> None:
        self._size, self._reserved, self._lock = size, 0, threading.Lock()

    def reserve(self, part: int) -> bool:
        """False if too little is left. A part of any size fits while nothing else is reserved."""
        with self._lock:
            fits = not self._reserved or self._reserved + part <= self._size
            self._reserved += part if fits else 0
            return fits

    def release(self, part: int) -> None:
        with self._lock:
            self._reserved -= part


@dataclass(eq=False)
class OpenSession:
    """One open session."""

    session: Session
    opened: Opened
    files: SessionFiles
    tables: Tables
    logs: LogFiles
    logs_digest: str
    """Digest over the listing of its whole log files, which may arrive after all events."""
    ledgers: dict[str, Ledger]
    """By node, as they went into the index."""
    checked: float
    """When the last comparison with the archive was started, successful or not."""
    compared: float
    """When the last successful comparison with the archive was started."""
    budget: MemoryBudget
    """Memory for streamed answers."""
    users: int = 0
    retired: bool = False
    doubts: int = 0
    """How often it was reopened because it was doubtful: answers from before may be wrong."""
    trusted_until: float = 0.0
    """Verified a moment ago: a failure now has another cause than damaged files."""
    signs: LifeSigns = field(default_factory=LifeSigns)
    state: State = "unknown"
    ended_ns: int | None = None
    """The end in nanoseconds; None while it is live."""
    may_grow: bool = True
    """Whether uploads could continue at the last comparison. Collectors of workers may upload after the head ended."""
    counts: dict[object, tuple[int, int]] = field(default_factory=dict)
    """Row counts by query: in a large session counting costs as much as reading the rows."""
    metrics: object = None
    """The reader of recorded metrics, once it was needed."""

    @property
    def facts(self) -> Facts:
        return self.opened.manifest.facts

    @property
    def started_ns(self) -> int:
        return start_ns(self.session.started, self.facts.start_ns)

    @property
    def is_doubtful(self) -> bool:
        return self.tables.is_doubtful and time.monotonic() > self.trusted_until

    def update_state(self, now: float, *, is_running: bool) -> None:
        """Derive the state and the end from ledgers and files."""
        self.signs = LifeSigns.from_archive(self.ledgers.values(), self.files, is_running=is_running)
        self.state = self.signs.state(now)
        self.ended_ns = self.signs.end_ns(now, started=self.session.started, last_event_ns=self.facts.last_ns)
        self.may_grow = self.state == "live" or now <= self.signs.alive_until + OVERDUE_AFTER

    def view(self, at: int | None = None, *, raw: bool = False) -> View:
        return View(at, None if raw else self.ended_ns)

    def stream(
        self, sql: str, parameters: Sequence[Any] = (), memory: int = DETAIL_STREAM_BYTES
    ) -> Generator[list[tuple[Any, ...]]]:
        """The rows of an answer of any size, computed as fast as they are read, until the generator is closed.

        The first rows are read before this returns, so that an error becomes the status of the answer.
        """
        pages = self._stream(sql, parameters, memory)
        next(pages)
        return pages

    def _stream(self, sql: str, parameters: Sequence[Any], memory: int) -> Generator[list[Row]]:
        if not self.budget.reserve(memory):
            raise ApiError(
                503,
                "too many large answers of this session are being sent; try again later, or request less: "
                "pages of a listing with limit= and cursor=, the timeline of one job",
            )
        try:
            pages = self.tables.stream(sql, parameters)
            first = next(pages, [])
            yield []
            yield first
            yield from pages
        finally:
            self.budget.release(memory)

    def close(self) -> None:
        self.tables.close()
        self.opened.close()
