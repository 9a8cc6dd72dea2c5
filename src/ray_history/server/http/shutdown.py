"""The server's end: answers that go on as long as somebody listens are ended first, so that nothing waits for them.

They end as if they were complete. A browser then asks again by itself, and gets the next server.
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

KEY = "ending"
"""Under which name a request finds the event in its server's state."""


@contextmanager
def shutdown_event() -> Iterator[asyncio.Event]:
    """An event that is set when the process is told to end, which the web server hears too and finishes what runs."""
    ending, loop = asyncio.Event(), asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield ending
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def told(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(ending.set)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in before:
        signal.signal(number, told)
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def until_ending(scope: Scope, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of an answer, until there are no more or the server is told to end."""
    ending: asyncio.Event = scope["state"][KEY]
    told = asyncio.ensure_future(ending.wait())
    coming = asyncio.ensure_future(_next(pieces))
    try:
        while True:
            await asyncio.wait({coming, told}, return_when=asyncio.FIRST_COMPLETED)
            piece = coming.result() if coming.done() else None
            if piece is None:
                return
            yield piece
            coming = asyncio.ensure_future(_next(pieces))
    finally:
        told.cancel()
        coming.cancel()
        await asyncio.gather(told, coming, return_exceptions=True)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """What SIGTERM does outside the web server, which repeats the signal when all is done: it is no failure."""
    del number, frame
    sys.exit(0)
