"""Something that is made ahead: who asks for it seldom waits, and the next one is made meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

_Made = TypeVar("_Made")


class Standby(Generic[_Made]):
    """One of a kind, for many threads; what is left in the end is thrown away."""

    def __init__(self, make: Callable[[], _Made], throw_away: Callable[[_Made], None]) -> None:
        self._make, self._throw_away = make, throw_away
        self._maker, self._lock = ThreadPoolExecutor(1, "spare"), threading.Lock()
        self._next = self._maker.submit(make)

    def take(self) -> _Made:
        with self._lock:
            taken, self._next = self._next, self._maker.submit(self._make)
        return taken.result()

    def close(self) -> None:
        self._maker.shutdown()
        if not self._next.exception():
            self._throw_away(self._next.result())
