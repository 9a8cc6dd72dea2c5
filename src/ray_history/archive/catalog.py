"""The catalog: all sessions of an archive, newest first.

A session is found by its marker, an empty object with a key that names it. One recursive LIST per marker tree (two
trees, below the root and below KubeRay's sample root) finds all markers; no object is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from . import layout
from .errors import NotFound
from .layout import Cluster
from .names import is_session, session_time
from .stores import ObjectInfo, Store

_ROOTS = ("", layout.KUBERAY_SAMPLE_ROOT)


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one cluster."""

    cluster: Cluster
    name: str
    started: int
    """Unix seconds, from the name; 0 if the time there cannot be right."""
    root: str = ""
    """Above its trees: empty, or KubeRay's sample root."""
    legacy: bool = False
    """True if its marker is of generation A; otherwise its files show whether it is A', B or C."""
    marked: bool = True
    """False if it was found by its data alone: its collector died before it wrote the marker."""

    @property
    def started_iso(self) -> str:
        moment = session_time(self.name)
        return moment.iso if moment else ""

    @property
    def problem(self) -> str:
        """What is wrong with its name."""
        if self.started or not is_session(self.name):
            return ""
        return "The start time in the name of this session cannot be right."

    @property
    def generation(self) -> str:
        """As far as the marker shows; `SessionFiles.generations` is exact."""
        return "A" if self.legacy else "A'/B/C"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The result of a listing."""

    sessions: tuple[Session, ...]
    undecodable: int = 0
    """Objects in the marker trees that are not markers."""
    examples: tuple[str, ...] = field(default=(), repr=False)

    def find(self, namespace: str | None = None, cluster: str | None = None, session: str | None = None) -> Catalog:
        """The matching sessions. None matches every name, session `latest` the newest of the other matches."""
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
    """List all sessions; `unmarked` also finds those without a marker, with some more LISTs per cluster."""
    trees = [(root, tree) for root in _ROOTS for tree in (layout.METADATA, layout.METADIR)]
    found: dict[tuple[Cluster, str], Session] = {}
    undecodable: list[str] = []
    with ThreadPoolExecutor(len(trees), thread_name_prefix="catalog") as threads:
        listings = threads.map(lambda place: list(store.list(layout.join(*place))), trees)
        for (root, _), objects in zip(trees, listings, strict=True):
            undecodable += _read_markers(root, objects, found)
        if unmarked:
            for session in _unmarked(store, threads):
                found.setdefault((session.cluster, session.name), session)
    newest_first = sorted(found.values(), key=lambda s: (-s.started, s.cluster, s.name))
    return Catalog(tuple(newest_first), len(undecodable), tuple(undecodable[:5]))


def _read_markers(root: str, objects: Iterable[ObjectInfo], found: dict[tuple[Cluster, str], Session]) -> Iterator[str]:
    """Add the sessions of the markers to `found`; returns the keys that are not markers."""
    for entry in objects:
        session = _from_marker(root, entry.key)
        if session is not None:
            identity = (session.cluster, session.name)
            # A session may be marked twice, by a collector that was upgraded; the newer layout says more.
            if identity not in found or found[identity].legacy:
                found[identity] = session
        elif entry.size or not _is_directory_marker(root, entry.key):
            yield entry.key


def _from_marker(root: str, key: str) -> Session | None:
    marker = layout.parse_marker(key.removeprefix(root + "/") if root else key)
    if marker is None or not is_session(marker.session):
        return None
    return Session(marker.cluster, marker.session, _started(marker.session), root, marker.legacy)


def _started(session: str) -> int:
    moment = session_time(session)
    return moment.seconds if moment else 0


def _is_directory_marker(root: str, key: str) -> bool:
    return len(key.removeprefix(root + "/").split("/")) < (3 if f"{layout.METADIR}/" in key else 4)


def _unmarked(store: Store, threads: ThreadPoolExecutor) -> Iterator[Session]:
    """The sessions that have data below `cluster-history/<kind>/<namespace>/[<owner>/]<cluster>/`."""
    for root in _ROOTS:
        for depth, kind in ((3, "raycluster"), (4, "rayjob"), (4, "rayservice")):
            base = layout.join(root, layout.HISTORY, kind)
            for directory in _directories(store, base, depth, threads):
                session = _from_data(root, kind, directory.removeprefix(base + "/").split("/"))
                if session is not None:
                    yield session


def _directories(store: Store, base: str, depth: int, threads: ThreadPoolExecutor) -> list[str]:
    """The directories `depth` levels below `base`."""
    level = [base]
    for _ in range(depth):
        below = threads.map(lambda directory: store.list_level(directory).directories, level)
        level = [child for children in below for child in children]
    return level


def _from_data(root: str, kind: str, parts: list[str]) -> Session | None:
    if not is_session(parts[-1]):
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
    return Session(cluster, session, _started(session), root, marked=False)


def find_session(store: Store, namespace: str, cluster: str, session: str) -> Session:
    """One session by its names, `latest` included; NotFound names the newest session of the cluster, if any."""
    catalog = read_catalog(store)
    found = catalog.find(namespace, cluster, session).sessions
    if found:
        return found[0]
    of_cluster = catalog.find(namespace, cluster).sessions
    if of_cluster:
        raise NotFound(f"cluster {namespace}/{cluster} has no session {session!r}; its newest is {of_cluster[0].name}")
    raise NotFound(f"{store.url} has no cluster {namespace}/{cluster}; `ray-history sessions` lists the sessions")
