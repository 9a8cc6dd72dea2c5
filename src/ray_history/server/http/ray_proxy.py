"""Requests that a Ray forwards: `ray start --head --proxy-server-url` shows a session in its own dashboard.

Ray forwards every answer but two. In place of a 404, and of an answer that it cannot read or that takes longer than
30 s, it answers for its own cluster, without a notice.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATIENCE = 20.0
"""Seconds to wait for a session to open, so that Ray's limit of 30 s leaves time for the answer itself."""
GONE = 410
"""The status that a forwarded request gets instead of 404; the body is the same."""


def is_through_ray(scope: Scope) -> bool:
    """Whether a Ray forwarded the request.

    Ray calls the content of every request JSON; browsers and Ray's own clients send no content type without a body.
    """
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return scope["method"] in ("GET", "HEAD") and any(value.startswith(b"application/json") for value in types)


class RayProxy:
    """Replaces the status 404 in answers to a Ray that forwards requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def out(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 404:
                message["status"] = GONE
            await send(message)

        is_forwarded = scope["type"] == "http" and is_through_ray(scope)
        await self._app(scope, receive, out if is_forwarded else send)
