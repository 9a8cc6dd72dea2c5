"""Turns of large answers: few are computed at once, and viewers take turns, however many requests each of them sends.

Large answers about all sessions share the processor and, for each session, one memory limit: more of them at once would
take longer, or fail. Small answers, such as that about one task, take no turn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import TypeAlias, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread

_Queue: TypeAlias = "OrderedDict[Hashable, deque[threading.Event]]"

_HANDLERS, _HANDLERS_OF_VIEWER = 160, 80
"""Threads of handlers. Most of them wait for a turn, which takes no memory to speak of."""

_Result = TypeVar("_Result")

VIEWER: ContextVar[tuple[Hashable, Hashable]] = ContextVar("viewer", default=(None, None))
"""The viewer of the current request, and its session."""


class Turns:
    """A context manager for many threads; `at_once` of them have a turn at the same time.

    The next turn goes to the viewer whose last one is the longest ago, and to their sessions in turn.
    """

    def __init__(self, at_once: int) -> None:
        self._free, self._lock = at_once, threading.Lock()
        self._waiting: OrderedDict[Hashable, _Queue] = OrderedDict()

    def __enter__(self) -> None:
        viewer, session = VIEWER.get()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = threading.Event()
            self._waiting.setdefault(viewer, OrderedDict()).setdefault(session, deque()).append(mine)
        mine.wait()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._take_next().set()
            else:
                self._free += 1

    def _take_next(self) -> threading.Event:
        viewer, sessions = self._waiting.popitem(last=False)
        session, queue = sessions.popitem(last=False)
        mine = queue.popleft()
        if queue:
            sessions[session] = queue
        if sessions:
            self._waiting[viewer] = sessions
        return mine


class HandlerThreads:
    """The threads of handlers, which pages and lists of sessions do not need. No viewer can take all of them."""

    def __init__(self) -> None:
        self._all = CapacityLimiter(_HANDLERS)
        self._by_viewer: WeakValueDictionary[Hashable, CapacityLimiter] = WeakValueDictionary()

    async def run(self, viewer: Hashable, session: Hashable, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, which runs in a thread. Its large queries take the turns of the viewer."""
        VIEWER.set((viewer, session))
        of_viewer = self._by_viewer.get(viewer)
        if of_viewer is None:
            of_viewer = self._by_viewer[viewer] = CapacityLimiter(_HANDLERS_OF_VIEWER)
        async with of_viewer:
            return await to_thread.run_sync(work, limiter=self._all)
