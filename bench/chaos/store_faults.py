"""Chooses a fault for each request to the store."""

from __future__ import annotations

import random
from collections import Counter

from tests.support.fault_proxy import AnswerError, CutUpload, Fault, Late, LoseAnswer, Refuse, Slow, Truncate
from tests.support.http_connection import Head

STATUSES = (403, 404, 429, 500, 503)


class StoreFaults:
    """A fault for a part of all requests; counts them by kind."""

    def __init__(self, seed: int, share: float, statuses: tuple[int, ...] = STATUSES) -> None:
        self._random = random.Random(seed)
        self._statuses = statuses
        self.share = share
        self.injected: Counter[str] = Counter()

    def __call__(self, request: Head) -> Fault | None:
        if self._random.random() >= self.share:
            return None
        name, fault = self._fault(request)
        self.injected[name] += 1
        return fault

    def _fault(self, request: Head) -> tuple[str, Fault]:
        chance = self._random
        choices: list[tuple[str, Fault]] = [
            ("store: connection reset", Refuse()),
            ("store: late answer", Late(seconds=chance.uniform(0.1, 1.5))),
            ("store: lost answer", LoseAnswer()),
        ]
        status = chance.choice(self._statuses)
        choices.append((f"store: {status}", AnswerError(status=status)))
        size = int(request.headers.get("content-length", 0))
        if size:
            choices.append(("store: truncated upload", CutUpload(body_bytes=chance.randrange(size))))
        if request.method == "GET":
            choices.append(("store: cut-off answer", Truncate(body_bytes=chance.randrange(2000))))
        if request.method in ("GET", "PUT"):
            choices.append(("store: slow", Slow(bytes_per_second=chance.choice([20_000, 200_000]))))
        return chance.choice(choices)
