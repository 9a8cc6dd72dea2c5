"""Locks and cancellation for threads that build indexes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from ray_history.history.engine import Cancelled


class CancelToken:
    """Cancels an operation from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def check(self) -> None:
        """Raise `Cancelled` after `cancel`."""
        if self._is_cancelled:
            raise Cancelled

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` if the token is cancelled inside the block."""
        with self._lock:
            self._callbacks.append(callback)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


class FairLock:
    """A lock for threads of several parties: the next one to get it is of the party that had it the longest ago, and
    among those of a party the first that asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, threading.Event]] = []
        self._holder: threading.Event | None = None
        self._turns, self._last_turns = count(1), dict[str, int]()

    @contextmanager
    def turn(self, cancel: CancelToken, party: str = "") -> Iterator[None]:
        """Hold the lock inside the block. Raises `Cancelled` instead if the token is cancelled before."""
        mine = threading.Event()
        with self._lock:
            self._waiting.append((party, mine))
            self._pass_on()
        try:
            with cancel.calling(mine.set):
                mine.wait()
            cancel.check()
            yield
        finally:
            with self._lock:
                if self._holder is mine:
                    self._holder = None
                else:
                    self._waiting.remove((party, mine))
                self._pass_on()

    @property
    def is_contended(self) -> bool:
        """Whether threads wait for it."""
        return bool(self._waiting)

    def _pass_on(self) -> None:
        if self._holder is None and self._waiting:
            first = min(self._waiting, key=lambda waiting: self._last_turns.get(waiting[0], 0))
            self._waiting.remove(first)
            party, self._holder = first
            self._last_turns[party] = next(self._turns)
            self._holder.set()
