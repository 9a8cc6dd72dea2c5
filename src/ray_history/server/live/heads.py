"""Requests to the heads of running clusters: GET, HEAD, and one web socket that is only read.

Invariants:
* only the Kubernetes API determines the address of a head, and redirects are not followed;
* of the viewer's request only the path, the query and the accepted types are forwarded: no cookie, no token;
* of the head's answer only a few headers are forwarded, and nothing that a browser would run: the owner of a cluster
  must not be able to run scripts in pages of others;
* if a head does not answer, HeadUnreachable is raised before anything is sent to the viewer, and the head is not
  contacted again for some seconds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import aiohttp
import msgspec
from yarl import URL

from ray_history import __version__
from ray_history.kube import HeadEndpoint, HeadResolver, KubeError

from .running import RunningCluster

_CONNECT_TIMEOUT = 5.0
_TIMEOUT = 60.0
"""Ray's own limit for a listing is 30 seconds."""
_RETRY_AFTER = 5.0
MAX_BODY = 128 << 20
"""Ten times the size of 10,000 rows with details."""
_HEADERS = {"User-Agent": f"ray-history/{__version__}"}


class HeadUnreachable(Exception):
    """The head cannot be contacted, or does not answer; the message gives the reason in one line."""


class Version(msgspec.Struct):
    """The answer of `/api/version`."""

    ray_version: str | None = None
    session_name: str | None = None


@dataclass(frozen=True, slots=True)
class HeadResponse:
    """The answer of a head. Reading the body raises HeadUnreachable when the connection breaks."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        body = bytearray()
        async for piece in self.pieces:
            body += piece
            if len(body) > MAX_BODY:
                raise HeadUnreachable(f"its head's answer is larger than {MAX_BODY >> 20} MiB")
        return bytes(body)


class HeadClient:
    """The client for all heads. It must be used and closed within one event loop."""

    def __init__(self, resolver: HeadResolver) -> None:
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._unreachable: dict[str, tuple[float, str]] = {}
        self.requests_total = 0
        self.failures_total = 0

    @asynccontextmanager
    async def request(
        self,
        running: RunningCluster,
        method: str,
        path: str,
        query: str = "",
        accept: str = "*/*",
        *,
        follow: bool = False,
    ) -> AsyncIterator[HeadResponse]:
        """The head's answer. With `follow` it has no time limit."""
        self._check_reachable(running)
        timeout = aiohttp.ClientTimeout(total=None if follow else _TIMEOUT, sock_connect=_CONNECT_TIMEOUT)
        self.requests_total += 1
        for may_retry in (True, False):
            endpoint = await self._endpoint(running)
            headers = {**endpoint.headers, **_HEADERS, "Accept": accept, "Accept-Encoding": "identity"}
            url = URL(endpoint.address + path + (f"?{query}" if query else ""), encoded=True)
            with self._unreachable_on_failure(running):
                response = await self._open_session().request(
                    method, url, headers=headers, timeout=timeout, **{**endpoint.transport, "allow_redirects": False}
                )
            try:
                if response.status in (401, 403) and may_retry and self._resolver.forget_token(running.cluster):
                    continue  # the token may have been renewed
                yield await self._answer(running, response)
                return
            finally:
                response.close()

    @asynccontextmanager
    async def open_websocket(
        self, running: RunningCluster, path: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        self._check_reachable(running)
        self.requests_total += 1
        endpoint = await self._endpoint(running)
        transport = {
            name: value for name, value in endpoint.transport.items() if name in ("ssl", "server_hostname", "proxy")
        }
        with self._unreachable_on_failure(running):
            socket = await self._open_session().ws_connect(
                URL(endpoint.address + path, encoded=True),
                headers={**endpoint.headers, **_HEADERS},
                max_msg_size=MAX_BODY,
                **transport,
            )
        try:
            yield socket
        finally:
            await socket.close()

    async def version(self, running: RunningCluster) -> Version:
        """The version of Ray and the session of the head."""
        async with self.request(running, "GET", "/api/version") as answer:
            try:
                return msgspec.json.decode(await answer.read(), type=Version)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise HeadUnreachable(
                    f"its head answered {answer.status} without a version: not a Ray Dashboard"
                ) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _endpoint(self, running: RunningCluster) -> HeadEndpoint:
        try:
            return await self._resolver.endpoint(running.kubernetes, running.cluster)
        except KubeError as error:
            raise HeadUnreachable(str(error)) from None

    async def _answer(self, running: RunningCluster, response: aiohttp.ClientResponse) -> HeadResponse:
        """The answer of the dashboard; refusals, redirects and errors of the API server raise HeadUnreachable."""
        status = response.status
        if status in (401, 403):
            raise HeadUnreachable(f"its head refused the request with {status}: the required token is missing or wrong")
        if 300 <= status < 400 and status != 304:
            raise HeadUnreachable(f"its head answered with a redirect ({status}), which is not followed")
        answer = HeadResponse(status, response.headers, self._pieces(running, response))
        if self._resolver.through_api_server and status >= 400 and answer.media_type == "application/json":
            body = await answer.read()
            if (message := _status_message(body)) is not None:
                raise self._failed(running, f"the API server cannot reach its head: {message}")
            return replace(answer, pieces=_one_piece(body))
        return answer

    async def _pieces(self, running: RunningCluster, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with self._unreachable_on_failure(running):
            async for piece in response.content.iter_any():
                yield piece

    @contextmanager
    def _unreachable_on_failure(self, running: RunningCluster) -> Iterator[None]:
        try:
            yield
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error).replace("\n", " ") or type(error).__name__
            raise self._failed(running, f"its head cannot be reached: {reason[:200]}") from error

    def _failed(self, running: RunningCluster, reason: str) -> HeadUnreachable:
        self.failures_total += 1
        self._unreachable[running.cluster.uid] = time.monotonic() + _RETRY_AFTER, reason
        return HeadUnreachable(reason)

    def _check_reachable(self, running: RunningCluster) -> None:
        until, reason = self._unreachable.get(running.cluster.uid, (0.0, ""))
        if time.monotonic() < until:
            raise HeadUnreachable(reason)
        self._unreachable.pop(running.cluster.uid, None)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), connector=aiohttp.TCPConnector(limit=0)
            )
        return self._session


async def _one_piece(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _status_message(body: bytes) -> str | None:
    """The message of a Kubernetes Status object; None if the body is something else."""
    try:
        status = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if isinstance(status, dict) and status.get("kind") == "Status" and status.get("apiVersion") == "v1":
        return str(status.get("message", ""))[:200]
    return None
