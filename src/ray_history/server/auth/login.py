"""Signing in and out with a browser: a page of ours, and what the Ray Dashboard's own dialog asks for.

The token is kept in a cookie that scripts cannot read, and checked with every request: no server remembers anybody.
"""

from __future__ import annotations

import html
import re
from functools import cache
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..answers import Refused, plain_json
from . import audit
from .attempts import Attempts
from .credentials import COOKIE, Headers, Shown, bearer
from .modes import Mode, NotKnown
from .viewer import Viewer

COOKIE_LIFE = 12 * 3600
_LONGEST_IN_COOKIE = 3800
"""Browsers drop cookies of more than 4096 bytes without a word."""
_LARGEST_FORM = 16 << 10
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
}


class Login:
    """The routes for signing in and out."""

    def __init__(
        self, mode: Mode, base_path: str = "", *, secure: bool = False, attempts: Attempts | None = None
    ) -> None:
        self._mode, self._base, self._secure = mode, base_path, secure
        self._attempts = attempts or Attempts()

    def routes(self) -> list[BaseRoute]:
        below = ("", "/s/{namespace}/{cluster}/{session}")
        return [
            Route("/login", self.page, methods=["GET", "HEAD"]),
            Route("/login", self.sign_in, methods=["POST"]),
            Route("/logout", self.sign_out, methods=["POST"]),
            Route("/login.css", _style, methods=["GET", "HEAD"]),
            *(Route(f"{prefix}/api/authentication_mode", self.told_mode, methods=["GET", "HEAD"]) for prefix in below),
            *(Route(f"{prefix}/api/authenticate", self.authenticate, methods=["POST"]) for prefix in below),
        ]

    async def page(self, request: Request) -> Response:
        """The page to sign in; for those who are signed in, to sign out."""
        after = self._safe(request.query_params.get("next", ""))
        if not self._mode.takes_tokens:
            return RedirectResponse(after, 303)
        shown = self._shown(request, bearer(list(request.scope["headers"])))
        if shown.token is not None:
            try:
                viewer = await self._mode.known(shown)
            except Refused as refused:
                return self._form(after, problem=refused.message if refused.status != 403 else "")
            return _rendered("signed_in.html", base=self._base, name=viewer.name, next=after)
        return self._form(after)

    async def sign_in(self, request: Request) -> Response:
        """The token of the page's form, into a cookie."""
        _same_site(request)
        form = parse_qs((await _body(request)).decode("utf-8", "replace"), max_num_fields=10)
        after = self._safe(form.get("next", [""])[0])
        token = form.get("token", [""])[0].strip()
        try:
            await self._checked(request, token or None)
        except Refused as refused:
            return self._form(after, problem=refused.message, status=refused.status)
        response = RedirectResponse(after, 303, {"Cache-Control": "no-store"})
        self._remember(request, response, token)
        return response

    async def sign_out(self, request: Request) -> Response:
        _same_site(request)
        response = RedirectResponse(f"{self._base}/login", 303, {"Cache-Control": "no-store"})
        response.delete_cookie(COOKIE, path="/", secure=self._is_secure(request), httponly=True, samesite="lax")
        return response

    async def told_mode(self, _: Request) -> Response:
        """What makes the dashboard show its own dialog when a request is refused."""
        return plain_json({"authentication_mode": "token" if self._mode.takes_tokens else "disabled"})

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
        if not self._mode.takes_tokens:
            raise Refused(401, "nobody signs in here with a token")
        if wait := self._attempts.wait(peer):
            audit.told("sign-in refused", request.scope, None, status=429)
            raise Refused(429, f"too many attempts; try again in {wait:.0f} s")
        if token is not None and len(token) > _LONGEST_IN_COOKIE:
            raise Refused(400, "this token is too long for a cookie; programs can send it as Authorization header")
        try:
            viewer = await self._mode.known(self._shown(request, token))
        except NotKnown as refused:
            self._attempts.failed(peer)
            audit.told("sign-in refused", request.scope, None, status=refused.status)
            raise
        audit.told("signed in", request.scope, viewer.name)
        return viewer

    def _shown(self, request: Request, token: str | None) -> Shown:
        headers: Headers = list(request.scope["headers"])
        return Shown(token, audit.peer_of(request.scope), through_trusted=False, headers=headers)

    def _remember(self, request: Request, response: Response, token: str) -> None:
        """Lax, not strict: a link from a chat must open. Nothing here can be changed by following one."""
        secure = self._is_secure(request)
        response.set_cookie(COOKIE, token, max_age=COOKIE_LIFE, path="/", secure=secure, httponly=True, samesite="lax")

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

    def _form(self, after: str, *, problem: str = "", status: int = 200) -> Response:
        note = Template(_template("problem.html")).substitute(problem=html.escape(problem)) if problem else ""
        return _rendered(
            "login.html",
            status,
            base=self._base,
            next=after,
            where=self._mode.where_tokens_come_from,
            invalid="true" if problem else "false",
            raw_problem=note,
        )


async def _style(_: Request) -> Response:
    return Response(_template("login.css"), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def _rendered(template: str, status: int = 200, **values: str) -> Response:
    """Everything is escaped, but what is named raw."""
    escaped = {name: text if name.startswith("raw_") else html.escape(text) for name, text in values.items()}
    return HTMLResponse(Template(_template(template)).substitute(escaped), status, _PAGE_HEADERS)


@cache
def _template(name: str) -> str:
    return (files(__package__) / "pages" / name).read_text()


async def _body(request: Request) -> bytes:
    """The form, as long as it is none of the long ones."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_FORM:
            raise Refused(413, f"the form is larger than {_LARGEST_FORM >> 10} KiB")
    return body


def _same_site(request: Request) -> None:
    """No other site's page may sign somebody in or out here."""
    origin = request.headers.get("origin")
    hosts = {request.headers.get("host"), request.headers.get("x-forwarded-host")}
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
        origin is not None and urlsplit(origin).netloc not in hosts
    ):
        raise Refused(403, "sign in on this server's own page: this form came from another site")
