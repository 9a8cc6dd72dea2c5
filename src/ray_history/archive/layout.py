"""Builds and parses every object key of the archive.

KubeRay's collector changed its layout three times; a bucket may hold all generations. `R` is the root,
`C` the cluster, `N` its namespace, `S` the session, `ID` a node id, `J` a job id, `H` an hour `YYYY-MM-DD-HH`:

    gen  marker                              data
    A    R/metadir/C_N/S                     R/C_N/S/{logs/ID/…, node_events/ID-H, job_events/J/ID-H}
    A'   R/cluster-metadata/<kind>/<meta>/S  as A, event files from some day on with .gz
    B    as A'                               R/cluster-history/<path>/S/ID/{logs/…, node_events/ID-H.gz, job_events/J/…}
    C    as A'                               as B, event files named ID-H-<unixNanos>.jsonl[.gz]

<path> is `raycluster/N/C`, `rayjob/N/<owner>/C` or `rayservice/N/<owner>/C`; <meta> is `N_C` or `N_<owner>_C`.
`fetched_endpoints/<key>` is directly below the session in all of them. Only generation C is written; objects that
KubeRay does not have are below top-level prefixes of their own, which the Go server never reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from .names import Component, InvalidName, hex_id

METADATA = "cluster-metadata"
METADIR = "metadir"
HISTORY = "cluster-history"
LEDGER = "history-ledger"
TAILS = "history-tails"
JOURNALS = "history-journal"
METRICS = "history-metrics"
METRIC_DASHBOARDS = "dashboards.json.zst"
INDEX = "history-index/v1"
SUMMARIES = "history-index/summaries-v1"
QUARANTINE = "history-quarantine"

KUBERAY_SAMPLE_ROOT = "log"
"""Root directory in KubeRay's 1.6 samples; searched too, so that the URL of the bucket finds those sessions."""

_OWNED_KINDS = ("rayjob", "rayservice")
_EVENT_FILE = re.compile(
    r"(?P<node>.+)-(?P<hour>\d{4}-\d\d-\d\d-\d\d)(?:-(?P<created>\d+))?(?:\.jsonl)?(?:\.gz)?", re.ASCII
)
_METRIC_BLOCK = re.compile(r"(?P<node>[^/]+)/(?P<endpoint>[a-z]{1,32})/(?P<first>\d{13})\.rhm", re.ASCII)
_JOURNAL = re.compile(r"(?P<node>[^/]+)/(?P<created>\d{1,19})\.jsonl\.gz", re.ASCII)


class Generation(StrEnum):
    """KubeRay's layouts."""

    A = "A"
    A_PRIME = "A'"
    B = "B"
    C = "C"


@dataclass(frozen=True, slots=True, order=True)
class Cluster:
    """A cluster in a namespace, and the RayJob or RayService that created it, if any."""

    namespace: str
    name: str
    owner_kind: str = ""
    owner_name: str = ""

    def __post_init__(self) -> None:
        kind, owner = self.owner_kind.strip().lower(), self.owner_name.strip()
        if kind not in _OWNED_KINDS or not owner:  # an owner kind without a name is ignored, as upstream
            kind, owner = "", ""
        object.__setattr__(self, "owner_kind", kind)
        object.__setattr__(self, "owner_name", str(Component(owner)) if owner else "")
        object.__setattr__(self, "namespace", str(Component(self.namespace)))
        object.__setattr__(self, "name", str(Component(self.name)))

    @property
    def path(self) -> str:
        """Path of the cluster in a tree: `raycluster/N/C` or `<kind>/N/<owner>/C`."""
        return join(self.owner_kind or "raycluster", self.namespace, self.owner_name, self.name)

    @property
    def legacy_path(self) -> str:
        """Path in generation A: `C_N`, without owner."""
        return f"{self.name}_{self.namespace}"


@dataclass(frozen=True, slots=True)
class Marker:
    """A decoded marker."""

    cluster: Cluster
    session: str
    legacy: bool
    """True in generation A, whose markers do not name an owner."""


@dataclass(frozen=True, slots=True)
class EventFileKey:
    """The parts of an event file's key."""

    node: str
    job: str | None
    """Hex job id; None for node events."""
    hour: str
    created_ns: int | None
    generation: Generation


@dataclass(frozen=True, slots=True)
class LogKey:
    """The parts of a log file's key."""

    node: str
    name: str
    """Path below `logs/`."""


@dataclass(frozen=True, slots=True)
class MetricBlockKey:
    """The parts of the key of a block of metrics."""

    node: str
    endpoint: str
    """What the endpoint of the node belongs to: `agent`, `autoscaler` or `dashboard`."""
    first_ms: int


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """The key of a polled snapshot."""

    name: str


DataKey = EventFileKey | LogKey | EndpointKey


def join(*parts: str) -> str:
    """Parts joined by single slashes, without empty parts and without slashes at the ends."""
    return "/".join(piece for part in parts for piece in part.split("/") if piece)


# Markers -------------------------------------------------------------------------------------------------------------


def marker_key(root: str, cluster: Cluster, session: str) -> str:
    meta = "_".join(part for part in (cluster.namespace, cluster.owner_name, cluster.name) if part)
    return join(root, METADATA, cluster.owner_kind or "raycluster", meta, Component(session))


def parse_marker(key: str) -> Marker | None:
    """Decode a marker's key relative to the root; None if it is not a marker."""
    try:
        match key.split("/"):
            case [tree, meta, session] if tree == METADIR:
                name, namespace, *_ = meta.split("_")
                return Marker(Cluster(namespace, name), str(Component(session)), legacy=True)
            case [tree, kind, meta, session] if tree == METADATA:
                return _parse_metadata(kind.lower(), meta.split("_"), str(Component(session)))
    except (InvalidName, ValueError):
        return None
    return None


def _parse_metadata(kind: str, parts: list[str], session: str) -> Marker | None:
    if kind == "raycluster" and len(parts) == 2:
        return Marker(Cluster(parts[0], parts[1]), session, legacy=False)
    if kind in _OWNED_KINDS and len(parts) == 3:
        return Marker(Cluster(parts[0], parts[2], kind, parts[1]), session, legacy=False)
    return None


# A session's data ----------------------------------------------------------------------------------------------------


def session_prefix(root: str, cluster: Cluster, session: str) -> str:
    """Prefix of a session's data in generations B and C, and of everything that is written."""
    return join(root, HISTORY, cluster.path, Component(session))


def legacy_session_prefix(root: str, cluster: Cluster, session: str) -> str:
    """Prefix of a session's data in generations A and A'."""
    return join(root, cluster.legacy_path, Component(session))


def event_file_key(prefix: str, node: str, job: str | None, created_ns: int, *, compressed: bool = True) -> str:
    """The key in generation C; events with an unsafe job id go to the node events, as upstream."""
    node = Component(node)
    category = "node_events"
    if job:
        try:
            category = "job_events/" + Component(hex_id(job))
        except InvalidName:
            category = "node_events"
    name = f"{node}-{_hour(created_ns)}-{created_ns}.jsonl" + (".gz" if compressed else "")
    return join(prefix, node, category, name)


def _hour(created_ns: int) -> str:
    return datetime.fromtimestamp(created_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d-%H")


def log_key(prefix: str, node: str, name: str) -> str:
    return join(prefix, Component(node), "logs", name)


def endpoint_key(prefix: str, url: str) -> str:
    """The key of a polled snapshot; the query of the URL is part of it, verbatim."""
    return join(prefix, "fetched_endpoints", endpoint_name(url))


def endpoint_name(url: str) -> str:
    path, question, query = url.partition("?")
    return "restful__" + path.strip("/").replace("/", "__") + question + query


def parse_data_key(key: str) -> DataKey | None:
    """Decode a key of any generation relative to its session's prefix; None if it is not one."""
    match key.split("/"):
        case ["fetched_endpoints", *rest] if rest:
            return EndpointKey("/".join(rest))
        case ["logs", node, *rest] if rest:
            return LogKey(node, "/".join(rest))
        case ["node_events", name]:
            return _parse_event_file(name, None, nested=False)
        case ["job_events", *job, name] if job:
            return _parse_event_file(name, "/".join(job), nested=False)
        case [node, "logs", *rest] if rest:
            return LogKey(node, "/".join(rest))
        case [_, "node_events", name]:
            return _parse_event_file(name, None, nested=True)
        case [_, "job_events", *job, name] if job:  # standard base64 may hold a slash
            return _parse_event_file(name, "/".join(job), nested=True)
    return None


def _parse_event_file(name: str, job: str | None, *, nested: bool) -> EventFileKey | None:
    match = _EVENT_FILE.fullmatch(name)
    if match is None:
        return None
    created = int(match["created"]) if match["created"] else None
    if nested:
        generation = Generation.C if created is not None else Generation.B
    else:
        generation = Generation.A_PRIME if name.endswith(".gz") else Generation.A
    return EventFileKey(match["node"], hex_id(job) if job else None, match["hour"], created, generation)


# Not in KubeRay ---------------------------------------------------------------------------------------------------


def ledger_prefix(root: str, cluster: Cluster, session: str) -> str:
    return join(root, LEDGER, cluster.path, Component(session))


def ledger_key(root: str, cluster: Cluster, session: str, node: str) -> str:
    return join(ledger_prefix(root, cluster, session), Component(node) + ".json")


def tails_prefix(root: str, cluster: Cluster, session: str) -> str:
    return join(root, TAILS, cluster.path, Component(session))


def tail_key(root: str, cluster: Cluster, session: str, node: str, sequence: int) -> str:
    """Sequence numbers are zero-padded to 20 digits, so that bundles are listed in the order of their upload."""
    return join(tails_prefix(root, cluster, session), Component(node), f"{sequence:020d}")


def journals_prefix(root: str, cluster: Cluster, session: str) -> str:
    return join(root, JOURNALS, cluster.path, Component(session))


def journal_key(root: str, cluster: Cluster, session: str, node: str, created_ns: int) -> str:
    """The key of the journal for the spool segment that was created at this time."""
    return join(journals_prefix(root, cluster, session), Component(node), f"{created_ns}.jsonl.gz")


def parse_journal_key(key: str) -> EventFileKey | None:
    """Decode a journal's key relative to its session's prefix; None if it is not one."""
    match = _JOURNAL.fullmatch(key)
    if match is None:
        return None
    created_ns = int(match["created"])
    return EventFileKey(match["node"], None, _hour(created_ns), created_ns, Generation.C)


def metrics_prefix(root: str, cluster: Cluster, session: str) -> str:
    return join(root, METRICS, cluster.path, Component(session))


def metric_block_key(root: str, cluster: Cluster, session: str, block: MetricBlockKey) -> str:
    name = f"{block.first_ms:013d}.rhm"
    return join(metrics_prefix(root, cluster, session), Component(block.node), block.endpoint, name)


def parse_metric_block_key(key: str) -> MetricBlockKey | None:
    """Decode the key of a block relative to its session's prefix; None if it is not one."""
    match = _METRIC_BLOCK.fullmatch(key)
    return None if match is None else MetricBlockKey(match["node"], match["endpoint"], int(match["first"]))


def metric_dashboards_key(root: str, cluster: Cluster, session: str) -> str:
    """The key of the dashboards that the session's head wrote for Grafana."""
    return join(metrics_prefix(root, cluster, session), METRIC_DASHBOARDS)


def quarantine_key(root: str, cluster: Cluster, name: str) -> str:
    """The key for batches and events without a recognisable session."""
    return join(root, QUARANTINE, cluster.path, Component(name))


def index_prefix(root: str, cluster: Cluster, session: str) -> str:
    return join(root, INDEX, cluster.path, Component(session))


def summary_key(cluster: Cluster, session: str) -> str:
    """One small object per session, all in one tree, so that a single LIST finds new ones."""
    return join(SUMMARIES, cluster.path, Component(session) + ".json")
