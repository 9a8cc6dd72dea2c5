"""What `live` shows: the head while it answers, and the archive when it does not, which is said.

What is shown from the archive carries the header `X-Ray-History-Note`, and `_status` the same text. A cluster that is
gone stays visible under `live` for an hour: who looks at it when it ends sees its end, not an error.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_history.archive.catalog import Catalog, Session
from ray_history.archive.layout import Cluster
from ray_history.server.auth import Hidden, Viewer, viewer_of
from ray_history.server.http.responses import ApiError, note_value
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.manager import Sessions

from .fleet import LIVE, Fleet, Running
from .heads import HeadUnreachable

NOTE = b"x-ray-history-note"
_STAYS = 3600.0


class LiveGateway:
    """Leads requests for `live` to the head or to the archive."""

    def __init__(
        self, fleet: Fleet, catalog: SessionCatalog, sessions: Sessions, heads: Router | None, archived: ASGIApp
    ) -> None:
        self.fleet = fleet
        self._catalog, self._sessions, self._heads, self._archived = catalog, sessions, heads, archived

    @property
    def asks_heads(self) -> bool:
        return self._heads is not None

    async def __call__(self, namespace: str, cluster: str, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = viewer_of(scope)
        if not await viewer.can_see(namespace, cluster):
            raise Hidden(_not_running(namespace, cluster))
        running = self.fleet.find(namespace, cluster)
        why = "heads are not asked (--no-live-proxy)"
        if running is not None and self._heads is not None:
            sent = _Sent(send)
            try:
                await self._heads({**scope, "ray_history.running": running}, receive, sent)
                return
            except HeadUnreachable as silent:
                if sent.started:
                    raise  # too late for another answer: the connection is cut, which the client sees
                why = str(silent)
        session, note = await self._stored(viewer, namespace, cluster, running, why)
        inner = {**scope, "ray_history.session": session, "ray_history.note": note}
        await self._archived(inner, receive, _noting(send, note))

    async def entered(self, viewer: Viewer, namespace: str, kind: str, name: str, *, must: bool) -> Session | None:
        """The live session of who is named, for who enters it: it runs or, if there `must` be one, seems to."""
        by_name = kind == "raycluster"
        if must and by_name and not await viewer.can_see(namespace, name):
            raise Hidden(_not_running(namespace, name))
        running = self.fleet.find(namespace, name) if by_name else self.fleet.find_owned(namespace, kind, name)
        if running is not None and await viewer.can_see(namespace, running.cluster.name):
            return running.session
        if not must:
            return None
        newest = await self._newest(viewer, namespace, name) if by_name else None
        if newest is None or not (await self._life(newest)).goes_on:
            raise ApiError(404, _not_running(namespace, name))
        return Session(newest.cluster, LIVE, newest.started)

    async def resume(self, viewer: Viewer, namespace: str, cluster: str) -> Session:
        """The live session that a browser entered before; it may have ended since."""
        if not await viewer.can_see(namespace, cluster):
            raise Hidden(_not_running(namespace, cluster))
        running = self.fleet.find(namespace, cluster)
        if running is not None:
            return running.session
        newest = await self._newest(viewer, namespace, cluster)
        if newest is None:
            raise ApiError(404, _not_running(namespace, cluster))
        return Session(newest.cluster, LIVE, newest.started)

    async def listed(self, viewer: Viewer, stored: Catalog, most: int) -> list[Session]:
        """Running clusters first, each once with its older sessions beneath; then all others, newest first.

        What is stored of the session that a cluster is in is left out: `live` stands for it.
        """
        running = {each.session.cluster: each for each in self.fleet.running}
        seen = await viewer.visible(running)
        current = {_names(c): self.fleet.session_of(r) for c, r in running.items() if c in seen}
        beneath: dict[tuple[str, str], list[Session]] = {names: [] for names in current}
        others: list[Session] = []
        for session in [s for s in stored.sessions if current.get(_names(s.cluster)) != s.name][:most]:
            beneath.get(_names(session.cluster), others).append(session)
        live = (row for c, r in running.items() if c in seen for row in (r.session, *beneath[_names(c)]))
        return [*live, *others]

    async def _stored(
        self, viewer: Viewer, namespace: str, cluster: str, running: Running | None, why: str
    ) -> tuple[Session, str]:
        """The session to show instead, and what to say about it."""
        if running is not None:
            current = self.fleet.session_of(running)
            found = await self._newest(viewer, namespace, cluster, current) if current else None
            found = found or await self._newest(viewer, namespace, cluster)
            if found is None:
                raise ApiError(503, f"{namespace}/{cluster} runs, but {why}; and nothing of it is archived yet")
            older = " of an earlier cluster of that name" if found.started < running.cluster.created - 60 else ""
            return found, f"shown from the archive, session {found.name}{older}: {why}"
        found = await self._newest(viewer, namespace, cluster)
        if found is None:
            raise ApiError(404, _not_running(namespace, cluster))
        life = await self._life(found)
        if life.goes_on and not self.fleet.contacts_heads:
            return found, f"shown from the archive, session {found.name}: its collectors say that it goes on"
        if time.time() - life.last > _STAYS or not (life.goes_on or life.over or self.fleet.contacts_heads):
            raise ApiError(404, _not_running(namespace, cluster))
        moment = f"{datetime.fromtimestamp(life.last, UTC):%H:%M:%S} UTC"
        return found, f"shown from the archive, session {found.name}: it runs no more, last seen at {moment}"

    async def _newest(self, viewer: Viewer, namespace: str, cluster: str, name: str = "latest") -> Session | None:
        try:
            return await self._catalog.find(viewer, namespace, cluster, name)
        except ApiError as refused:
            if refused.status != 404:
                raise
            return None

    async def _life(self, session: Session) -> _Life:
        opened = await self._sessions.acquire(session)
        try:
            is_live = opened.state == "live"
            last = opened.ended_ns or opened.facts.get("last_ns") or session.started * 1_000_000_000
            return _Life(not is_live, is_live and bool(opened.signs.alive_until), last / 1e9)
        finally:
            self._sessions.release(opened)


@dataclass(frozen=True, slots=True)
class _Life:
    """What the archive tells of a session's life."""

    over: bool
    goes_on: bool
    """Its collectors say so; those of KubeRay say nothing."""
    last: float
    """Unix seconds of the last sign of life."""


def _names(cluster: Cluster) -> tuple[str, str]:
    return cluster.namespace, cluster.name


def _not_running(namespace: str, cluster: str) -> str:
    return f"no live cluster {namespace}/{cluster} is known; `latest` opens its newest session"


class _Sent:
    """Knows whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send, self.started = send, False

    async def __call__(self, message: Message) -> None:
        self.started = True
        await self._send(message)


def _noting(send: Send, note: str) -> Callable[[Message], Awaitable[None]]:
    async def out(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            message["headers"] = [*message.get("headers", []), (NOTE, note_value(note).encode())]
        await send(message)

    return out
