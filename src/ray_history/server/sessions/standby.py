"""An object that is created before it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

_Made = TypeVar("_Made")


class Standby(Generic[_Made]):
    """Holds one object. Taking it starts the creation of the next one. Thread-safe."""

    def __init__(self, make: Callable[[], _Made], discard: Callable[[_Made], None]) -> None:
        self._make, self._discard = make, discard
        self._maker, self._lock = ThreadPoolExecutor(1, "standby"), threading.Lock()
        self._next = self._maker.submit(make)

    def take(self) -> _Made:
        with self._lock:
            taken, self._next = self._next, self._maker.submit(self._make)
        return taken.result()

    def close(self) -> None:
        self._maker.shutdown()
        if not self._next.exception():
            self._discard(self._next.result())
