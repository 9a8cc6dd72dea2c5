"""KubeRay's routes to select a session: `/clusters` lists sessions, `/enter_cluster/…` sets cookies for one."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ray_history.archive.catalog import Session
from ray_history.server.auth import Viewer, viewer_of
from ray_history.server.http.responses import ApiError, note_value, plain_json
from ray_history.server.live import LiveGateway
from ray_history.server.sessions.addressing import SessionCatalog

KINDS = ("raycluster", "rayjob", "rayservice")
COOKIE_AGE = 600
_RENEWED = "session_renewed"
LISTED_DEFAULT = 100
"""Stored sessions in `/clusters` without `limit`, as in KubeRay."""

_SESSION = re.compile(r"session_[0-9]{4}-[0-9]{2}-[0-9]{2}_.*|latest|live")
_COOKIE_ERRORS = {
    "cluster_name": "Cluster Cookie not found",
    "session_name": "RayCluster Session Name Cookie not found",
    "cluster_namespace": "Cluster Namespace Cookie not found",
}
"""KubeRay's messages."""


@dataclass(frozen=True, slots=True)
class Addressing:
    """Handlers of KubeRay's routes, and the cookies that they set."""

    catalog: SessionCatalog
    live: LiveGateway
    secure: bool = False
    """Send cookies over TLS only."""
    base_path: str = ""
    """Path of the cookies: another server may use the same host."""

    async def clusters(self, request: Request) -> Response:
        viewer = viewer_of(request.scope)
        catalog = await self.catalog.read(viewer)
        limit = request.query_params.get("limit", "")
        stored = int(limit) if limit.isdecimal() and len(limit) < 8 else LISTED_DEFAULT
        suspended = {each.session for each in self.live.fleet.suspended}
        response = plain_json(
            [
                _row(session) | ({"state": "suspended"} if session in suspended else {})
                for session in await self.live.list_sessions(viewer, catalog, stored)
            ]
        )
        total = len(catalog.sessions)
        left_out = f"the newest {stored} of {total} stored sessions: ?limit={total} lists all" if total > stored else ""
        if note := "; ".join(filter(None, (self.live.missing(viewer), left_out))):
            response.headers["X-Ray-History-Note"] = note_value(note)
        return response

    async def enter(self, request: Request) -> Response:
        """`/enter_cluster/{namespace}/{cluster}/{session}`, or `/{namespace}/{kind}/{name}[/{session}]`."""
        parts = [part for part in request.path_params["rest"].split("/") if part]
        session = await self._session_of(viewer_of(request.scope), parts)
        response = plain_json(
            {
                "result": "success",
                "name": session.cluster.name,
                "namespace": session.cluster.namespace,
                "session": session.name,
            }
        )
        self.set_cookies(response, session)
        return response

    async def _session_of(self, viewer: Viewer, parts: list[str]) -> Session:
        match parts:
            case [namespace, cluster, session] if cluster.lower() not in KINDS or _SESSION.fullmatch(session):
                return await self._find(viewer, namespace, "raycluster", cluster, session)
            case [namespace, kind, name]:
                return await self._find(viewer, namespace, kind.lower(), name, "latest")
            case [namespace, kind, name, session] if kind.lower() in KINDS:
                return await self._find(viewer, namespace, kind.lower(), name, session)
        raise ApiError(
            400,
            "expected /enter_cluster/NAMESPACE/CLUSTER/SESSION or "
            f"/enter_cluster/NAMESPACE/{{{','.join(KINDS)}}}/NAME[/SESSION]",
        )

    async def _find(self, viewer: Viewer, namespace: str, kind: str, name: str, session: str) -> Session:
        if session == "live" or (session == "latest" and self.live.forwards):  # a live cluster first, as in KubeRay
            running = await self.live.enter(viewer, namespace, kind, name, must=session == "live")
            if running is not None:
                return running
        if kind == "raycluster":
            return await self.catalog.find(viewer, namespace, name, session)
        return await self.catalog.find_owned(viewer, namespace, kind, name, session)

    async def by_cookies(self, viewer: Viewer, cookies: Mapping[str, str]) -> Session:
        """The session that a browser entered."""
        for name, error in _COOKIE_ERRORS.items():
            if not cookies.get(name):
                raise ApiError(400, f"{error}; open /s/NAMESPACE/CLUSTER/SESSION/, or call /enter_cluster first")
        namespace, cluster = cookies["cluster_namespace"], cookies["cluster_name"]
        if cookies["session_name"] == "live":
            return await self.live.resume(viewer, namespace, cluster)
        return await self.catalog.find(viewer, namespace, cluster, cookies["session_name"])

    def is_renewal_due(self, cookies: Mapping[str, str]) -> bool:
        """Whether half of the time has passed for which cookies are valid, or nothing says so.

        An answer that is on its way while another tab enters another session must not lead that tab back.
        """
        renewed = cookies.get(_RENEWED, "")
        return not renewed.isdecimal() or not 0 <= time.time() - float(renewed) < COOKIE_AGE / 2

    def set_cookies(self, response: Response, session: Session) -> None:
        cluster = session.cluster
        for name, value in (
            ("cluster_name", cluster.name),
            ("cluster_namespace", cluster.namespace),
            ("session_name", session.name),
            ("owner_kind", cluster.owner_kind or ""),
            ("owner_name", cluster.owner_name or ""),
            (_RENEWED, str(int(time.time()))),
        ):
            response.set_cookie(
                name,
                value,
                max_age=COOKIE_AGE,
                path=self.base_path or "/",
                secure=self.secure,
                httponly=True,
                samesite="lax",
            )


def _row(session: Session) -> dict[str, Any]:
    cluster = session.cluster
    row: dict[str, Any] = {
        "name": cluster.name,
        "namespace": cluster.namespace,
        "sessionName": session.name,
        "createTime": session.started_iso or (_go_time(session.started) if session.started else ""),
        "createTimeStamp": session.started,
    }
    if cluster.owner_kind:
        row |= {"ownerKind": cluster.owner_kind, "ownerName": cluster.owner_name}
    return row | ({"problem": session.problem} if session.problem else {})


def _go_time(seconds: int) -> str:
    """A time as Go prints it, which KubeRay sends for live clusters."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
