"""Asks the heads of running clusters: GET and HEAD, and one web socket to listen to.

Invariants:
* where a request goes is told by the Kubernetes API alone, and redirects are not followed;
* of what the viewer sent only the path, the query and what kind of answer they take goes on: no cookie, no token;
* of what the head answers only a few headers go on, and nothing that a browser would run: whoever owns a cluster must
  not be able to script the pages of others;
* a head that gives no answer raises HeadUnreachable before anything was sent to the viewer, and is left alone for some
  seconds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from yarl import URL

from ray_history import __version__
from ray_history.kube import HeadEndpoint, HeadResolver, KubeError

if TYPE_CHECKING:
    from .fleet import Running

_CONNECT = 5.0
_ANSWER = 60.0
"""Ray's own limit for a list is 30 seconds."""
_LEFT_ALONE = 5.0
LARGEST = 128 << 20
"""Ten times what 10,000 rows with details weigh."""


_OURS = {"User-Agent": f"ray-history/{__version__}"}


class HeadUnreachable(Exception):
    """The head cannot be asked, or gives no answer; the message says why in one line."""


class Version(msgspec.Struct):
    """What `/api/version` tells."""

    ray_version: str | None = None
    session_name: str | None = None


@dataclass(frozen=True, slots=True)
class HeadAnswer:
    """What a head answered; the body comes in pieces, and raises HeadUnreachable when it breaks off."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    @property
    def kind(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def whole(self) -> bytes:
        body = bytearray()
        async for piece in self.pieces:
            body += piece
            if len(body) > LARGEST:
                raise HeadUnreachable(f"its head's answer is larger than {LARGEST >> 20} MiB")
        return bytes(body)


class HeadClient:
    """The client for all heads. To be used and closed within one event loop."""

    def __init__(self, ways: HeadResolver) -> None:
        self._ways = ways
        self._session: aiohttp.ClientSession | None = None
        self._left_alone: dict[str, tuple[float, str]] = {}
        self.asked_total = 0
        self.silent_total = 0

    @asynccontextmanager
    async def ask(
        self, running: Running, method: str, path: str, query: str = "", accept: str = "*/*", *, follow: bool = False
    ) -> AsyncIterator[HeadAnswer]:
        """The head's answer; `follow` waits for its next piece as long as it takes."""
        self._check_left_alone(running)
        limit = None if follow else _ANSWER
        limits = aiohttp.ClientTimeout(total=limit, sock_connect=_CONNECT)
        self.asked_total += 1
        for again in (True, False):
            door = await self._door(running)
            headers = {**door.headers, **_OURS, "Accept": accept, "Accept-Encoding": "identity"}
            url = URL(door.address + path + (f"?{query}" if query else ""), encoded=True)
            with self._silence(running):
                response = await self._open_session().request(
                    method, url, headers=headers, timeout=limits, **{**door.transport, "allow_redirects": False}
                )
            try:
                if response.status in (401, 403) and again and self._ways.forget_token(running.cluster):
                    continue  # it may have been renewed
                yield await self._answer(running, response)
                return
            finally:
                response.close()

    @asynccontextmanager
    async def listen(self, running: Running, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A web socket of the head."""
        self._check_left_alone(running)
        self.asked_total += 1
        door = await self._door(running)
        transport = {
            name: value for name, value in door.transport.items() if name in ("ssl", "server_hostname", "proxy")
        }
        with self._silence(running):
            socket = await self._open_session().ws_connect(
                URL(door.address + path, encoded=True),
                headers={**door.headers, **_OURS},
                max_msg_size=LARGEST,
                **transport,
            )
        try:
            yield socket
        finally:
            await socket.close()

    async def version(self, running: Running) -> Version:
        """Which Ray, and in which session."""
        async with self.ask(running, "GET", "/api/version") as answer:
            try:
                return msgspec.json.decode(await answer.whole(), type=Version)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise HeadUnreachable(
                    f"its head answers {answer.status} and no version: it is no Ray Dashboard"
                ) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _door(self, running: Running) -> HeadEndpoint:
        try:
            return await self._ways.door(running.kubernetes, running.cluster)
        except KubeError as error:
            raise HeadUnreachable(str(error)) from None

    async def _answer(self, running: Running, response: aiohttp.ClientResponse) -> HeadAnswer:
        """The answer of the dashboard, told apart from that of something on the way to it."""
        status = response.status
        if status in (401, 403):
            raise HeadUnreachable(f"its head refuses us with {status}: the token that it asks for is missing or wrong")
        if 300 <= status < 400 and status != 304:
            raise HeadUnreachable(f"its head sends us elsewhere with {status}, which is not followed")
        answer = HeadAnswer(status, response.headers, self._pieces(running, response))
        if self._ways.through_api_server and status >= 400 and answer.kind == "application/json":
            body = await answer.whole()
            if (why := _status_message(body)) is not None:
                raise self._silent(running, f"the API server cannot reach its head: {why}")
            return replace(answer, pieces=_one(body))
        return answer

    async def _pieces(self, running: Running, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with self._silence(running):
            async for piece in response.content.iter_any():
                yield piece

    @contextmanager
    def _silence(self, running: Running) -> Iterator[None]:
        try:
            yield
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            told = str(error).replace("\n", " ") or type(error).__name__
            raise self._silent(running, f"its head cannot be reached: {told[:200]}") from error

    def _silent(self, running: Running, why: str) -> HeadUnreachable:
        self.silent_total += 1
        self._left_alone[running.cluster.uid] = time.monotonic() + _LEFT_ALONE, why
        return HeadUnreachable(why)

    def _check_left_alone(self, running: Running) -> None:
        until, why = self._left_alone.get(running.cluster.uid, (0.0, ""))
        if time.monotonic() < until:
            raise HeadUnreachable(why)
        self._left_alone.pop(running.cluster.uid, None)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), connector=aiohttp.TCPConnector(limit=0)
            )
        return self._session


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _status_message(body: bytes) -> str | None:
    """The message of a Status object of Kubernetes; None if it is none."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if isinstance(told, dict) and told.get("kind") == "Status" and told.get("apiVersion") == "v1":
        return str(told.get("message", ""))[:200]
    return None
