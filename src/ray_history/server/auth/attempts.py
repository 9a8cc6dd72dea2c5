"""Failed attempts by peer, to limit the guessing of tokens.

Behind an ingress all clients may be one peer. So wrong tokens never keep right ones out: a peer with many failures has
to take turns, and its wrong tokens get another answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ray_history.connections import network_of

_PEERS = 10_000
_PATIENCE = 10.0


class Attempts:
    """At most `most` failures within `seconds` for each peer. A /64 network of IPv6 counts as one peer."""

    def __init__(self, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, peer: str) -> float:
        """Seconds until the peer may try again; 0 if it may now."""
        failures = self._failures.get(network_of(peer))
        if failures is None or len(failures) < self._most:
            return 0.0
        return max(0.0, failures[0] + self._seconds - self._clock())

    def failed(self, peer: str) -> None:
        source = network_of(peer)
        self._failures.setdefault(source, deque(maxlen=self._most)).append(self._clock())
        self._failures.move_to_end(source)
        while len(self._failures) > _PEERS:
            self._failures.popitem(last=False)


class TooManyWaiting(Exception):
    """There is no turn within a reasonable time."""


@dataclass
class _Lane:
    turns: asyncio.Semaphore
    users: int = 0
    """Those that have a turn or wait for one."""


class Turns:
    """Each peer has `most` turns at a time, and at most `waiting` requests that wait for one."""

    def __init__(self, most: int = 4, waiting: int = 128) -> None:
        self._most, self._waiting = most, waiting
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def take(self, peer: str) -> AsyncIterator[None]:
        source = network_of(peer)
        lane = self._lanes.setdefault(source, _Lane(asyncio.Semaphore(self._most)))
        if lane.users >= self._most + self._waiting:
            raise TooManyWaiting
        lane.users += 1
        try:
            try:
                await asyncio.wait_for(lane.turns.acquire(), _PATIENCE)
            except TimeoutError:
                raise TooManyWaiting from None
            try:
                yield
            finally:
                lane.turns.release()
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[source]
