"""Whether this server can open sessions, for `/readyz`."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ray_history.index.cache import Cache, CacheUnusable

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0


@dataclass
class Readiness:
    """Answers probes; the cache is checked every few seconds at most, since everybody may ask."""

    cache: Cache
    _problem: str = ""
    _checked: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, _: Request) -> Response:
        async with self._lock:
            if self._checked is None or time.monotonic() - self._checked > _CHECK_SECONDS:
                problem = await run_in_threadpool(self._check)
                if problem and problem != self._problem:
                    logger.error("not ready: %s", problem)
                self._problem, self._checked = problem, time.monotonic()
        return PlainTextResponse(self._problem or "ok", 503 if self._problem else 200)

    def _check(self) -> str:
        try:
            self.cache.check()
        except CacheUnusable as error:
            reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else ""
            return f"the local cache cannot be used: {reason or 'see the log'}"  # without its path: everybody may ask
        return ""
