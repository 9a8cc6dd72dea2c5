"""Requests that a Ray forwards are recognized by their content type, and never answered with 404."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from ray_history.server.http.ray_proxy import RayProxy, is_through_ray

JSON = [(b"content-type", b"application/json")]


def scope(method: str = "GET", headers: list[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": "/", "headers": headers or []}


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", JSON, True),
        ("HEAD", JSON, True),
        ("GET", [(b"content-type", b"application/json; charset=utf-8")], True),
        ("GET", [(b"accept", b"*/*"), *JSON], True),
        ("GET", [], False),
        ("GET", [(b"accept", b"application/json")], False),
        ("GET", [(b"content-type", b"text/plain")], False),
        ("POST", JSON, False),
    ],
)
def test_ray_is_recognized(method: str, headers: list[tuple[bytes, bytes]], expected: bool) -> None:
    assert is_through_ray(scope(method, headers)) is expected


@pytest.mark.parametrize(
    ("headers", "status", "sent"), [(JSON, 404, 410), (JSON, 200, 200), (JSON, 503, 503), ([], 404, 404)]
)
def test_only_a_404_to_a_ray_gets_another_status(headers: list[tuple[bytes, bytes]], status: int, sent: int) -> None:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("the request has no body")

    app = RayProxy(PlainTextResponse("body", status))
    asyncio.run(app(scope(headers=headers), receive, send))
    assert messages[0]["status"] == sent
    assert messages[1]["body"] == b"body"
