"""The outer layers of the application; `app.py` lists them in their order."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prometheus_client import Histogram
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_history.server.http.budget import OverBudget
from ray_history.server.http.responses import ApiError, error_response

logger = logging.getLogger("ray_history.access")

LONGEST_QUERY = 16 * 1024
_METHODS = frozenset({"GET", "HEAD"})
_SIGN_IN = re.compile(r"/(login|logout|api/authenticate)\Z")
_SIGN_IN_METHODS = {"login": b"GET, HEAD, POST", "logout": b"POST", "api/authenticate": b"POST"}

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy of everything but the dashboard's frontend, which has its own."""
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
)


_DURATIONS = ("ray_history_request_duration_seconds", "Duration of requests.")


@dataclass(slots=True)
class RequestStatistics:
    """Counters over all requests of this process."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By method and status."""
    seconds: float = 0.0
    durations: Histogram = field(default_factory=lambda: Histogram(*_DURATIONS, registry=None))
    running: int = 0


class RequestLog:
    """Gives each request an id, counts it, and writes one line about it to the access log."""

    def __init__(
        self, app: ASGIApp, statistics: RequestStatistics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._statistics, self._clock = app, statistics, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = _header(scope, b"x-request-id")[:64] or secrets.token_hex(8) if "headers" in scope else ""
        scope["ray_history.request_id"] = identity
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        statistics, begin, status, sent = self._statistics, self._clock(), 500, 0

        async def out(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", identity.encode("latin-1", "replace"))]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        statistics.running += 1
        try:
            await self._app(scope, receive, out)
        finally:
            seconds = self._clock() - begin
            statistics.running -= 1
            statistics.seconds += seconds
            statistics.durations.observe(seconds)
            statistics.requests[scope["method"], status] += 1
            logger.info("%s %s %s %d %d %.3f", identity, scope["method"], _path(scope), status, sent, seconds)


class SecurityHeaders:
    """Adds headers that restrict what browsers do with an answer, unless the answer has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def out(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                added = [pair for pair in _SECURITY_HEADERS if pair[0] not in names]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, out)


class Limits:
    """Refuses other methods than GET and HEAD, but for signing in, and long queries."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def out(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 405:
                headers = message["headers"]
                if all(name.lower() != b"allow" for name, _ in headers):
                    message["headers"] = [*headers, (b"allow", _allowed_methods(scope))]
            await send(message)

        refused = _refusal(scope)
        app = self._app if refused is None else error_response(refused)
        await app(scope, receive, out)


class UnhandledErrors:
    """Answers 500 when the application fails.

    Starlette has a handler for that, but it runs outside of all other middleware: its answer would have neither a
    request id nor security headers.
    """

    def __init__(self, app: ASGIApp, respond: Callable[[Request, Exception], Awaitable[Response]]) -> None:
        self._app, self._respond = app, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def out(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, out)
        except Exception as error:
            if has_started or isinstance(error, OverBudget):
                raise  # the server then cuts the connection, so that the client sees that the answer is not whole
            response = await self._respond(Request(scope), error)
            await response(scope, receive, send)


def _refusal(scope: Scope) -> ApiError | None:
    if scope["method"] not in _METHODS and not (scope["method"] == "POST" and _SIGN_IN.search(scope["path"])):
        return ApiError(405, f"{scope['method'][:20]} is not allowed: history cannot be changed")
    if len(scope["query_string"]) > LONGEST_QUERY:
        return ApiError(414, f"the query is too long: {len(scope['query_string'])} of at most {LONGEST_QUERY} bytes")
    return None


def _allowed_methods(scope: Scope) -> bytes:
    found = _SIGN_IN.search(scope["path"])
    return _SIGN_IN_METHODS[found[1]] if found and scope["method"] != "POST" else b"GET, HEAD"


def _path(scope: Scope) -> str:
    return str(scope["path"])[:300].encode("unicode_escape").decode()


def _header(scope: Scope, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""
