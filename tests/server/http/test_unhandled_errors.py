"""Failures of the application: an answer with all headers, or a connection that is cut if the answer has begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ray_history.server.http.middleware import Limits, RequestLog, RequestStatistics, SecurityHeaders, UnhandledErrors


async def fail(_: Request) -> Response:
    raise ZeroDivisionError("at once")


async def fail_midway(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first piece"
        raise ZeroDivisionError("midway")

    return StreamingResponse(pieces())


async def respond(_: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 500)


def ask(statistics: RequestStatistics, method: str, path: str, query: bytes = b"") -> list[dict[str, Any]]:
    app = Starlette(
        routes=[Route("/at-once", fail), Route("/midway", fail_midway)],
        middleware=[
            Middleware(RequestLog, statistics),
            Middleware(SecurityHeaders),
            Middleware(Limits),
            Middleware(UnhandledErrors, respond),
        ],
    )
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()  # the client sends nothing more

    headers = [(b"x-request-id", b"number-7")]
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
    asyncio.run(app(scope, receive, send))
    return messages


def test_a_failure_is_answered_with_500_and_all_headers() -> None:
    statistics = RequestStatistics()
    start, body = ask(statistics, "GET", "/at-once")
    headers = dict(start["headers"])
    assert (start["status"], body["body"]) == (500, b"at once")
    assert headers[b"x-request-id"] == b"number-7"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert statistics.requests["GET", 500] == 1
    assert statistics.running == 0


def test_a_failure_midway_is_raised_so_that_the_server_cuts_the_connection() -> None:
    statistics = RequestStatistics()
    with pytest.raises(ZeroDivisionError, match="midway"):
        ask(statistics, "GET", "/midway")
    assert statistics.requests["GET", 200] == 1
    assert statistics.running == 0


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "allowed"),
    [
        ("DELETE", "/at-once", b"", 405, b"GET, HEAD"),
        ("POST", "/at-once", b"", 405, b"GET, HEAD"),
        ("PUT", "/login", b"", 405, b"GET, HEAD, POST"),
        ("PUT", "/logout", b"", 405, b"POST"),
        ("GET", "/at-once", b"x" * (16 * 1024 + 1), 414, None),
    ],
)
def test_limits_refuse_before_the_application(
    method: str, path: str, query: bytes, status: int, allowed: bytes | None
) -> None:
    start, _ = ask(RequestStatistics(), method, path, query)
    assert start["status"] == status
    assert dict(start["headers"]).get(b"allow") == allowed
