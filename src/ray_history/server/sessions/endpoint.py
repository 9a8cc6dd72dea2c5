"""How a request becomes an answer: a handler gets an open session and what was asked, and runs in a thread."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ray_history import __version__
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable
from ray_history.history.read.tables import READING_FAILED, Tables
from ray_history.history.read.views import View
from ray_history.server.http.query_params import boolean, moment
from ray_history.server.http.ray_proxy import PATIENCE, is_through_ray
from ray_history.server.http.response_cache import ResponseCache
from ray_history.server.http.responses import ApiError, ArchiveFailure
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.manager import OpenSession, Sessions

T = TypeVar("T")
_TAGS = re.compile(r'(?:W/)?"[^"]*"')


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A request for something of an open session."""

    http: Request
    open: OpenSession
    view: View
    redact: bool

    @property
    def tables(self) -> Tables:
        return self.open.tables

    @property
    def query(self) -> QueryParams:
        return self.http.query_params

    def path_param(self, name: str) -> str:
        """A part of the path."""
        return str(self.http.path_params[name])


Handler = Callable[[SessionRequest], Response]
Refuse = Callable[[Request, ApiError], Awaitable[Response]]
"""Writes a refusal in the form that suits who asked."""


def with_and_without_slash(routes: Iterable[tuple[str, T]]) -> Iterable[tuple[str, T]]:
    """A trailing slash makes no difference, as in Ray and in KubeRay."""
    for path, led in routes:
        yield path, led
        yield (path.removesuffix("/") if path.endswith("/") else path + "/"), led


@dataclass(eq=False)
class SessionEndpoint:
    """Runs a handler in a thread, on a session that stays open until the last byte is sent. A session that cannot be
    read is acquired once more: if its index is damaged, it then is another one."""

    sessions: Sessions
    handler: Handler
    redact: bool
    answers: ResponseCache
    refuse: Refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if await self._answered(request, send):
            return
        await self._answered(request, send, again=True)

    async def _answered(self, request: Request, send: Send, *, again: bool = False) -> bool:
        """False if nothing was sent, because the session's tables could not be read and are doubted."""
        response: Response
        try:
            opened = await self._opened(request.scope)
        except (ArchiveError, ApiError) as error:
            refused = error if isinstance(error, ApiError) else refused_by_archive(error)
            response = await self.refuse(request, refused)
            await response(request.scope, request.receive, send)
            return True
        try:
            try:
                response = await self._response(request, opened)
            except READING_FAILED:
                if again or not opened.is_doubtful:
                    raise
                return False
            await response(request.scope, request.receive, send)
            return True
        finally:
            self.sessions.release(opened)

    async def _opened(self, scope: Scope) -> OpenSession:
        session: Session = scope["ray_history.session"]
        try:
            async with asyncio.timeout(PATIENCE if is_through_ray(scope) else None) as waiting:
                return await self.sessions.acquire(session)
        except TimeoutError:
            if not waiting.expired():
                raise
            raise ApiError(503, "the session is still being opened; try again in some seconds") from None

    async def _response(self, request: Request, opened: OpenSession) -> Response:
        response: Response
        tag, known = "", request.headers.get("if-none-match", "").strip()
        try:
            tag = _tag(request, opened, redact=self.redact)
            if tag and _opaque(tag) in map(_opaque, _TAGS.findall(known)):
                return _unchanged(tag)
            kept = self.answers.get(tag) if tag else None
            if kept is not None:
                return _unchanged(tag) if known == "*" else kept
            view = opened.view(moment(request.query_params), raw=boolean(request.query_params, "raw", default=False))
            response = await run_in_threadpool(self.handler, SessionRequest(request, opened, view, self.redact))
        except ApiError as refused:
            response = await self.refuse(request, refused)
        except ArchiveError as error:
            response = await self.refuse(request, refused_by_archive(error))
        if tag and response.status_code == 200 and response.headers.get("cache-control") != "no-store":
            response.headers.setdefault("ETag", tag)
            response.headers.setdefault("Cache-Control", "no-cache")
            if known == "*":  # anything that the client has will do, if there is an answer
                return _unchanged(tag)
            if request.method == "GET":
                self.answers.keep(tag, response)
        return response


def _opaque(tag: str) -> str:
    """A tag for the comparison that does not tell weak from strong."""
    return tag.removeprefix("W/")


def _unchanged(tag: str) -> Response:
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "no-cache"})


def _tag(request: Request, opened: OpenSession, *, redact: bool) -> str:
    """What the answer depends on, in short; none while the session may still change."""
    if opened.ended_ns is None:
        return ""
    told = "\n".join(
        [
            __version__,
            opened.session.name,
            opened.opened.manifest.other_sources,
            *(file.digest for file in opened.opened.manifest.files),
            opened.logs_digest,
            str(opened.ended_ns),
            str(opened.doubts),
            str(redact),
            request.url.path,
            request.url.query,
        ]
    )
    return f'W/"{hashlib.blake2b(told.encode(), digest_size=12).hexdigest()}"'


def refused_by_archive(error: ArchiveError) -> ApiError:
    match error:
        case NotFound():
            return ApiError(404, str(error))
        case Denied() | Misconfigured():
            return ArchiveFailure(502, f"the archive refuses: {error}")
        case Unreachable():
            return ArchiveFailure(503, f"the archive cannot be reached: {error}")
    return ApiError(500, str(error))


def shown(request: SessionRequest, value: Any) -> Any:
    """What may be shown of a body, to whoever asked."""
    return redacted(value) if request.redact else value
