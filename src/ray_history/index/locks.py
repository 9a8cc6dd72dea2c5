"""Locks and cancellation for threads that build indexes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    """A lock that threads get in the order in which they asked for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self, cancel: CancelToken) -> Iterator[None]:
        """Hold the lock inside the block. Raises `Cancelled` instead if the token is cancelled before."""
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            self._wake_first()
        try:
            with cancel.calling(mine.set):
                mine.wait()
            cancel.check()
            yield
        finally:
            with self._lock:
                self._waiting.remove(mine)
                self._wake_first()

    @property
    def is_contended(self) -> bool:
        """Whether threads wait for it."""
        return len(self._waiting) > 1

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].set()
