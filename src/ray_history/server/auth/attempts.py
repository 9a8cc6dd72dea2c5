"""Failed sign-in attempts by peer, to limit the guessing of tokens."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

from ray_history.server.http.connections import network_of

_PEERS = 10_000


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
