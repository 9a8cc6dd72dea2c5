"""What the answer to one request may cost: rows, bytes, and seconds of queries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace

import duckdb
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_history.history.read.steps import SURROUND

logger = logging.getLogger(__name__)

_STEP = 0.2
"""Seconds between two looks at the running queries."""


class OverBudget(Exception):
    """The message says which limit a request met."""


@dataclass
class Budget:
    """The limits of an answer, and the time that its queries took so far."""

    rows: int = 10_000_000
    size: int = 8 << 30
    seconds: float = 300.0
    used: float = 0.0

    def renewed(self) -> Budget:
        return replace(self, used=0.0)

    @property
    def rows_message(self) -> str:
        return f"Only the first {self.rows} rows are in this answer (--answer-rows); the others follow with cursor=."

    @property
    def size_message(self) -> str:
        return f"This answer ends after {self.size >> 20} MiB (--answer-size); the other rows follow with cursor=."

    @property
    def seconds_message(self) -> str:
        return (
            f"the queries of this request take more than {self.seconds:g} s (--query-timeout): request less, for "
            "example with filters, with limit= and cursor=, or without sort="
        )

    @contextmanager
    def timed(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Count the time of a step of a query, and end it when the request has no time left."""
        begin = time.monotonic()
        deadline = begin + self.seconds - self.used
        _watch.add(cursor, deadline)
        try:
            yield
        except duckdb.InterruptException:
            if time.monotonic() < deadline:
                raise
            raise OverBudget(self.seconds_message) from None
        finally:
            _watch.remove(cursor)
            self.used += time.monotonic() - begin


CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)
"""The budget of the current request."""


def budget() -> Budget:
    """The budget of the current request, or the default one."""
    return CURRENT.get() or Budget()


class _Watch:
    """A thread that interrupts queries at their deadline. It exists while queries run."""

    def __init__(self) -> None:
        self._lock, self._is_awake = threading.Lock(), False
        self._deadlines: dict[duckdb.DuckDBPyConnection, float] = {}

    def add(self, cursor: duckdb.DuckDBPyConnection, deadline: float) -> None:
        with self._lock:
            self._deadlines[cursor] = deadline
            if not self._is_awake:
                self._is_awake = True
                threading.Thread(target=self._run, name="query-timeout", daemon=True).start()

    def remove(self, cursor: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            self._deadlines.pop(cursor, None)

    def _run(self) -> None:
        while True:
            time.sleep(_STEP)
            now = time.monotonic()
            with self._lock:  # a cursor is not closed before it is removed
                for cursor, deadline in self._deadlines.items():
                    if deadline <= now:
                        with suppress(duckdb.Error):
                            cursor.interrupt()
                if not self._deadlines:
                    self._is_awake = False
                    return


_watch = _Watch()


class Budgets:
    """Begins each request with a new budget. An answer that has begun and goes beyond it is cut off, so that the client
    sees that it is not whole."""

    def __init__(self, app: ASGIApp, budget: Budget) -> None:
        self._app, self._budget = app, budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = 0

        async def out(message: Message) -> None:
            nonlocal sent
            sent += len(message.get("body", b""))
            if sent > self._budget.size:
                raise OverBudget(self._budget.size_message)
            await send(message)

        current = self._budget.renewed()
        CURRENT.set(current)
        SURROUND.set(current.timed)
        try:
            await self._app(scope, receive, out)
        except OverBudget as error:
            logger.warning("%s is cut off: %s", scope["path"][:300], error)
