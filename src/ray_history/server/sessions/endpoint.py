"""Requests about a session: a handler gets the open session and the request, and runs in a thread."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ray_history import __version__
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable
from ray_history.history.engine import OUT_OF_MEMORY
from ray_history.history.read.tables import READING_FAILED, Tables
from ray_history.history.read.views import View
from ray_history.server.auth import EVERYBODY, viewer_of
from ray_history.server.http.query_params import boolean, moment
from ray_history.server.http.ray_proxy import PATIENCE, is_through_ray
from ray_history.server.http.response_cache import ResponseCache
from ray_history.server.http.responses import ApiError, ArchiveFailure, note_value
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.manager import Sessions
from ray_history.server.sessions.open_session import OpenSession

logger = logging.getLogger(__name__)

T = TypeVar("T")
_NOTE = "X-Ray-History-Note"
_REUSED_FOR = 60
"""Seconds for which a browser uses an answer about an ended session again."""
_TOO_LARGE = (
    "the answer needs more memory than --query-memory allows, or other answers take it at the moment; "
    "try again later, or request less: fewer rows with limit=, or a listing without detail=1"
)
_TAGS = re.compile(r'(?:W/)?"[^"]*"')


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A request about an open session."""

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

    def redacted(self, value: Any) -> Any:
        """The value without secrets, unless the server shows them."""
        return redacted(value) if self.redact else value

    def path_param(self, name: str) -> str:
        return str(self.http.path_params[name])


Handler = Callable[[SessionRequest], Response]
Refuse = Callable[[Request, ApiError], Awaitable[Response]]
"""Writes a refusal as a page or as JSON, whichever the client expects."""


def with_and_without_slash(routes: Iterable[tuple[str, T]]) -> Iterable[tuple[str, T]]:
    """A trailing slash makes no difference, as in Ray and in KubeRay."""
    for path, target in routes:
        yield path, target
        yield (path.removesuffix("/") if path.endswith("/") else path + "/"), target


@dataclass(eq=False)
class SessionEndpoint:
    """Runs a handler in a thread, on a session that stays open until the last byte is sent.

    When its tables cannot be read the session is acquired once more: a damaged index has been rebuilt by then.
    """

    sessions: Sessions
    handler: Handler
    redact: bool
    cache: ResponseCache
    refuse: Refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if not await self._respond(request, send):
            await self._respond(request, send, is_retry=True)

    async def _respond(self, request: Request, send: Send, *, is_retry: bool = False) -> bool:
        """False if nothing was sent because the tables of the session could not be read and may be damaged."""
        response: Response
        try:
            opened = await self._acquire(request.scope)
        except (ArchiveError, ApiError) as error:
            refused = error if isinstance(error, ApiError) else archive_refusal(error)
            response = await self.refuse(request, refused)
            await response(request.scope, request.receive, send)
            return True
        try:
            age = self.sessions.age(opened)
            if age is not None:
                send = _noting_age(request.scope, send, age)
            try:
                response = await self._response(request, opened)
            except READING_FAILED:
                if is_retry or not opened.is_doubtful:
                    raise
                return False
            await response(request.scope, request.receive, send)
            return True
        finally:
            self.sessions.release(opened)

    async def _acquire(self, scope: Scope) -> OpenSession:
        session: Session = scope["ray_history.session"]
        try:
            async with asyncio.timeout(PATIENCE if is_through_ray(scope) else None) as waiting:
                return await self.sessions.acquire(session)
        except TimeoutError:
            if not waiting.expired():
                raise
            raise ApiError(503, "the session is still being opened; try again in a few seconds") from None

    async def _response(self, request: Request, opened: OpenSession) -> Response:
        response: Response
        caching = _caching(request, opened)
        tag, client_tags = "", request.headers.get("if-none-match", "").strip()
        try:
            tag = _tag(request, opened, redact=self.redact)
            if tag and _opaque(tag) in map(_opaque, _TAGS.findall(client_tags)):
                return _unchanged(tag, caching)
            cached = self.cache.get(tag) if tag else None
            if cached is not None:
                return _unchanged(tag, caching) if client_tags == "*" else cached
            view = opened.view(moment(request.query_params), raw=boolean(request.query_params, "raw", default=False))
            work = partial(self.handler, SessionRequest(request, opened, view, self.redact))
            response = await self.sessions.threads.run(_viewer(request), opened.session, work)
        except ApiError as refused:
            response = await self.refuse(request, refused)
        except ArchiveError as error:
            response = await self.refuse(request, archive_refusal(error))
        except OUT_OF_MEMORY as error:
            logger.warning("%s needs too much memory: %s", request.url.path, str(error).partition("\n")[0])
            response = await self.refuse(request, ApiError(503, _TOO_LARGE))
        if tag and response.status_code == 200 and response.headers.get("cache-control") != "no-store":
            response.headers.setdefault("ETag", tag)
            response.headers.setdefault("Cache-Control", caching)
            if client_tags == "*":  # matches any answer
                return _unchanged(tag, caching)
            if request.method == "GET":
                self.cache.store(tag, response)
        return response


def _viewer(request: Request) -> str:
    """Who takes turns with others; without authentication, the machine that sends the request."""
    viewer = viewer_of(request.scope)
    return viewer.name if viewer is not EVERYBODY else request.client.host if request.client else ""


def _noting_age(scope: Scope, send: Send, age: int) -> Send:
    """Adds the age to the headers of the answer, to the notes that pages show, and to the warnings of listings."""
    note = f"{age} s old: comparing with the archive failed or is not finished"
    scope["ray_history.age"] = note
    scope["ray_history.note"] = "; ".join(filter(None, (scope.get("ray_history.note"), note)))

    async def out(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Ray-History-Age"] = str(age)
            headers[_NOTE] = note_value("; ".join(filter(None, (headers.get(_NOTE), note))))
        await send(message)

    return out


def _opaque(tag: str) -> str:
    """The part of a tag that the weak comparison of RFC 9110 uses."""
    return tag.removeprefix("W/")


def _unchanged(tag: str, caching: str) -> Response:
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": caching})


def _caching(request: Request, opened: OpenSession) -> str:
    """How long a browser may use an answer again: Ray's pages poll, also those of a session that ended long ago.

    `latest` and cookies may stand for another session a moment later.
    """
    is_named = request.path_params.get("session") == opened.session.name
    return "no-cache" if opened.may_grow or not is_named else f"private, max-age={_REUSED_FOR}"


def _tag(request: Request, opened: OpenSession, *, redact: bool) -> str:
    """A digest of everything that the answer depends on; empty while the session may change."""
    if opened.ended_ns is None:
        return ""
    parts = "\n".join(
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
    return f'W/"{hashlib.blake2b(parts.encode(), digest_size=12).hexdigest()}"'


def archive_refusal(error: ArchiveError) -> ApiError:
    match error:
        case NotFound():
            return ApiError(404, str(error))
        case Denied() | Misconfigured():
            return ArchiveFailure(502, f"the archive refused the request: {error}")
        case Unreachable():
            return ArchiveFailure(503, f"the archive cannot be reached: {error}")
    return ApiError(500, str(error))
