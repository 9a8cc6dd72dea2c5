"""The calls to an API server: bounded in time and rate, and every failure a KubeError."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from .access import Access, Identity
from .errors import Denied, Gone, KubeError, NotFound, Refused, Unreachable
from .reviews import (
    Attributes,
    TokenReview,
    User,
    access_review_body,
    is_allowed,
    token_review,
    token_review_body,
)

_TIMEOUT = 15.0
_PAGE = 500
_WATCH = 240
"""Seconds after which a watch is ended by the API server, and begun again by us: a dead connection is not forever."""
_LARGEST = 64 << 20
_LARGEST_CHANGE = 8 << 20
"""etcd holds objects of 1.5 MiB at the most."""
_TRIES = 3
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Listing:
    """All things of a kind, as they were at one moment."""

    items: list[dict[str, Any]]
    resource_version: str
    """That moment; a watch goes on from it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a watch."""

    kind: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    thing: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.thing.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True, slots=True)
class HeadEndpoint:
    """A way to a service: what a path is put behind, and what every request must carry."""

    address: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    transport: dict[str, Any] = field(default_factory=dict, repr=False)
    """Arguments for aiohttp."""


def resource_path(group_version: str, plural: str, namespace: str = "", name: str = "", *more: str) -> str:
    """The path of a thing or of all things; `v1` is the group of Kubernetes itself."""
    for given in (namespace, name):
        if given and not _NAME.fullmatch(given):
            raise NotFound(f"{given[:80]!r} is no name of Kubernetes")
    parts = ["api" if "/" not in group_version else "apis", *group_version.split("/")]
    parts += ["namespaces", namespace] if namespace else []
    parts += [plural, *([name] if name else []), *more]
    return "/" + "/".join(quote(part, safe=":") for part in parts)


class Kubernetes:
    """One API server. To be made, used and closed within one event loop."""

    def __init__(self, access: Access, *, qps: float = 100, burst: int = 200, timeout: float = _TIMEOUT) -> None:
        self.access = access
        self._timeout = timeout
        self._pace = _Pace(qps, burst)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """One thing."""
        return await self._answer("GET", path, query)

    async def list(self, path: str, query: Mapping[str, str] | None = None) -> Listing:
        """All things of a kind, fetched in pages of one moment; when it is over before the last page, at once."""
        items: list[dict[str, Any]] = []
        asked = {**(query or {}), "limit": str(_PAGE)}
        while True:
            try:
                page = await self._answer("GET", path, asked)
            except Gone:
                items, asked = [], dict(query or {})
                page = await self._answer("GET", path, asked)
            items += page.get("items") or []
            about = page.get("metadata") or {}
            if not about.get("continue"):
                return Listing(items, str(about.get("resourceVersion", "")))
            asked["continue"] = about["continue"]

    async def watch(
        self, path: str, resource_version: str, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Change, None]:
        """What changes from that moment on, until the API server ends it; Gone when the moment is too old.

        First comes a bookmark of ours, with that moment: the watch stands.
        """
        asked = {
            **(query or {}),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH),
        }
        limits = aiohttp.ClientTimeout(total=_WATCH + 30, sock_connect=self._timeout)
        async with self._asked("GET", path, asked, limits=limits) as response:
            yield Change("BOOKMARK", {"metadata": {"resourceVersion": resource_version}})
            async for line in _lines(response):
                change = Change(str(line.get("type")), line.get("object") or {})
                if change.kind == "ERROR":
                    raise _failure(int(change.thing.get("code", 500)), str(change.thing.get("message", "")))
                yield change

    async def create_token_review(self, token: str, audiences: Sequence[str] = ()) -> TokenReview:
        """Whom a token belongs to."""
        body = token_review_body(token, audiences)
        return token_review(await self._answer("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body))

    async def create_subject_access_review(self, user: User, wanted: Attributes) -> bool:
        """Whether somebody may do something."""
        body = access_review_body(user, wanted)
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return is_allowed(await self._answer("POST", path, body=body))

    async def service_proxy(self, namespace: str, service: str, port: str) -> HeadEndpoint:
        """The way to a service's port through the API server, as whom we are there."""
        identity = await self.access.identity()
        path = resource_path("v1", "services", namespace, service)
        address = f"{self.access.server}{path}:{quote(port, safe='')}/proxy"
        return HeadEndpoint(address, dict(identity.headers), self._transport(identity))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: Any = None
    ) -> dict[str, Any]:
        async with self._asked(method, path, query, body=body) as response:
            content = await _whole(response)
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unreachable(f"{self.access.server}{path} answered with something that is no JSON object") from None

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        body: Any = None,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer; asked again when told to wait, or with a newer token."""
        limits = limits or aiohttp.ClientTimeout(total=self._timeout)
        url = URL(self.access.server + path, encoded=True).update_query(query or {})
        data = None if body is None else msgspec.json.encode(body)
        for tries_left in reversed(range(_TRIES)):
            await self._pace.wait()
            identity = await self.access.identity()
            headers = {**identity.headers, "Accept": "application/json", "Content-Type": "application/json"}
            try:
                async with self._open_session().request(
                    method, url, data=data, headers=headers, timeout=limits, **self._transport(identity)
                ) as response:
                    if response.status < 300:
                        yield response
                        return
                    failure = _failure(response.status, _message(await _whole(response)))
                    wait = _wait_told(response)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise Unreachable(f"{self.access.server} cannot be reached: {error or type(error).__name__}") from error
            if response.status == 401:
                self.access.forget(identity)
            elif response.status not in (429, 503) or wait is None:
                raise failure
            if not tries_left:
                raise failure
            await asyncio.sleep(min(wait or 0.0, self._timeout))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No cookies, no redirects by default, no proxies or passwords from the environment.
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), connector=aiohttp.TCPConnector(limit=0), auto_decompress=True
            )
        return self._session

    def _transport(self, identity: Identity) -> dict[str, Any]:
        return {
            "ssl": identity.tls if identity.tls is not None else True,
            "server_hostname": self.access.tls_name,
            "proxy": self.access.proxy,
            "allow_redirects": False,
        }


class _Pace:
    """At most so many requests per second, and so many at once after a pause."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = float(burst), time.monotonic()

    async def wait(self) -> None:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _LARGEST:
            raise Unreachable(f"the API server's answer is larger than {_LARGEST >> 20} MiB")
    return bytes(body)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    held = bytearray()
    async for piece in response.content.iter_any():
        held += piece
        *lines, rest = held.split(b"\n")
        held = bytearray(rest)
        if len(held) > _LARGEST_CHANGE:
            raise Unreachable("the API server's watch sent a line without end")
        for line in lines:
            if line.strip():
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except (msgspec.DecodeError, UnicodeDecodeError):
                    raise Unreachable("the API server's watch sent something that is no JSON object") from None


def _message(body: bytes) -> str:
    """What the Status object says, or the beginning of whatever else came."""
    try:
        return str(msgspec.json.decode(body, type=dict[str, Any]).get("message") or "")[:500]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:200].decode(errors="replace").strip()


def _failure(status: int, message: str) -> KubeError:
    match status:
        case 401:
            return Denied(401, f"the API server does not know us: {message or 'Unauthorized'}")
        case 403:
            return Denied(403, message or "the API server does not allow it")
        case 404:
            return NotFound(message or "the API server has no such thing")
        case 410:
            return Gone(message or "the resource version is too old")
        case 429 | 500 | 502 | 503 | 504:
            return Unreachable(f"the API server answered {status}: {message}")
    return Refused(status, f"the API server answered {status}: {message}")


def _wait_told(response: aiohttp.ClientResponse) -> float | None:
    told = response.headers.get("Retry-After", "")
    return float(told) if told.isdecimal() and len(told) < 4 else None
