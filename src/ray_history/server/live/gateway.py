"""The session name `live`: requests go to the head while it answers, and otherwise to the archive.

Answers from the archive have a header `X-Ray-History-Note`, and `_status` contains the same note. A cluster that has
ended stays available under `live` for an hour, so that viewers of its last minutes see its end instead of an error.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_history.archive.catalog import Catalog, Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.layout import Cluster
from ray_history.server.auth import EVERYBODY, Hidden, Viewer, viewer_of
from ray_history.server.http.responses import ApiError, note_value
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.manager import Sessions

from .fleet import Fleet
from .heads import HeadUnreachable
from .running import LIVE, RunningCluster

NOTE = b"x-ray-history-note"
_AVAILABLE_FOR = 3600.0
_PREPARE_AFTER = 1.0
"""Seconds for which a head is awaited alone."""
_CLOCK_SKEW = 60.0
"""Seconds by which the clocks of Kubernetes and of a head may differ."""


class LiveGateway:
    """Passes requests for `live` to the head or to the archive."""

    def __init__(
        self, fleet: Fleet, catalog: SessionCatalog, sessions: Sessions, heads: Router | None, archived: ASGIApp
    ) -> None:
        self.fleet = fleet
        self._catalog, self._sessions, self._heads, self._archived = catalog, sessions, heads, archived

    @property
    def forwards(self) -> bool:
        return self._heads is not None

    async def __call__(self, namespace: str, cluster: str, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = viewer_of(scope)
        if not await viewer.can_see(namespace, cluster):
            raise Hidden(self._not_running(viewer, namespace, cluster))
        running = self.fleet.find(namespace, cluster)
        reason = "requests are not forwarded to heads (--no-live-proxy)"
        if running is not None and running.cluster.is_suspended:
            reason = "the cluster is suspended and has no head"
        elif running is not None and self._heads is not None:
            answer = _WatchedSend(send)
            preparation = asyncio.create_task(self._prepare(viewer, running, answer))
            try:
                await self._heads({**scope, "ray_history.running": running}, receive, answer)
                return
            except HeadUnreachable as error:
                if answer.has_started:
                    raise  # too late for another answer: cutting the connection shows the client that it is incomplete
                reason = str(error)
            finally:
                preparation.cancel()
        session, note = await self._fallback(viewer, namespace, cluster, running, reason)
        inner = {**scope, "ray_history.session": session, "ray_history.note": note}
        await self._archived(inner, receive, _with_note(send, note))

    async def enter(self, viewer: Viewer, namespace: str, kind: str, name: str, *, must: bool) -> Session | None:
        """The live session of a cluster, or of a RayJob or RayService, for a browser that enters it.

        With `must` a session that runs according to its ledgers is enough, and a 404 is raised if there is none.
        """
        by_name = kind == "raycluster"
        if must and by_name and not await viewer.can_see(namespace, name):
            raise Hidden(self._not_running(viewer, namespace, name))
        running = self.fleet.find(namespace, name) if by_name else self.fleet.find_owned(namespace, kind, name)
        is_open = running is not None and (must or not running.cluster.is_suspended)
        if running is not None and is_open and await viewer.can_see(namespace, running.cluster.name):
            return running.session
        if not must:
            return None
        newest = await self._newest(viewer, namespace, name) if by_name else None
        if newest is None or not (await self._last_known(newest)).is_live:
            raise ApiError(404, self._not_running(viewer, namespace, name))
        return Session(newest.cluster, LIVE, newest.started)

    async def resume(self, viewer: Viewer, namespace: str, cluster: str) -> Session:
        """The live session that a browser entered before and that may have ended since."""
        if not await viewer.can_see(namespace, cluster):
            raise Hidden(self._not_running(viewer, namespace, cluster))
        running = self.fleet.find(namespace, cluster)
        if running is not None:
            return running.session
        newest = await self._newest(viewer, namespace, cluster)
        if newest is None:
            raise ApiError(404, self._not_running(viewer, namespace, cluster))
        return Session(newest.cluster, LIVE, newest.started)

    async def list_sessions(self, viewer: Viewer, stored: Catalog, limit: int) -> list[Session]:
        """Running clusters first, each followed by its older sessions; then all others, newest first.

        The stored part of a current session is omitted: `live` stands for it. `limit` applies to stored sessions.
        Suspended clusters stand among the running ones.
        """
        running = {each.session.cluster: each for each in (*self.fleet.running, *self.fleet.suspended)}
        visible = await viewer.visible(running)
        current = {
            _names(c): None if r.cluster.is_suspended else self._current(r, stored)
            for c, r in running.items()
            if c in visible
        }
        older: dict[tuple[str, str], list[Session]] = {names: [] for names in current}
        others: list[Session] = []
        for session in [s for s in stored.sessions if current.get(_names(s.cluster)) != s.name][:limit]:
            older.get(_names(session.cluster), others).append(session)
        live = (row for c, r in running.items() if c in visible for row in (r.session, *older[_names(c)]))
        return [*live, *others]

    def _current(self, running: RunningCluster, stored: Catalog) -> str | None:
        """Its session: until the head has reported it, the newest one since the cluster was created."""
        cluster = running.session.cluster
        return self.fleet.session_of(running) or next(
            (
                session.name
                for session in stored.sessions
                if _names(session.cluster) == _names(cluster)
                and session.started >= running.cluster.created - _CLOCK_SKEW
            ),
            None,
        )

    async def _prepare(self, viewer: Viewer, running: RunningCluster, answer: _WatchedSend) -> None:
        """Open what is stored while a slow head is awaited, so that these waits do not add up."""
        await asyncio.sleep(_PREPARE_AFTER)
        if answer.has_started:
            return
        with suppress(ApiError, ArchiveError):  # reported if the archive has to answer
            session, _ = await self._stored_part(viewer, running, "")
            self._sessions.release(await self._sessions.acquire(session))

    async def _fallback(
        self, viewer: Viewer, namespace: str, cluster: str, running: RunningCluster | None, reason: str
    ) -> tuple[Session, str]:
        """The stored session to show instead of the head, and the note about it."""
        if running is not None:
            return await self._stored_part(viewer, running, reason)
        found = await self._newest(viewer, namespace, cluster)
        if found is None:
            raise ApiError(404, self._not_running(viewer, namespace, cluster))
        known = await self._last_known(found)
        if known.is_live and not self.fleet.has_kubernetes:
            return found, f"shown from the archive, session {found.name}: its collectors still send heartbeats"
        if time.time() - known.last > _AVAILABLE_FOR or not (
            known.is_live or known.is_over or self.fleet.has_kubernetes
        ):
            raise ApiError(404, self._not_running(viewer, namespace, cluster))
        moment = f"{datetime.fromtimestamp(known.last, UTC):%H:%M:%S} UTC"
        return found, f"shown from the archive, session {found.name}: no longer running, last seen at {moment}"

    async def _stored_part(self, viewer: Viewer, running: RunningCluster, reason: str) -> tuple[Session, str]:
        """The stored part of the session of a running cluster, otherwise the newest one of its name."""
        namespace, cluster = running.cluster.namespace, running.cluster.name
        current = self.fleet.session_of(running)
        found = await self._newest(viewer, namespace, cluster, current) if current else None
        found = found or await self._newest(viewer, namespace, cluster)
        if found is None:
            state = "suspended" if running.cluster.is_suspended else f"running, but {reason}"
            raise ApiError(503, f"{namespace}/{cluster} is {state}; nothing of it is archived yet")
        older = " of an earlier cluster of that name" if found.started < running.cluster.created - _CLOCK_SKEW else ""
        return found, f"shown from the archive, session {found.name}{older}: {reason}"

    def _not_running(self, viewer: Viewer, namespace: str, cluster: str) -> str:
        """The same for a cluster that does not exist and for one that the viewer may not see."""
        text = f"no running cluster {namespace}/{cluster}; `latest` opens its newest session"
        missing = self.missing(viewer)
        return f"{text} ({missing})" if missing else text

    def missing(self, viewer: Viewer) -> str:
        """Why running clusters may be unknown; empty if there is no reason."""
        reasons = "; ".join(self.fleet.missing)
        # They name namespaces and API servers, which only viewers of everything may see.
        return reasons if viewer is EVERYBODY or not reasons else "some running clusters are unknown; see the log"

    async def _newest(self, viewer: Viewer, namespace: str, cluster: str, name: str = "latest") -> Session | None:
        try:
            return await self._catalog.find(viewer, namespace, cluster, name)
        except ApiError as refused:
            if refused.status != 404:
                raise
            return None

    async def _last_known(self, session: Session) -> _LastKnown:
        opened = await self._sessions.acquire(session)
        try:
            is_live = opened.state == "live"
            last = opened.ended_ns or opened.facts.last_ns or session.started * 1_000_000_000
            return _LastKnown(not is_live, is_live and bool(opened.signs.alive_until), last / 1e9)
        finally:
            self._sessions.release(opened)


@dataclass(frozen=True, slots=True)
class _LastKnown:
    """The state of a session according to the archive."""

    is_over: bool
    is_live: bool
    """Its ledgers say so. Without ledgers, as with KubeRay's collectors, neither is known to be true."""
    last: float
    """Unix seconds of the last sign of life."""


def _names(cluster: Cluster) -> tuple[str, str]:
    return cluster.namespace, cluster.name


class _WatchedSend:
    """Notes whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_started = send, False

    async def __call__(self, message: Message) -> None:
        self.has_started = True
        await self._send(message)


def _with_note(send: Send, note: str) -> Send:
    async def out(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            headers = message.get("headers", [])
            notes = [*(value for name, value in headers if name == NOTE), note_value(note).encode()]
            others = [header for header in headers if header[0] != NOTE]
            message["headers"] = [*others, (NOTE, b"; ".join(notes))]
        await send(message)

    return out
