"""Requests to an API server, limited in time and rate. Every failure is a KubeError."""

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

from ray_history.decoding import DECODING_ERRORS

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
_WATCH_TIMEOUT = 240
"""Seconds after which the API server ends a watch. It is then restarted, so that a dead connection does not last."""
_MAX_BODY = 64 << 20
_MAX_CHANGE = 8 << 20
"""etcd stores objects of at most 1.5 MiB."""
_TRIES = 3
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a resource at one moment."""

    items: list[dict[str, Any]]
    resource_version: str
    """That moment, from which a watch can continue."""


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch."""

    kind: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True, slots=True)
class HeadEndpoint:
    """The address of a service, with the headers and options that requests to it need."""

    address: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    transport: dict[str, Any] = field(default_factory=dict, repr=False)
    """Arguments for aiohttp."""


def resource_path(group_version: str, plural: str, namespace: str = "", name: str = "", *more: str) -> str:
    """The path of one object or of all objects of a resource; `v1` is the core group."""
    for given in (namespace, name):
        if given and not _NAME.fullmatch(given):
            raise NotFound(f"{given[:80]!r} is not a valid Kubernetes name")
    parts = ["api" if "/" not in group_version else "apis", *group_version.split("/")]
    parts += ["namespaces", namespace] if namespace else []
    parts += [plural, *([name] if name else []), *more]
    return "/" + "/".join(quote(part, safe=":") for part in parts)


class Kubernetes:
    """One API server. It must be created, used and closed within one event loop."""

    def __init__(self, access: Access, *, qps: float = 100, burst: int = 200, timeout: float = _TIMEOUT) -> None:
        self.access = access
        self._timeout = timeout
        self._pace = _Pace(qps, burst)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._answer("GET", path, query)

    async def list(self, path: str, query: Mapping[str, str] | None = None) -> Listing:
        """All objects, fetched in pages of one moment, or at once if that moment expires before the last page."""
        items: list[dict[str, Any]] = []
        parameters = {**(query or {}), "limit": str(_PAGE)}
        while True:
            try:
                page = await self._answer("GET", path, parameters)
            except Gone:
                items, parameters = [], dict(query or {})
                page = await self._answer("GET", path, parameters)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion", "")))
            parameters["continue"] = metadata["continue"]

    async def watch(
        self, path: str, resource_version: str, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Change, None]:
        """The changes after that moment, until the API server ends the watch; raises Gone if the moment is too old.

        The first change is a bookmark with that moment, which shows that the watch is established.
        """
        parameters = {
            **(query or {}),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_TIMEOUT),
        }
        limits = aiohttp.ClientTimeout(total=_WATCH_TIMEOUT + 30, sock_connect=self._timeout)
        async with self._request("GET", path, parameters, limits=limits) as response:
            yield Change("BOOKMARK", {"metadata": {"resourceVersion": resource_version}})
            async for line in _lines(response):
                change = Change(str(line.get("type")), line.get("object") or {})
                if change.kind == "ERROR":
                    raise _failure(int(change.object.get("code", 500)), str(change.object.get("message", "")))
                yield change

    async def create_token_review(self, token: str, audiences: Sequence[str] = ()) -> TokenReview:
        body = token_review_body(token, audiences)
        return token_review(await self._answer("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body))

    async def create_subject_access_review(self, user: User, attributes: Attributes) -> bool:
        """Whether a user is allowed an action."""
        body = access_review_body(user, attributes)
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return is_allowed(await self._answer("POST", path, body=body))

    async def service_proxy(self, namespace: str, service: str, port: str) -> HeadEndpoint:
        """The address of a service's port through the API server, with the credentials for the API server."""
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
        async with self._request(method, path, query, body=body) as response:
            content = await _read(response)
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except DECODING_ERRORS:
            raise Unreachable(f"{self.access.server}{path} answered with something other than a JSON object") from None

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        body: Any = None,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer. Repeats the request after `Retry-After`, and with newer credentials after a 401."""
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
                    failure = _failure(response.status, _message(await _read(response)))
                    wait = _retry_after(response)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                reason = str(error) or type(error).__name__  # the text of a TimeoutError is empty
                raise Unreachable(f"{self.access.server} cannot be reached: {reason}") from error
            if response.status == 401:
                self.access.forget(identity)
            elif response.status not in (429, 503) or wait is None:
                raise failure
            if not tries_left:
                raise failure
            await asyncio.sleep(min(wait or 0.0, self._timeout))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No cookies, and no proxies or passwords from the environment.
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
    """At most `qps` requests per second, and `burst` at once after a pause."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = float(burst), time.monotonic()

    async def wait(self) -> None:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_BODY:
            raise Unreachable(f"the API server's answer is larger than {_MAX_BODY >> 20} MiB")
    return bytes(body)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    held = bytearray()
    async for piece in response.content.iter_any():
        held += piece
        *lines, rest = held.split(b"\n")
        held = bytearray(rest)
        if len(held) > _MAX_CHANGE:
            raise Unreachable("the API server's watch sent an overlong line")
        for line in lines:
            if line.strip():
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except DECODING_ERRORS:
                    raise Unreachable("the API server's watch sent something other than a JSON object") from None


def _message(body: bytes) -> str:
    """The message of a Status object, or the beginning of another body."""
    try:
        return str(msgspec.json.decode(body, type=dict[str, Any]).get("message") or "")[:500]
    except DECODING_ERRORS:
        return body[:200].decode(errors="replace").strip()


def _failure(status: int, message: str) -> KubeError:
    match status:
        case 401:
            return Denied(401, f"the API server rejected the credentials: {message or 'Unauthorized'}")
        case 403:
            return Denied(403, message or "the API server denied the request")
        case 404:
            return NotFound(message or "the API server has no such object")
        case 410:
            return Gone(message or "the resource version is too old")
        case 429 | 500 | 502 | 503 | 504:
            return Unreachable(f"the API server answered {status}: {message}")
    return Refused(status, f"the API server answered {status}: {message}")


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() and len(seconds) < 4 else None
