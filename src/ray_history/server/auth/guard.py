"""The guard before the application: authenticates requests, and records denials and downloads in the audit log."""

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
from .backends import AuthBackend, NotAuthenticated
from .credentials import Credentials, without_tokens
from .origin import AllowedHosts, check_origin
from .viewer import EVERYBODY, with_viewer

_BELOW = r"(/s/[^/]+/[^/]+/[^/]+)?"
OPEN = {
    "GET": re.compile(rf"/(livez|readyz|readz|healthz|metrics|login)|{_BELOW}/(_pages/[^/]+|api/authentication_mode)"),
    "POST": re.compile(rf"/(login|logout)|{_BELOW}/api/authenticate"),
}
"""Paths that need no authentication: health checks, metrics, static files of the pages, signing in."""

Refuse: TypeAlias = Callable[[Scope, ApiError], Awaitable[Response]]
"""Writes a refusal as a page or as JSON, whichever the client expects."""


class Guard:
    """The last middleware before the routes."""

    def __init__(
        self,
        app: ASGIApp,
        backend: AuthBackend,
        refuse: Refuse,
        base_path: str = "",
        hosts: AllowedHosts = AllowedHosts(),  # noqa: B008  # frozen
    ) -> None:
        self._app, self._backend, self._write_refusal, self._base = app, backend, refuse, base_path
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        credentials = self._backend.peers.credentials(scope)
        scope = audit.with_peer(scope, credentials.peer)
        if credentials.through_trusted:
            _use_forwarded_scheme(scope, credentials)
        try:
            check_origin(scope, self._hosts)
        except ApiError as refused:
            audit.record("denied", scope, None, status=refused.status)
            await self._refuse(refused, scope, receive, send)
            return
        path = scope["path"].removeprefix(self._base) if scope["path"].startswith(self._base + "/") else ""
        method = {"HEAD": "GET"}.get(scope.get("method", ""), scope.get("method", ""))
        if method in OPEN and OPEN[method].fullmatch(path):
            await self._app(scope, receive, send)  # without a viewer, but with the token, which signing in needs
            return
        if method == "POST":
            await error_response(ApiError(405, "POST is not allowed: history cannot be changed"))(scope, receive, send)
            return
        try:
            viewer = await self._backend.authenticate(credentials)
        except ApiError as refused:
            audit.record("denied", scope, None, status=refused.status)
            await self._refuse(refused, scope, receive, send)
            return
        inner = with_viewer(scope, viewer, without_tokens(credentials.headers))
        watched = _WatchedSend(inner, send, private=viewer is not EVERYBODY)
        try:
            await self._app(inner, receive, watched)
        finally:
            if watched.is_download:
                audit.record("downloaded", inner, viewer.name, status=watched.status, bytes=watched.sent)

    async def _refuse(self, refused: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            response = self._marked(refused, error_response(refused))
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await (await self._refusal(refused, scope))(scope, receive, send)

    async def _refusal(self, refused: ApiError, scope: Scope) -> Response:
        if isinstance(refused, NotAuthenticated) and self._backend.tokens and _is_page(scope):
            target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
            login = f"{self._base}/login?next={quote(target, safe='/')}"
            return RedirectResponse(login, 303, {"Cache-Control": "no-store"})
        return self._marked(refused, await self._write_refusal(scope, refused))

    def _marked(self, refused: ApiError, response: Response) -> Response:
        response.headers["Cache-Control"] = "no-store"
        if isinstance(refused, NotAuthenticated) and self._backend.tokens:
            problem = ', error="invalid_token"' if refused.has_credentials else ""
            response.headers["WWW-Authenticate"] = f'Bearer realm="ray-history"{problem}'
        return response


def _is_page(scope: Scope) -> bool:
    """Whether a browser navigates there: it is redirected to the sign-in page."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return scope["type"] == "http" and scope["method"] == "GET" and b"text/html" in accepted


def _use_forwarded_scheme(scope: Scope, credentials: Credentials) -> None:
    schemes = credentials.values("x-forwarded-proto")
    if schemes and schemes[-1] in ("http", "https"):
        scope["scheme"] = schemes[-1] if scope["type"] == "http" else schemes[-1].replace("http", "ws")


class _WatchedSend:
    """Sends the answer, keeps it out of shared caches, and notes whether it is a download."""

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
    """A shared cache must not store an answer of one viewer for others."""
    value = next((value for name, value in headers if name.lower() == b"cache-control"), b"no-cache")
    if b"no-store" not in value:
        value = b"private, " + value.replace(b"public, ", b"")
    return [*(pair for pair in headers if pair[0].lower() != b"cache-control"), (b"cache-control", value)]
