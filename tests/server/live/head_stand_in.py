"""A stand-in for the dashboard of a running head that misbehaves on request and records its requests."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.aiohttp_stand_in import AiohttpStandIn


@dataclass
class HeadStandIn(AiohttpStandIn):
    """Sends prepared answers, and records requests."""

    session: str = "session_2026-11-16_08-00-00_000000_1"
    ray_version: str = "2.60.0"
    token: str | None = None
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    breaks: set[str] = field(default_factory=set)
    """Paths whose answers are cut off."""
    hangs: bool = False
    """Whether requests get no answer, until it is False again."""
    quiet: bool = False
    """Whether a followed log is empty: Ray does not begin an answer before the first line."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client that followed a log disconnects."""
    port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def more(self, line: str) -> None:
        """Send one more line to followers."""
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def application(self) -> web.Application:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        app = web.Application()
        app.router.add_get("/api/v0/logs/stream", self._follow)
        app.router.add_get("/api/jobs/{id}/logs/tail", self._tail)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _refused(self, request: web.Request) -> web.Response | None:
        self.requests.append((request.method, request.raw_path, dict(request.headers)))
        while self.hangs:  # noqa: ASYNC110  # tests change it in their thread
            await asyncio.sleep(0.02)
        if self.token is None or request.headers.get("x-ray-authorization") == f"Bearer {self.token}":
            return None
        return web.Response(status=403, text="Forbidden: Invalid authentication token")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (refused := await self._refused(request)) is not None:
            return refused
        if request.path == "/api/version":
            return web.json_response({"version": "4", "ray_version": self.ray_version, "session_name": self.session})
        status, headers, body = self.answers.get(request.path, (200, {"Content-Type": "application/json"}, b"{}"))
        if request.path in self.breaks:
            response = web.StreamResponse(status=status, headers=headers)
            await response.prepare(request)
            await response.write(body)
            assert request.transport is not None
            request.transport.abort()
            return response
        return web.Response(status=status, headers=headers, body=body)

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        if (refused := await self._refused(request)) is not None:
            return refused
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            first = await self._lines.get() if self.quiet else "first line\n"
            await response.prepare(request)
            await response.write(first.encode())
            while (line := await self._lines.get()) != "END":
                await response.write(line.encode())
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        if (refused := await self._refused(request)) is not None:
            return refused
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("first line\n")
        wait = asyncio.create_task(self._lines.get())
        closed = asyncio.create_task(socket.receive())
        try:
            done, _ = await asyncio.wait({wait, closed}, return_when=asyncio.FIRST_COMPLETED)
            if wait in done:
                await socket.send_str(wait.result())
                await socket.close()
        finally:
            if not wait.done():
                self.left.set()
            wait.cancel()
            closed.cancel()
        return socket
