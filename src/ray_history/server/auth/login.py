"""Signing in and out with a browser, on the sign-in page or in the Ray Dashboard's own dialog.

The token is stored in a cookie that scripts cannot read, and checked with every request: the server keeps no sessions.
"""

from __future__ import annotations

import re
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ray_history.server.http.responses import ApiError, plain_json

from . import audit
from .attempts import Attempts
from .backends import REJECTED, AuthBackend, NotAuthenticated
from .credentials import COOKIE, Credentials, Headers, bearer
from .origin import is_cross_site
from .viewer import Viewer

COOKIE_LIFE = 12 * 3600
_LONGEST_IN_COOKIE = 3800
"""Browsers silently drop cookies of more than 4096 bytes."""
_LARGEST_FORM = 16 << 10
_TITLES = {
    401: "No token was sent",
    429: "Too many attempts",
    503: "Signing in is not possible at the moment",
}
"""Titles by status; for other statuses it is the token that was rejected."""


class Page(Protocol):
    """Renders one of the server's pages."""

    def __call__(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response: ...


class Login:
    """The routes for signing in and out."""

    def __init__(
        self,
        backend: AuthBackend,
        page: Page,
        base_path: str = "",
        *,
        secure: bool = False,
        attempts: Attempts | None = None,
    ) -> None:
        self._backend, self._page, self._base, self._secure = backend, page, base_path, secure
        self._attempts = attempts or Attempts()

    def routes(self) -> list[BaseRoute]:
        below, read = ("", "/s/{namespace}/{cluster}/{session}"), ["GET", "HEAD"]
        return [
            Route("/login", self.page, methods=read),
            Route("/login", self.sign_in, methods=["POST"]),
            Route("/logout", self.sign_out, methods=["POST"]),
            *(Route(f"{prefix}/api/authentication_mode", self.authentication_mode, methods=read) for prefix in below),
            *(Route(f"{prefix}/api/authenticate", self.authenticate, methods=["POST"]) for prefix in below),
        ]

    async def page(self, request: Request) -> Response:
        """The page to sign in, or to sign out."""
        after = self._safe(request.query_params.get("next", ""))
        if self._backend.tokens is None:
            return RedirectResponse(after, 303)
        credentials = self._credentials(request, bearer(list(request.scope["headers"])))
        if credentials.token is not None:
            try:
                viewer = await self._backend.authenticate(credentials)
            except ApiError as refused:
                return self._form(request, after, refused if refused.status != 403 else None)
            return self._page(request, "login.html", signed_in=viewer.name, after=after)
        return self._form(request, after)

    async def sign_in(self, request: Request) -> Response:
        """Store the token from the form in a cookie."""
        _same_site(request)
        form = _fields(await _body(request))
        after = self._safe(form.get("next", ""))
        if self._backend.tokens is None:
            return RedirectResponse(after, 303)
        token = form.get("token", "").strip()
        try:
            await self._authenticate(request, token or None)
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

    async def authentication_mode(self, _: Request) -> Response:
        """The dashboard shows its own dialog after a refusal if this says `token`."""
        return plain_json({"authentication_mode": "token" if self._backend.tokens else "disabled"})

    async def authenticate(self, request: Request) -> Response:
        """The dashboard's dialog sends the token as a header, which pages of other sites cannot do."""
        token = bearer([pair for pair in request.scope["headers"] if pair[0] == b"authorization"])
        await self._authenticate(request, token)
        response = plain_json({"status": "authenticated", "message": "Token is valid"})
        response.headers["Cache-Control"] = "no-store"
        self._remember(request, response, token or "")
        return response

    async def _authenticate(self, request: Request, token: str | None) -> Viewer:
        """The viewer of a token. After too many failures of a peer, it is told to wait; right tokens are accepted."""
        peer = audit.peer_of(request.scope)
        if self._backend.tokens is None:
            raise ApiError(401, "token sign-in is disabled")
        if token is not None and len(token) > _LONGEST_IN_COOKIE:
            raise ApiError(400, "the token is too long for a cookie; send it in an Authorization header instead")
        try:
            viewer = await self._backend.authenticate(self._credentials(request, token))
        except NotAuthenticated as refused:
            wait = self._attempts.wait(peer)
            self._attempts.failed(peer)
            audit.record("sign-in refused", request.scope, None, status=429 if wait else refused.status)
            if wait:
                raise ApiError(429, f"too many attempts; try again in {wait:.0f} s") from None
            raise
        audit.record("signed in", request.scope, viewer.name)
        return viewer

    def _credentials(self, request: Request, token: str | None) -> Credentials:
        headers: Headers = list(request.scope["headers"])
        return Credentials(token, audit.peer_of(request.scope), through_trusted=False, headers=headers)

    def _remember(self, request: Request, response: Response, token: str) -> None:
        response.set_cookie(
            COOKIE,
            token,
            max_age=COOKIE_LIFE,
            path=self._base or "/",
            secure=self._is_secure(request),
            httponly=True,
            samesite="lax",  # with `strict` a link from a chat would not open; following one changes nothing
        )

    def _is_secure(self, request: Request) -> bool:
        """Whether the client uses TLS. The header may be forged: that only restricts the client's own cookie."""
        return self._secure or request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"

    def _safe(self, after: str) -> str:
        """The path to continue with; anything that could lead to another site becomes the home page."""
        home = f"{self._base}/"
        if not re.fullmatch(r"/[\x21-\x7e]*", after) or after.startswith("//") or "\\" in after or len(after) > 4096:
            return home
        parts = urlsplit(after)
        return after if not parts.scheme and not parts.netloc and after.startswith(home) else home

    def _form(self, request: Request, after: str, refused: ApiError | None = None, status: int = 200) -> Response:
        reason = refused.message.removeprefix(REJECTED) if refused else ""
        return self._page(
            request,
            "login.html",
            status=status,
            signed_in=None,
            after=after,
            tokens=self._backend.tokens,
            longest=_LONGEST_IN_COOKIE,
            problem=_TITLES.get(refused.status, "That token was not accepted") if refused else "",
            why=reason[:1].upper() + reason[1:],
        )


async def _body(request: Request) -> bytes:
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST_FORM:
                raise ApiError(413, f"the form is larger than {_LARGEST_FORM >> 10} KiB")
    except ClientDisconnect:  # nobody reads this
        raise ApiError(400, "the form is incomplete") from None
    return body


def _fields(form: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=10)
    except ValueError:
        raise ApiError(400, "too many form fields") from None
    return {name: values[0] for name, values in fields.items()}


def _same_site(request: Request) -> None:
    """Refuse forms that pages of other sites submit."""
    if is_cross_site(request.scope):
        raise ApiError(403, "cross-site form submission; use the sign-in page of this server")
