"""The catalog: every session an archive holds, newest first.

A session is found by its marker, an empty object whose key is the information. One recursive LIST per marker tree
(two trees, below the root and below KubeRay's sample root) finds them all; nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from . import layout
from .errors import NotFound
from .layout import Cluster
from .names import session_time
from .stores import Store

_ROOTS = ("", layout.KUBERAY_SAMPLE_ROOT)


@dataclass(frozen=True, slots=True)
class Session:
    """One life of one cluster."""

    cluster: Cluster
    name: str
    started: int
    """Unix seconds, as the name tells."""
    root: str = ""
    """Where in the store its trees stand; empty, or KubeRay's sample root."""
    legacy: bool = False
    """True when its marker is of generation A; else it is A', B or C, which its files tell."""
    marked: bool = True
    """False when it was found by its data alone, its collector having died before it wrote the marker."""

    @property
    def started_iso(self) -> str:
        moment = session_time(self.name)
        return moment.iso if moment else ""

    @property
    def generation(self) -> str:
        """As far as the marker tells; `SessionFiles.generations` is exact."""
        return "A" if self.legacy else "A'/B/C"


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a listing found."""

    sessions: tuple[Session, ...]
    undecodable: int = 0
    """Objects in the marker trees whose key means nothing to us."""
    examples: tuple[str, ...] = field(default=(), repr=False)

    def find(self, namespace: str | None = None, cluster: str | None = None, session: str | None = None) -> Catalog:
        """The sessions that match; a name left out matches all, `latest` is the newest of what else matches."""
        found = tuple(
            entry
            for entry in self.sessions
            if (namespace is None or entry.cluster.namespace == namespace)
            and (cluster is None or entry.cluster.name == cluster)
            and (session in (None, "latest") or entry.name == session)
        )
        return Catalog(found[:1] if session == "latest" else found, self.undecodable, self.examples)

    def page(self, offset: int, limit: int | None) -> tuple[Session, ...]:
        return self.sessions[offset:] if limit is None else self.sessions[offset : offset + limit]


def read_catalog(store: Store, *, unmarked: bool = False) -> Catalog:
    """List all sessions; `unmarked` also looks for those that only left data, at some more LISTs per cluster."""
    trees = [(root, tree) for root in _ROOTS for tree in (layout.METADATA, layout.METADIR)]
    with ThreadPoolExecutor(len(trees), thread_name_prefix="catalog") as threads:
        listings = list(threads.map(lambda place: list(store.list(layout.join(*place))), trees))
        found: dict[tuple[Cluster, str], Session] = {}
        strange: list[str] = []
        for (root, _), objects in zip(trees, listings, strict=True):
            for entry in objects:
                session = _from_marker(root, entry.key)
                if session is None:
                    if entry.size or not _is_directory_marker(root, entry.key):
                        strange.append(entry.key)
                    continue
                _keep(found, session)
        if unmarked:
            for session in _unmarked(store, threads):
                found.setdefault((session.cluster, session.name), session)
    newest_first = sorted(found.values(), key=lambda s: (-s.started, s.cluster, s.name))
    return Catalog(tuple(newest_first), len(strange), tuple(strange[:5]))


def _from_marker(root: str, key: str) -> Session | None:
    marker = layout.parse_marker(key.removeprefix(root + "/") if root else key)
    if marker is None:
        return None
    moment = session_time(marker.session)
    if moment is None:
        return None
    return Session(marker.cluster, marker.session, moment.seconds, root, marker.legacy)


def _is_directory_marker(root: str, key: str) -> bool:
    return len(key.removeprefix(root + "/").split("/")) < (3 if f"{layout.METADIR}/" in key else 4)


def _keep(found: dict[tuple[Cluster, str], Session], session: Session) -> None:
    """A session marked twice, across an upgrade of its collector, is one session; the newer layout tells more."""
    identity = (session.cluster, session.name)
    if identity not in found or found[identity].legacy:
        found[identity] = session


def _unmarked(store: Store, threads: ThreadPoolExecutor) -> Iterator[Session]:
    """Walk `cluster-history/<kind>/<namespace>/[<owner>/]<cluster>/<session>` level by level."""
    for root in _ROOTS:
        for depth, kind in ((2, "raycluster"), (3, "rayjob"), (3, "rayservice")):
            base = layout.join(root, layout.HISTORY, kind)
            level = [base]
            for _ in range(depth + 1):
                below = threads.map(lambda directory: store.list_level(directory).directories, level)
                level = [child for children in below for child in children]
            for directory in level:
                session = _from_data(root, kind, directory.removeprefix(base + "/").split("/"))
                if session is not None:
                    yield session


def _from_data(root: str, kind: str, parts: list[str]) -> Session | None:
    moment = session_time(parts[-1])
    if moment is None:
        return None
    try:
        match parts:
            case [namespace, name, session]:
                cluster = Cluster(namespace, name)
            case [namespace, owner, name, session]:
                cluster = Cluster(namespace, name, kind, owner)
            case _:
                return None
    except ValueError:
        return None
    return Session(cluster, session, moment.seconds, root, marked=False)


def find_session(store: Store, namespace: str, cluster: str, session: str) -> Session:
    """One session by its names, `latest` included; NotFound says what there is instead."""
    catalog = read_catalog(store)
    found = catalog.find(namespace, cluster, session).sessions
    if found:
        return found[0]
    of_cluster = catalog.find(namespace, cluster).sessions
    if of_cluster:
        raise NotFound(f"cluster {namespace}/{cluster} has no session {session!r}; its newest is {of_cluster[0].name}")
    raise NotFound(f"{store.url} holds no cluster {namespace}/{cluster}; `ray-history sessions` lists what it holds")
