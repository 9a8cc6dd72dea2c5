"""What every request passes through: limits, headers, compression, counting, one line in the log."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_history.server.http.compression import Compressing
from ray_history.server.http.ray_proxy import GONE, is_through_ray
from ray_history.server.http.responses import ApiError, error_response

logger = logging.getLogger("ray_history.access")

LONGEST_QUERY = 16 * 1024
_METHODS = frozenset({"GET", "HEAD"})
_SIGNS_IN = re.compile(r"/(login|logout|api/authenticate)\Z")
_ALLOWED = {"login": b"GET, HEAD, POST", "logout": b"POST", "api/authenticate": b"POST"}

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; font-src 'self' data:; "
        b"script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; connect-src 'self'; "
        b"frame-ancestors 'self'; base-uri 'self'; form-action 'self'; object-src 'none'",
    ),
]
"""The dashboard's own frontend styles inline, and evaluates a regular expression engine for its log viewer."""


class Plumbing:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._clock = app, clock
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = 0.0
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = _header(scope, b"x-request-id")[:64] or secrets.token_hex(8) if "headers" in scope else ""
        scope["ray_history.request_id"] = identity
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, sent = self._clock(), 500, 0
        self.running += 1

        async def out(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                if message["status"] == 404 and is_through_ray(scope):
                    message["status"] = GONE
                status = message["status"]
                names = {name.lower() for name, _ in message["headers"]}
                added = [pair for pair in _HEADERS if pair[0] not in names]
                if status == 405 and b"allow" not in names:
                    added.append((b"allow", _allowed(scope)))
                message["headers"] = [
                    *message["headers"],
                    *added,
                    (b"x-request-id", identity.encode("latin-1", "replace")),
                ]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            refused = _refused(scope)
            if refused is not None:
                await error_response(refused)(scope, receive, out)
            else:
                await Compressing(self._app, scope, out).run(receive)
        finally:
            self.running -= 1
            took = self._clock() - begin
            self.seconds += took
            self.requests[scope["method"], status] += 1
            logger.info("%s %s %s %d %d %.3f", identity, scope["method"], _path(scope), status, sent, took)


def _refused(scope: Scope) -> ApiError | None:
    if scope["method"] not in _METHODS and not (scope["method"] == "POST" and _SIGNS_IN.search(scope["path"])):
        return ApiError(405, f"{scope['method'][:20]} is not allowed: history cannot be changed")
    if len(scope["query_string"]) > LONGEST_QUERY:
        return ApiError(414, f"the query has {len(scope['query_string'])} bytes; at most {LONGEST_QUERY} are taken")
    return None


def _allowed(scope: Scope) -> bytes:
    found = _SIGNS_IN.search(scope["path"])
    return _ALLOWED[found[1]] if found and scope["method"] != "POST" else b"GET, HEAD"


def _path(scope: Scope) -> str:
    return str(scope["path"])[:300].encode("unicode_escape").decode()


def _header(scope: Scope, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""
