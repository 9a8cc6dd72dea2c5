"""The cache of answers: what it stores, evicts and returns."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

from starlette.responses import FileResponse, Response, StreamingResponse

from ray_history.server.http.response_cache import OVERHEAD, ResponseCache


def body_of(cache: ResponseCache, tag: str) -> bytes | None:
    found = cache.get(tag)
    return None if found is None else bytes(found.body)


def read(response: StreamingResponse, pieces: int | None = None) -> list[bytes]:
    """As many pieces as a client reads before it leaves; all by default."""

    async def collected() -> list[bytes]:
        found: list[bytes] = []
        iterator: AsyncIterator[bytes] = response.body_iterator  # type: ignore[assignment]
        async for piece in iterator:
            found.append(piece)
            if len(found) == pieces:
                break
        return found

    return asyncio.run(collected())


def streamed(*pieces: bytes) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return StreamingResponse(parts(), media_type="application/json", headers={"ETag": '"x"'})


def test_an_answer_comes_back_with_its_headers() -> None:
    cache = ResponseCache(100 + OVERHEAD)
    given = Response(b"body", media_type="application/json", headers={"ETag": '"x"'})
    cache.store("tag", given)
    found = cache.get("tag")
    assert found is not None
    assert (found.body, found.raw_headers) == (b"body", given.raw_headers)
    assert cache.get("other") is None


def test_a_returned_answer_can_be_changed_without_harm() -> None:
    cache = ResponseCache(100 + OVERHEAD)
    cache.store("tag", Response(b"body"))
    first = cache.get("tag")
    assert first is not None
    first.headers["Set-Cookie"] = "mine=1"
    second = cache.get("tag")
    assert second is not None
    assert "set-cookie" not in second.headers


def test_the_least_recently_used_answer_is_evicted() -> None:
    cache = ResponseCache(10 + 2 * OVERHEAD)
    cache.store("a", Response(b"aaaa"))
    cache.store("b", Response(b"bbbb"))
    cache.get("a")
    cache.store("c", Response(b"cccc"))
    assert [body_of(cache, tag) for tag in "abc"] == [b"aaaa", None, b"cccc"]
    assert cache.bytes == 8 + 2 * OVERHEAD


def test_the_same_answer_is_counted_once() -> None:
    cache = ResponseCache(10 + OVERHEAD)
    for _ in range(3):
        cache.store("a", Response(b"aaaa"))
    assert cache.bytes == 4 + OVERHEAD


def test_small_answers_take_no_more_memory_than_the_limit() -> None:
    headers = {
        "ETag": 'W/"0123456789abcdef01234567"',
        "Cache-Control": "private, max-age=60",
        "Vary": "Accept-Encoding",
    }
    tracemalloc.start()
    try:
        cache = ResponseCache(1 << 20)
        for number in range(2_000):
            cache.store(f"tag {number}", Response(b"{}", media_type="application/json", headers=headers))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.get("tag 1999") is not None
    assert held < 1 << 20


def test_an_answer_over_the_limit_is_not_cached() -> None:
    cache = ResponseCache(100 + OVERHEAD, largest=3)
    cache.store("plain", Response(b"aaaa"))
    long = streamed(b"aa", b"aa")
    cache.store("streamed", long)
    assert read(long) == [b"aa", b"aa"]
    assert (body_of(cache, "plain"), body_of(cache, "streamed"), cache.bytes) == (None, None, 0)


def test_a_stream_is_cached_once_it_was_sent_whole() -> None:
    cache = ResponseCache(100 + OVERHEAD)
    response = streamed(b"one ", b"two")
    cache.store("tag", response)
    assert cache.get("tag") is None
    assert read(response) == [b"one ", b"two"]
    found = cache.get("tag")
    assert found is not None
    assert (found.body, found.headers["content-length"], found.headers["etag"]) == (b"one two", "7", '"x"')


def test_a_stream_that_the_client_left_is_not_cached() -> None:
    cache = ResponseCache(100 + OVERHEAD)
    response = streamed(b"one ", b"two")
    cache.store("tag", response)
    assert read(response, pieces=1) == [b"one "]
    assert cache.get("tag") is None


def test_files_are_not_cached() -> None:
    cache = ResponseCache(1 << 20)
    cache.store("tag", FileResponse(__file__))
    assert cache.get("tag") is None
