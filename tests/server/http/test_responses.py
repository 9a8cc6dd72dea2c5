"""Listings that are sent while they are made, complete or cut off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from ray_history.server.http.budget import OverBudget
from ray_history.server.http.responses import Streamed, growing_json, listed_json
from tests.support.waiting import LIMIT

HEAD, TAIL = b'{"result": [', b"]}"


async def receive() -> Any:
    await asyncio.Event().wait()  # the client sends nothing more


def sent(response: Any) -> bytes:
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(response({"type": "http"}, receive, send))
    _, *bodies = messages
    assert [body.get("more_body", False) for body in bodies] == [*[True] * (len(bodies) - 1), False]
    return b"".join(body["body"] for body in bodies)


@pytest.mark.parametrize("sizes", [[0], [1], [3], [2, 1], [1000, 1000, 7]])
def test_a_listing_is_its_rows_with_commas_between(sizes: list[int]) -> None:
    texts = [[b'{"number": %d}' % number for number in range(size)] for size in sizes]
    whole = sent(listed_json(HEAD, chain.from_iterable(texts), TAIL))
    assert whole == HEAD + b", ".join(chain.from_iterable(texts)) + TAIL
    assert sent(growing_json(HEAD, (batch for batch in texts), TAIL)) == whole


def test_a_slow_reader_does_not_hold_up_the_producer() -> None:
    made = threading.Event()

    def texts() -> Generator[Sequence[bytes]]:
        for number in range(100):
            yield [b"%d" % number]
        made.set()

    read: list[bytes] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.to_thread(made.wait, 60)  # reads the first piece only after the last was made
            assert made.is_set()
            read.append(message["body"])

    asyncio.run(growing_json(HEAD, texts(), TAIL)({"type": "http"}, receive, send))
    assert b"".join(read) == HEAD + b", ".join(b"%d" % number for number in range(100)) + TAIL


def test_an_answer_that_fails_midway_is_cut_off() -> None:
    def texts() -> Generator[Sequence[bytes]]:
        yield [b"1"]
        raise MemoryError("no room for the second")

    read: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        read.append(message)

    with pytest.raises(MemoryError, match="no room for the second"):
        asyncio.run(growing_json(HEAD, texts(), TAIL)({"type": "http"}, receive, send))
    assert all(message.get("more_body", True) for message in read), "it looks as if it were whole"


def test_production_stops_when_the_client_disconnects() -> None:
    going, made = threading.Event(), list[int]()

    def texts() -> Generator[Sequence[bytes]]:
        for number in range(1000):
            made.append(number)
            yield [b"x"]
            going.wait(60)

    async def hang_up() -> Any:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        await asyncio.sleep(0)

    async def read() -> None:
        await growing_json(HEAD, texts(), TAIL)({"type": "http", "asgi": {"spec_version": "2.0"}}, hang_up, send)
        going.set()

    asyncio.run(read())  # waits for running threads
    assert len(made) < 3


@pytest.mark.parametrize("read", [0, 1, 3, 100])
def test_a_streamed_answer_is_closed_when_the_client_disconnects(read: int) -> None:
    closed: list[bool] = []

    def parts() -> Generator[bytes]:
        try:
            for number in range(10):
                yield b"%d" % number
        finally:
            closed.append(True)

    made, left = parts(), read
    next(made)

    async def send(message: Any) -> None:
        nonlocal left
        if message["type"] == "http.response.body":
            left -= 1
        if left < 0:
            raise OSError("the client is gone")

    with suppress(OSError, ClientDisconnect):
        asyncio.run(Streamed(made)({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send))
    assert closed == [True]


@pytest.mark.parametrize("reads", [True, False])
def test_little_text_waits_for_a_client(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    """A client that reads gets everything; the answer to one that does not is given up."""
    monkeypatch.setattr("ray_history.server.http.responses._UNTAKEN_BYTES", 10_000)
    monkeypatch.setattr("ray_history.server.http.responses._SLOW_SECONDS", LIMIT if reads else 0.1)
    made, taken, most, is_given_up = 0, 0, 0, threading.Event()

    def texts() -> Generator[Sequence[bytes]]:
        nonlocal made, most
        try:
            for _ in range(200):
                made += 1000
                most = max(most, made - taken)
                yield [b"x" * 1000]
        finally:
            is_given_up.set()

    async def send(message: Any) -> None:
        nonlocal taken
        taken += len(message.get("body", b""))
        if not reads and message.get("body", HEAD) != HEAD:
            await asyncio.to_thread(is_given_up.wait, 60)

    whole = growing_json(HEAD, texts(), TAIL)({"type": "http"}, receive, send)
    if reads:
        asyncio.run(whole)
        assert taken > 200_000
    else:
        with pytest.raises(OverBudget, match="reads too slowly"):
            asyncio.run(whole)
    assert most < 13_000
