"""Requests to the heads of running clusters: GET, HEAD, and one web socket that is only read.

Invariants:
* only the Kubernetes API determines the address of a head, and redirects are not followed;
* of the viewer's request only the path, the query and the accepted types are forwarded: no cookie, no token;
* of the head's answer only a few headers are forwarded, and nothing that a browser would run: the owner of a cluster
  must not be able to run scripts in pages of others;
* if a head does not answer, HeadUnreachable is raised before anything is sent to the viewer. Until it answers again, a
  probe in the background alone contacts it, after pauses that double, so that no viewer waits for it a second time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from ray_history import __version__
from ray_history.decoding import DECODING_ERRORS
from ray_history.kube import HeadEndpoint, HeadResolver, KubeError

from .running import RunningCluster

logger = logging.getLogger(__name__)

_PATIENCE = 4.0
"""Seconds in which an answer has to begin, and in which it has to continue unless it is a log."""
_TIMEOUT = 60.0
"""Seconds for a whole answer, except for a log that is followed."""
_QUIET = 2.0
"""Seconds without an answer to a request to follow a log, after which the head is probed: Ray begins its answer with
the first line."""
_RETRY_AFTER, _RETRY_MAX = 5.0, 60.0
"""The first and the longest pause before a probe, in seconds."""
_STABLE_AFTER = 60.0
"""Seconds after an outage in which the next one begins with a longer pause."""
MAX_BODY = 128 << 20
"""Ten times the size of 10,000 rows with details."""
_HEADERS = {"User-Agent": f"ray-history/{__version__}"}


class HeadUnreachable(Exception):
    """The head cannot be contacted, or does not answer; the message gives the reason in one line."""


class HeadRefused(HeadUnreachable):
    """The head answers, but not to this server."""


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


@dataclass(eq=False)
class _Outage:
    """The time in which a head does not answer."""

    running: RunningCluster
    reason: str
    pause: float
    ended: float | None = None
    probing: asyncio.Task[None] | None = None

    def end(self) -> None:
        self.ended = time.monotonic()


class HeadClient:
    """The client for all heads. It must be used and closed within one event loop."""

    def __init__(self, resolver: HeadResolver) -> None:
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._outages: dict[str, _Outage] = {}
        """The last outage of each cluster, by UID."""
        self._versions: dict[str, Version | HeadUnreachable] = {}
        """The last answer to the question for the version, or why there was none."""
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
        is_probe: bool = False,
    ) -> AsyncIterator[HeadResponse]:
        """The head's answer. With `follow` it has no time limit once it has begun."""
        if not is_probe:
            self._check_reachable(running)
        self.requests_total += 1
        deadline, target = asyncio.get_running_loop().time() + _PATIENCE, path + (f"?{query}" if query else "")
        may_pause = follow or "/logs" in path
        timeout = aiohttp.ClientTimeout(
            total=None if follow else _TIMEOUT, sock_connect=_PATIENCE, sock_read=None if may_pause else _PATIENCE
        )
        for may_retry in (True, False):
            with self._unreachable_on_failure(running):
                async with asyncio.timeout_at(deadline):
                    endpoint = await self._endpoint(running)
                headers = {**endpoint.headers, **_HEADERS, "Accept": accept, "Accept-Encoding": "identity"}
                transport = {**endpoint.transport, "allow_redirects": False}
                url = URL(endpoint.address + target, encoded=True)
                request = self._send(method, url, headers=headers, timeout=timeout, **transport)
                if follow:
                    response = await self._first_line(running, request)
                else:
                    async with asyncio.timeout_at(deadline):
                        response = await request
            try:
                if response.status in (401, 403) and may_retry and self._resolver.forget_token(running.cluster):
                    continue  # the token may have been renewed
                answer = await self._answer(running, response)
                if isinstance(self._versions.get(running.cluster.uid), HeadUnreachable):
                    del self._versions[running.cluster.uid]
                yield answer
                return
            finally:
                response.close()

    async def _send(self, method: str, url: URL, **options: Any) -> aiohttp.ClientResponse:
        return await self._open_session().request(method, url, **options)

    async def _first_line(
        self, running: RunningCluster, request: Coroutine[Any, Any, aiohttp.ClientResponse]
    ) -> aiohttp.ClientResponse:
        """The answer of a followed log. As long as the log is empty, only a probe tells whether the head answers."""
        task = asyncio.create_task(request)
        try:
            await asyncio.wait({task}, timeout=_QUIET)
            while not task.done():
                async with asyncio.timeout(_PATIENCE - _QUIET):
                    await self.version(running, is_probe=True)
                await asyncio.wait({task}, timeout=_TIMEOUT)
            return task.result()
        finally:
            task.cancel()

    @asynccontextmanager
    async def open_websocket(
        self, running: RunningCluster, path: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        self._check_reachable(running)
        self.requests_total += 1
        with self._unreachable_on_failure(running):
            async with asyncio.timeout(_PATIENCE):
                endpoint = await self._endpoint(running)
                transport = {
                    name: value
                    for name, value in endpoint.transport.items()
                    if name in ("ssl", "server_hostname", "proxy")
                }
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

    async def version(self, running: RunningCluster, *, is_probe: bool = False) -> Version:
        """The version of Ray and the session of the head."""
        uid = running.cluster.uid
        try:
            async with self.request(running, "GET", "/api/version", is_probe=is_probe) as answer:
                try:
                    version = msgspec.json.decode(await answer.read(), type=Version)
                except DECODING_ERRORS:
                    reason = f"its head answered {answer.status} without a version: not a Ray Dashboard"
                    raise HeadRefused(reason) from None
        except HeadUnreachable as error:
            self._versions[uid] = error
            raise
        self._versions[uid] = version
        return version

    def last_version(self, running: RunningCluster) -> Version:
        """What the head reported last, without contacting it; HeadUnreachable if it did not answer then."""
        self._check_reachable(running)
        last = self._versions.get(running.cluster.uid, Version())
        if isinstance(last, HeadUnreachable):
            raise HeadUnreachable(str(last))
        return last

    def forget_all_but(self, uids: Collection[str]) -> None:
        """Forget the heads of clusters that are gone."""
        for uid in [uid for uid in self._outages if uid not in uids]:
            outage = self._outages.pop(uid)
            if outage.probing is not None:
                outage.probing.cancel()
        self._versions = {uid: last for uid, last in self._versions.items() if uid in uids}

    async def close(self) -> None:
        self.forget_all_but(())
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
            raise HeadRefused(f"its head refused the request with {status}: the required token is missing or wrong")
        if 300 <= status < 400 and status != 304:
            raise HeadRefused(f"its head answered with a redirect ({status}), which is not followed")
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
            reason = str(error).replace("\n", " ") or f"no answer within {_PATIENCE:g} s"
            raise self._failed(running, f"its head cannot be reached: {reason[:200]}") from error

    def _failed(self, running: RunningCluster, reason: str) -> HeadUnreachable:
        self.failures_total += 1
        uid, last = running.cluster.uid, self._outages.get(running.cluster.uid)
        if last is None or last.ended is not None:
            is_repeated = last is not None and time.monotonic() - (last.ended or 0.0) < _STABLE_AFTER
            pause = min(last.pause * 2, _RETRY_MAX) if last and is_repeated else _RETRY_AFTER
            outage = self._outages[uid] = _Outage(running, reason, pause)
            outage.probing = asyncio.create_task(self._probe(outage))
        return HeadUnreachable(reason)

    async def _probe(self, outage: _Outage) -> None:
        """Ask the head for its version until it answers."""
        while outage.ended is None:
            await asyncio.sleep(outage.pause)
            try:
                await self.version(outage.running, is_probe=True)
            except HeadRefused:
                outage.end()  # it answers: each request gets its own reason
            except HeadUnreachable:
                outage.pause = min(outage.pause * 2, _RETRY_MAX)
            except Exception:  # without a probe the head would never be contacted again
                logger.exception("%s: the probe of the head failed", outage.running.name)
                outage.pause = _RETRY_MAX
            else:
                outage.end()

    def _check_reachable(self, running: RunningCluster) -> None:
        outage = self._outages.get(running.cluster.uid)
        if outage is not None and outage.ended is None:
            outage.running = running  # the address may have changed
            raise HeadUnreachable(outage.reason)

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
    except DECODING_ERRORS:
        return None
    if isinstance(status, dict) and status.get("kind") == "Status" and status.get("apiVersion") == "v1":
        return str(status.get("message", ""))[:200]
    return None
