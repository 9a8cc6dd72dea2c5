"""Signing in and out with a browser: a page of ours, and what the Ray Dashboard's own dialog asks for.

The token is kept in a cookie that scripts cannot read, and checked with every request: no server remembers anybody.
"""

from __future__ import annotations

import re
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ray_history.server.http.responses import ApiError, plain_json

from . import audit
from .attempts import Attempts
from .backends import REJECTED, Mode, NotKnown
from .credentials import COOKIE, Credentials, Headers, bearer
from .viewer import Viewer

COOKIE_LIFE = 12 * 3600
_LONGEST_IN_COOKIE = 3800
"""Browsers drop cookies of more than 4096 bytes without a word."""
_LARGEST_FORM = 16 << 10
_TITLES = {
    401: "No token was sent",
    429: "Too many attempts",
    503: "Nobody can sign in at the moment",
}
"""What went wrong, where it is not the token."""


class Page(Protocol):
    """Makes an answer of one of the server's pages."""

    def __call__(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response: ...


class Login:
    """The routes for signing in and out."""

    def __init__(
        self, mode: Mode, page: Page, base_path: str = "", *, secure: bool = False, attempts: Attempts | None = None
    ) -> None:
        self._mode, self._page, self._base, self._secure = mode, page, base_path, secure
        self._attempts = attempts or Attempts()

    def routes(self) -> list[BaseRoute]:
        below = ("", "/s/{namespace}/{cluster}/{session}")
        return [
            Route("/login", self.page, methods=["GET", "HEAD"]),
            Route("/login", self.sign_in, methods=["POST"]),
            Route("/logout", self.sign_out, methods=["POST"]),
            *(Route(f"{prefix}/api/authentication_mode", self.told_mode, methods=["GET", "HEAD"]) for prefix in below),
            *(Route(f"{prefix}/api/authenticate", self.authenticate, methods=["POST"]) for prefix in below),
        ]

    async def page(self, request: Request) -> Response:
        """The page to sign in; for those who are signed in, to sign out."""
        after = self._safe(request.query_params.get("next", ""))
        if self._mode.tokens is None:
            return RedirectResponse(after, 303)
        shown = self._shown(request, bearer(list(request.scope["headers"])))
        if shown.token is not None:
            try:
                viewer = await self._mode.known(shown)
            except ApiError as refused:
                return self._form(request, after, refused if refused.status != 403 else None)
            return self._page(request, "login.html", signed_in=viewer.name, after=after)
        return self._form(request, after)

    async def sign_in(self, request: Request) -> Response:
        """The token of the page's form, into a cookie."""
        _same_site(request)
        form = _fields(await _body(request))
        after = self._safe(form.get("next", ""))
        if self._mode.tokens is None:
            return RedirectResponse(after, 303)
        token = form.get("token", "").strip()
        try:
            await self._checked(request, token or None)
        except ApiError as refused:
            return self._form(request, after, refused, refused.status)
        response = RedirectResponse(after, 303, {"Cache-Control": "no-store"})
        self._remember(request, response, token)
        return response

    async def sign_out(self, request: Request) -> Response:
        _same_site(request)
        response = RedirectResponse(f"{self._base}/login", 303, {"Cache-Control": "no-store"})
        response.delete_cookie(
            COOKIE, path=self._base or "/", secure=self._is_secure(request), httponly=True, samesite="lax"
        )
        return response

    async def told_mode(self, _: Request) -> Response:
        """What makes the dashboard show its own dialog when a request is refused."""
        return plain_json({"authentication_mode": "token" if self._mode.tokens else "disabled"})

    async def authenticate(self, request: Request) -> Response:
        """The dashboard's dialog sends the token as a header, which no other site's page can."""
        told = [pair for pair in request.scope["headers"] if pair[0] == b"authorization"]
        token = bearer(told)
        await self._checked(request, token)
        response = plain_json({"status": "authenticated", "message": "Token is valid"})
        response.headers["Cache-Control"] = "no-store"
        self._remember(request, response, token or "")
        return response

    async def _checked(self, request: Request, token: str | None) -> Viewer:
        """Whose token it is; every failure counts, and too many are not looked at."""
        peer = audit.peer_of(request.scope)
        if self._mode.tokens is None:
            raise ApiError(401, "nobody signs in here with a token")
        if wait := self._attempts.wait(peer):
            audit.told("sign-in refused", request.scope, None, status=429)
            raise ApiError(429, f"too many attempts; try again in {wait:.0f} s")
        if token is not None and len(token) > _LONGEST_IN_COOKIE:
            raise ApiError(400, "this token is too long for a cookie; programs can send it as Authorization header")
        try:
            viewer = await self._mode.known(self._shown(request, token))
        except NotKnown as refused:
            self._attempts.failed(peer)
            audit.told("sign-in refused", request.scope, None, status=refused.status)
            raise
        audit.told("signed in", request.scope, viewer.name)
        return viewer

    def _shown(self, request: Request, token: str | None) -> Credentials:
        headers: Headers = list(request.scope["headers"])
        return Credentials(token, audit.peer_of(request.scope), through_trusted=False, headers=headers)

    def _remember(self, request: Request, response: Response, token: str) -> None:
        """Lax, not strict: a link from a chat must open. Nothing here can be changed by following one."""
        secure = self._is_secure(request)
        response.set_cookie(
            COOKIE,
            token,
            max_age=COOKIE_LIFE,
            path=self._base or "/",
            secure=secure,
            httponly=True,
            samesite="lax",
        )

    def _is_secure(self, request: Request) -> bool:
        """Under TLS, here or at any proxy: who lies about it only locks their own cookie."""
        return self._secure or request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"

    def _safe(self, after: str) -> str:
        """A path of this server to go on to; anything that could lead elsewhere becomes the home page."""
        home = f"{self._base}/"
        if not re.fullmatch(r"/[\x21-\x7e]*", after) or after.startswith("//") or "\\" in after or len(after) > 4096:
            return home
        parts = urlsplit(after)
        return after if not parts.scheme and not parts.netloc and after.startswith(home) else home

    def _form(self, request: Request, after: str, refused: ApiError | None = None, status: int = 200) -> Response:
        why = refused.message.removeprefix(REJECTED) if refused else ""
        return self._page(
            request,
            "login.html",
            status=status,
            signed_in=None,
            after=after,
            tokens=self._mode.tokens,
            longest=_LONGEST_IN_COOKIE,
            problem=_TITLES.get(refused.status, "That token was not accepted") if refused else "",
            why=why[:1].upper() + why[1:],
        )


async def _body(request: Request) -> bytes:
    """The form, as long as it is none of the long ones."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_FORM:
            raise ApiError(413, f"the form is larger than {_LARGEST_FORM >> 10} KiB")
    return body


def _fields(form: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=10)
    except ValueError:
        raise ApiError(400, "the form has more fields than the page to sign in has") from None
    return {name: values[0] for name, values in fields.items()}


def _same_site(request: Request) -> None:
    """No other site's page may sign somebody in or out here."""
    origin = request.headers.get("origin")
    hosts = {request.headers.get("host"), request.headers.get("x-forwarded-host")}
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
        origin is not None and origin.partition("://")[2] not in hosts
    ):
        raise ApiError(403, "sign in on this server's own page: this form came from another site")
