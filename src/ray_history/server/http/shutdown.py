"""Shutdown: open-ended answers, such as a followed log, are ended first, so that the shutdown does not wait for them.

They end as if they were complete. A browser then repeats the request, which the next server answers.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from starlette.types import Scope

SHUTDOWN = "shutdown"
"""The key of the event in the state of the application."""


@contextmanager
def shutdown_event() -> Iterator[asyncio.Event]:
    """An event that is set on SIGTERM and SIGINT. The web server handles them, too, and finishes running requests."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield event
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(event.set)
        handler = previous[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in previous:
        signal.signal(number, handle)
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


async def until_shutdown(scope: Scope, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of an answer, until there are no more or the server shuts down."""
    event: asyncio.Event = scope["state"][SHUTDOWN]
    shutdown = asyncio.ensure_future(event.wait())
    next_piece = asyncio.ensure_future(_next(pieces))
    try:
        while True:
            await asyncio.wait({next_piece, shutdown}, return_when=asyncio.FIRST_COMPLETED)
            piece = next_piece.result() if next_piece.done() else None
            if piece is None:
                return
            yield piece
            next_piece = asyncio.ensure_future(_next(pieces))
    finally:
        shutdown.cancel()
        next_piece.cancel()
        await asyncio.gather(shutdown, next_piece, return_exceptions=True)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit without failure on the SIGTERM that the web server repeats after its shutdown."""
    del number, frame
    sys.exit(0)
