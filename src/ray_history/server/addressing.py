"""Which session a request is about: by its path, or by the cookies of a browser that entered one.

The cookie way is KubeRay's: `/clusters` lists, `/enter_cluster/…` sets five cookies for ten minutes, every later
request renews them. Its JSON and messages are kept to the letter; both ways lead to the same routes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ray_history.archive.catalog import Catalog, Session, read_catalog
from ray_history.archive.stores import Store

from .answers import Refused, plain_json

KINDS = ("raycluster", "rayjob", "rayservice")
COOKIE_AGE = 600
MOST_LISTED = 100
"""Dead sessions in `/clusters` unless `limit` says otherwise, as in KubeRay."""

_SESSION = re.compile(r"session_[0-9]{4}-[0-9]{2}-[0-9]{2}_.*|latest|live")


class SessionCatalog:
    """The sessions of the archive, listed anew when the list is some seconds old."""

    def __init__(self, store: Store, fresh_for: float = 5.0) -> None:
        self._store, self._fresh_for = store, fresh_for
        self._lock = threading.Lock()
        self._listed = float("-inf")
        self._catalog = Catalog(())

    def read(self) -> Catalog:
        return self.everything()

    def everything(self) -> Catalog:
        """For the server's own work, whoever looks."""
        with self._lock:
            if time.monotonic() - self._listed > self._fresh_for:
                self._catalog = read_catalog(self._store)
                self._listed = time.monotonic()
            return self._catalog

    def known(self) -> Catalog:
        """What the last listing found, without another."""
        return self._catalog

    def find(self, namespace: str, cluster: str, session: str) -> Session:
        return _first(self.read().find(namespace, cluster, session), f"{namespace}/{cluster}/{session}")

    def find_owned(self, namespace: str, kind: str, name: str, session: str) -> Session:
        """By the owner of the cluster: a RayJob or RayService."""
        catalog = self.read().find(namespace, None, None)
        owned = tuple(
            entry
            for entry in catalog.sessions
            if (entry.cluster.owner_kind or "").lower() == kind and entry.cluster.owner_name == name
        )
        return _first(Catalog(owned).find(None, None, session), f"{namespace}/{kind}/{name}/{session}")


def _first(found: Catalog, what: str) -> Session:
    if not found.sessions:
        raise Refused(404, f"there is no session {what}; /clusters lists what there is")
    return found.sessions[0]


@dataclass(frozen=True, slots=True)
class Addressing:
    """KubeRay's routes for choosing a session."""

    catalog: SessionCatalog
    secure: bool = False
    """Cookies only over TLS."""

    async def clusters(self, request: Request) -> Response:
        catalog = await run_in_threadpool(self.catalog.read)
        limit = request.query_params.get("limit", "")
        most = int(limit) if limit.isdecimal() and len(limit) < 8 else MOST_LISTED
        return plain_json([_row(session) for session in catalog.sessions[:most]])

    async def enter(self, request: Request) -> Response:
        """`/enter_cluster/{namespace}/{cluster}/{session}`, or `/{namespace}/{kind}/{name}[/{session}]`."""
        parts = [part for part in request.path_params["rest"].split("/") if part]
        session = await run_in_threadpool(self._entered, parts)
        response = plain_json(
            {
                "result": "success",
                "name": session.cluster.name,
                "namespace": session.cluster.namespace,
                "session": session.name,
            }
        )
        self.remember(response, session)
        return response

    def _entered(self, parts: list[str]) -> Session:
        match parts:
            case [namespace, cluster, session] if cluster.lower() not in KINDS or _SESSION.fullmatch(session):
                return self._not_live(self.catalog.find, namespace, cluster, session)
            case [namespace, kind, name]:
                return self._of_kind(namespace, kind.lower(), name, "latest")
            case [namespace, kind, name, session] if kind.lower() in KINDS:
                return self._of_kind(namespace, kind.lower(), name, session)
        raise Refused(
            400,
            "enter a session by /enter_cluster/NAMESPACE/CLUSTER/SESSION or "
            f"/enter_cluster/NAMESPACE/{{{','.join(KINDS)}}}/NAME[/SESSION]",
        )

    def _of_kind(self, namespace: str, kind: str, name: str, session: str) -> Session:
        if kind == "raycluster":
            return self._not_live(self.catalog.find, namespace, name, session)
        return self._not_live(self.catalog.find_owned, namespace, kind, name, session)

    def _not_live(self, find: Any, *names: str) -> Session:
        if names[-1] == "live":
            raise Refused(404, f"no live cluster {'/'.join(names[:-1])} is known; `latest` opens its newest session")
        session: Session = find(*names)
        return session

    def by_cookies(self, cookies: Mapping[str, str]) -> Session:
        """The session that a browser entered."""
        for name, missing in (
            ("cluster_name", "Cluster Cookie not found"),
            ("session_name", "RayCluster Session Name Cookie not found"),
            ("cluster_namespace", "Cluster Namespace Cookie not found"),
        ):
            if not cookies.get(name):
                raise Refused(
                    400, f"{missing}; open /s/NAMESPACE/CLUSTER/SESSION/ or enter one by /enter_cluster first"
                )
        return self._not_live(
            self.catalog.find, cookies["cluster_namespace"], cookies["cluster_name"], cookies["session_name"]
        )

    def remember(self, response: Response, session: Session) -> None:
        cluster = session.cluster
        for name, value in (
            ("cluster_name", cluster.name),
            ("cluster_namespace", cluster.namespace),
            ("session_name", session.name),
            ("owner_kind", cluster.owner_kind or ""),
            ("owner_name", cluster.owner_name or ""),
        ):
            response.set_cookie(
                name, value, max_age=COOKIE_AGE, path="/", secure=self.secure, httponly=True, samesite="lax"
            )


def _row(session: Session) -> dict[str, Any]:
    cluster = session.cluster
    row: dict[str, Any] = {
        "name": cluster.name,
        "namespace": cluster.namespace,
        "sessionName": session.name,
        "createTime": session.started_iso,
        "createTimeStamp": session.started,
    }
    if cluster.owner_kind:
        row |= {"ownerKind": cluster.owner_kind, "ownerName": cluster.owner_name}
    return row
