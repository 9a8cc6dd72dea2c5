"""Listings put together: whatever their size, the same text, and its length told beforehand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ray_history.server.answers import LARGE, listed_json

HEAD, TAIL = b'{"result": [', b"]}"


def sent(texts: list[bytes]) -> tuple[int, list[bytes]]:
    """The length that the answer tells, and its pieces."""
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read from the client")

    asyncio.run(listed_json(HEAD, texts, TAIL)({"type": "http"}, receive, send))
    start, *bodies = messages
    assert [body.get("more_body", False) for body in bodies] == [*[True] * (len(bodies) - 1), False]
    return int(dict(start["headers"])[b"content-length"]), [body["body"] for body in bodies]


@pytest.mark.parametrize("number", [0, 1, 3, 20_000])
@pytest.mark.parametrize("size", [2, 1000, LARGE + 1])
def test_a_listing_is_its_rows_with_commas_between(number: int, size: int) -> None:
    texts = [b'"' + b"x" * (size - 2) + b'"'] * min(number, 64 * LARGE // size)
    length, pieces = sent(texts)
    assert b"".join(pieces) == HEAD + b", ".join(texts) + TAIL
    assert length == sum(map(len, pieces))


def test_a_large_one_is_never_whole_in_memory() -> None:
    _, pieces = sent([b"1" * 1000] * 50_000)
    assert max(map(len, pieces)) < LARGE
