"""Compression of answers, message by message, without a server."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ray_history.server.http.compression import Compression, coding
from ray_history.zstandard import zstd

BROWSER = "gzip, deflate, br, zstd"
LONG = b'{"a": 1}' * 1000
Headers = dict[str, str]


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", ""),
        ("identity", ""),
        ("br", ""),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        (BROWSER, "gzip"),
        ("zstd, gzip", "gzip"),
        ("GZIP;Q=0.5", "gzip"),
        ("gzip;q=0.5, zstd;q=0.8", "zstd"),
        ("gzip;q=0.8, zstd;q=0.5", "gzip"),
        ("gzip;q=0", ""),
        ("gzip;q=0.000, zstd", "zstd"),
        ("gzip;q=0, *", "zstd"),
        ("*", "gzip"),
        ("*;q=0", ""),
        ("identity, gzip;q=0.5", ""),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("gzip;q=often, zstd", "zstd"),
        (", ;, gzip ; q=1 ,", "gzip"),
    ],
)
def test_the_preferred_coding_is_chosen_and_gzip_before_zstd(accepted: str, chosen: str) -> None:
    assert coding(accepted) == chosen


def compressed(
    bodies: Sequence[bytes],
    headers: Headers | None = None,
    *,
    accepted: str = "gzip",
    method: str = "GET",
    status: int = 200,
) -> tuple[Headers, list[dict[str, Any]]]:
    """The headers and the body messages that leave for the client."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        given = {"content-type": "application/json", **(headers or {})}
        pairs = [(name.encode(), value.encode()) for name, value in given.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        for body in bodies[:-1]:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": bodies[-1]})

    start, *sent = run(app, accepted, method)
    return {name.decode(): value.decode() for name, value in start["headers"]}, sent


def run(app: Any, accepted: str, method: str = "GET") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("the request has no body")

    scope = {"type": "http", "method": method, "headers": [(b"accept-encoding", accepted.encode())]}
    asyncio.run(Compression(app)(scope, receive, send))
    return messages


def whole(sent: list[dict[str, Any]]) -> bytes:
    assert [message["more_body"] for message in sent] == [*[True] * (len(sent) - 1), False]
    return b"".join(message["body"] for message in sent)


@pytest.mark.parametrize(("accepted", "unpack"), [("gzip", gzip.decompress), ("zstd", zstd.decompress)])
@pytest.mark.parametrize(
    "bodies", [[LONG], [LONG, LONG], [b"short", b""], [b"a", b"b", b""], [LONG * 20], [LONG * 20, LONG, LONG * 20]]
)
def test_a_compressed_body_unpacks_to_the_original(accepted: str, unpack: Any, bodies: list[bytes]) -> None:
    headers, sent = compressed(bodies, accepted=accepted)
    assert headers["content-encoding"] == accepted
    assert unpack(whole(sent)) == b"".join(bodies)


def test_a_long_body_does_not_hold_up_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    class SlowCompressor:
        """A stand-in that needs as long as another request."""

        def compress(self, _: bytes) -> bytes:
            return b"after" if answered.wait(10) else b"before"

        def flush(self) -> bytes:
            return b""

    monkeypatch.setattr("isal.isal_zlib.compressobj", lambda *_, **__: SlowCompressor())

    async def other_request() -> None:
        answered.set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        other = asyncio.create_task(other_request())
        await send({"type": "http.response.body", "body": LONG * 20})
        await other

    assert run(app, "gzip")[1]["body"] == b"after"


def test_the_length_goes_and_the_tag_becomes_weak() -> None:
    headers, _ = compressed([LONG], {"content-length": str(len(LONG)), "etag": '"x"'})
    assert headers == {
        "content-type": "application/json",
        "vary": "Accept-Encoding",
        "etag": 'W/"x"',
        "content-encoding": "gzip",
    }
    assert compressed([LONG], {"etag": 'W/"x"'})[0]["etag"] == 'W/"x"'


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({}, {"accepted": "br"}),
        ({}, {"method": "HEAD"}),
        ({}, {"bodies": [b"x" * 1023]}),
        ({}, {"status": 206}),
        ({"content-type": "image/png"}, {}),
        ({"content-type": "application/octet-stream"}, {}),
        ({"content-type": "text/event-stream"}, {}),
        ({"content-encoding": "br"}, {}),
        ({"cache-control": "no-cache, no-transform"}, {}),
    ],
)
def test_an_answer_passes_unchanged_if_it_does_not_suit(headers: Headers, options: dict[str, Any]) -> None:
    given = {"content-length": "7", "etag": '"x"', **headers}
    bodies = options.pop("bodies", [LONG])
    sent_headers, sent = compressed(bodies, given, **options)
    expected = {"content-type": "application/json", **given}
    assert {name: value for name, value in sent_headers.items() if name != "vary"} == expected
    assert whole([{"more_body": False, **message} for message in sent]) == b"".join(bodies)


def test_caches_learn_that_an_unchanged_answer_depends_on_the_coding() -> None:
    for options in ({"accepted": ""}, {"status": 304}, {"bodies": [b"short"]}):
        bodies = options.pop("bodies", [LONG])
        headers, _ = compressed(bodies, **options)  # type: ignore[arg-type]
        assert headers["vary"] == "Accept-Encoding"
    assert "vary" not in compressed([LONG], {"content-type": "image/png"})[0]
