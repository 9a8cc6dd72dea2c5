"""The guard before the application: finds out who asks, lets nobody else in, and keeps the audit log."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from ray_history.server.http.responses import ApiError, error_response

from . import audit
from .backends import Mode, NotKnown
from .credentials import Credentials, without_tokens
from .viewer import EVERYBODY, let_in

_BELOW = r"(/s/[^/]+/[^/]+/[^/]+)?"
OPEN = {
    "GET": re.compile(rf"/(livez|readz|healthz|metrics|login)|{_BELOW}/(_pages/[^/]+|api/authentication_mode)"),
    "POST": re.compile(rf"/(login|logout)|{_BELOW}/api/authenticate"),
}
"""What is answered to people who are not known: that the server lives, its numbers, how its pages look, the way in."""

Refuse: TypeAlias = Callable[[Scope, ApiError], Awaitable[Response]]
"""Tells a refusal in the form that suits who asked."""


class Guard:
    """Stands between the plumbing and the application."""

    def __init__(self, app: ASGIApp, mode: Mode, refuse: Refuse, base_path: str = "") -> None:
        self._app, self._mode, self._refuse_in_form, self._base = app, mode, refuse, base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        shown = self._mode.peers.shown(scope)
        scope = audit.from_peer(scope, shown.peer)
        if shown.through_trusted:
            _take_over_scheme(scope, shown)
        path = scope["path"].removeprefix(self._base) if scope["path"].startswith(self._base + "/") else ""
        method = {"HEAD": "GET"}.get(scope.get("method", ""), scope.get("method", ""))
        if method in OPEN and OPEN[method].fullmatch(path):
            await self._app(scope, receive, send)  # without a viewer; with the tokens, which signing in looks at
            return
        if method == "POST":
            await error_response(ApiError(405, "POST is not allowed: history cannot be changed"))(scope, receive, send)
            return
        try:
            viewer = await self._mode.known(shown)
        except ApiError as refused:
            audit.told("denied", scope, None, status=refused.status)
            await self._refuse(refused, scope, receive, send)
            return
        inner = let_in(scope, viewer, without_tokens(shown.headers))
        watched = _Watched(inner, send, private=viewer is not EVERYBODY)
        try:
            await self._app(inner, receive, watched)
        finally:
            if watched.is_download:
                audit.told("downloaded", inner, viewer.name, status=watched.status, bytes=watched.sent)

    async def _refuse(self, refused: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            response = self._marked(refused, error_response(refused))
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await (await self._refusal(refused, scope))(scope, receive, send)

    async def _refusal(self, refused: ApiError, scope: Scope) -> Response:
        if isinstance(refused, NotKnown) and self._mode.tokens and _is_page(scope):
            asked = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
            way_in = f"{self._base}/login?next={quote(asked, safe='/')}"
            return RedirectResponse(way_in, 303, {"Cache-Control": "no-store"})
        return self._marked(refused, await self._refuse_in_form(scope, refused))

    def _marked(self, refused: ApiError, response: Response) -> Response:
        response.headers["Cache-Control"] = "no-store"
        if isinstance(refused, NotKnown) and self._mode.tokens:
            problem = ', error="invalid_token"' if refused.shown else ""
            response.headers["WWW-Authenticate"] = f'Bearer realm="ray-history"{problem}'
        return response


def _is_page(scope: Scope) -> bool:
    """Whether a browser goes there by itself: then it is shown the way in."""
    wanted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return scope["type"] == "http" and scope["method"] == "GET" and b"text/html" in wanted


def _take_over_scheme(scope: Scope, shown: Credentials) -> None:
    told = shown.values("x-forwarded-proto")
    if told and told[-1] in ("http", "https"):
        scope["scheme"] = told[-1] if scope["type"] == "http" else told[-1].replace("http", "ws")


class _Watched:
    """Sends on what the application answers: kept out of shared caches, and told to the audit log when downloaded."""

    def __init__(self, scope: Scope, send: Send, *, private: bool) -> None:
        self._scope, self._send, self._private = scope, send, private
        self.is_download = False
        self.status = 0
        self.sent = 0

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.accept"):
            headers = list(message.get("headers", []))
            self.status = message.get("status", 101)
            self.is_download = self.status < 300 and audit.is_download(self._scope["path"], headers)
            if self._private and kind == "http.response.start":
                message["headers"] = _private(headers)
        await self._send(message)
        self.sent += len(message.get("body", b"")) + len(message.get("text") or "")


def _private(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What one may see must not be kept by a cache for others."""
    told = next((value for name, value in headers if name.lower() == b"cache-control"), b"no-cache")
    if b"no-store" not in told:
        told = b"private, " + told.replace(b"public, ", b"")
    return [*(pair for pair in headers if pair[0].lower() != b"cache-control"), (b"cache-control", told)]
