"""An aiohttp application in a thread of its own, for the stand-ins; stopping it leaves no thread and no socket."""

from __future__ import annotations

import asyncio
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from aiohttp import web


class AiohttpStandIn(ABC):
    """A stand-in with one port, which it keeps across restarts, and an event loop of its own."""

    port: int = 0
    tls: ssl.SSLContext | None = None

    @abstractmethod
    def application(self) -> web.Application:
        """Create the application; called in the event loop."""

    @contextmanager
    def running(self) -> Iterator[Self]:
        self._loop, started = asyncio.new_event_loop(), threading.Event()
        thread = threading.Thread(target=self._run, args=(started,))
        thread.start()
        started.wait(20)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # cancels the requests that still run
            runner.run(self._serve(started))

    async def _serve(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        application = self.application()
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await self._listen()
        started.set()
        await self._stop.wait()
        await self._runner.cleanup()

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls)
        await self._site.start()
        self.port = self.port or self._runner.addresses[0][1]
