"""The end of the server: streams end first, and the signal still reaches the web server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

import pytest

from ray_history.server.http.shutdown import SHUTDOWN, leave, shutdown_event, until_shutdown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_and_reaches_the_former_handler(number: signal.Signals) -> None:
    received: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        received.append(number)

    async def main() -> None:
        async with asyncio.timeout(60):
            with shutdown_event() as ending:
                assert not ending.is_set()
                os.kill(os.getpid(), number)
                await ending.wait()

    before = signal.signal(number, handler)
    try:
        asyncio.run(main())
        assert signal.getsignal(number) is handler, "the former handler is back"
    finally:
        signal.signal(number, before)
    assert received == [number]


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    async def main() -> Any:
        with shutdown_event():
            return signal.getsignal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)

    async def in_a_thread() -> Any:
        return await asyncio.to_thread(asyncio.run, main())

    assert asyncio.run(in_a_thread()) == before


class Source:
    """Pieces that come one by one when the test wants them."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed = False

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self.queue.get()) is not None:
                yield piece
        finally:
            self.closed = True


def test_a_stream_without_a_shutdown_is_complete() -> None:
    async def main() -> list[bytes]:
        source = Source()
        for piece in (b"one", b"two", None):
            source.queue.put_nowait(piece)
        scope = {"state": {SHUTDOWN: asyncio.Event()}}
        return [piece async for piece in until_shutdown(scope, source.pieces())]

    assert asyncio.run(main()) == [b"one", b"two"]


def test_a_stream_ends_when_the_server_does() -> None:
    async def main() -> tuple[list[bytes], bool]:
        source, ending = Source(), asyncio.Event()
        source.queue.put_nowait(b"one")
        found = []
        async with asyncio.timeout(60):
            async for piece in until_shutdown({"state": {SHUTDOWN: ending}}, source.pieces()):
                found.append(piece)
                ending.set()  # nothing more comes from the source
        return found, source.closed

    assert asyncio.run(main()) == ([b"one"], True)


def test_a_failing_stream_fails_visibly() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise OSError("the disk is gone")

    async def main() -> None:
        async for _ in until_shutdown({"state": {SHUTDOWN: asyncio.Event()}}, broken()):
            pass

    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(main())


def test_leaving_is_no_failure() -> None:
    with pytest.raises(SystemExit) as left:
        leave(signal.SIGTERM, None)
    assert left.value.code == 0
