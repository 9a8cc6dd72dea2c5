"""Workers without a collector, whose agents the head's collector scrapes.

Ray's head lists the endpoints of all living nodes in a file, for Prometheus' service discovery. Its dashboard says
whose they are. A node has a collector of its own if the archive has a ledger of it: collectors upload one as soon as
they know their node, whether they record metrics or not. Nothing else shows it: the head's files do not name
collectors, and those of workers listen on loopback only.

* A node without a ledger a minute after it was listed has no collector. Its agent is scraped.
* While any node is scraped, ledgers are listed every five minutes. A collector that started late takes over then. What
  both scraped meanwhile counts once, because blocks of one endpoint are put together by their times.
* A cluster whose nodes all have collectors costs one LIST for each time that nodes join it, and a single node none.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ray_history.archive import layout
from ray_history.archive.errors import ArchiveError
from ray_history.collector.destination import Destination
from ray_history.collector.node.identity import RayNode, RaySession
from ray_history.collector.polling.dashboard_client import Dashboard, DashboardError
from ray_history.decoding import DECODING_ERRORS

from .targets import AGENT, Target

logger = logging.getLogger(__name__)

DISCOVERY_FILE = "prom_metrics_service_discovery.json"
PATIENCE = 60.0
"""Seconds in which a collector uploads its first ledger."""
PAUSE, RECHECK = 30.0, 300.0
"""Seconds between two requests because of new nodes, and because of nodes that are scraped."""
MAX_WORKERS = 100
"""Each takes a thread, and some 400 KB for its open block."""
_MAX_FILE = 4 << 20
_TIMEOUT = 5.0
_MOST_ASKED = 3
_NODE_ID = re.compile(r"[0-9a-f]{56}")
_ADDRESS = re.compile(r"[0-9A-Za-z.:-]{1,200}", re.ASCII)


class _Group(msgspec.Struct):
    targets: list[str] = []


class _Raylet(msgspec.Struct):
    node_id: str = msgspec.field(default="", name="nodeId")
    address: str = msgspec.field(default="", name="nodeManagerAddress")
    port: int = msgspec.field(default=0, name="metricsExportPort")
    state: str = ""


class _Node(msgspec.Struct):
    raylet: _Raylet = msgspec.field(default_factory=_Raylet)


class _Summary(msgspec.Struct):
    summary: list[_Node]


class _Answer(msgspec.Struct):
    data: _Summary


class WorkerTargets:
    """The agents of those workers that have no collector. Called by one thread."""

    def __init__(
        self,
        destination: Destination,
        node: RayNode,
        dashboard: Dashboard,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._destination, self._node, self._dashboard = destination, node, dashboard
        self._patience, self._clock = patience, clock
        self._begin("")

    def _begin(self, session: str) -> None:
        self._session = session
        self._missing = Counter[str]()
        """The answers of the dashboard in which a listed endpoint was missing: those of autoscaler and dashboard always
        are, those of a new node may be once."""
        self._asked_at = self._listed_at = float("-inf")
        self._nodes = dict[str, str]()
        """The node of each endpoint."""
        self._first_seen = dict[str, float]()
        self._bare, self._collected = set[str](), set[str]()
        """The nodes without a collector, and those with one."""
        self._has_warned = False

    def find(self) -> list[Target]:
        """The endpoints to scrape now."""
        session = self._node.current()
        own = self._node.node_id(session) if session is not None else None
        if session is None or own is None:
            return []
        if session.name != self._session:
            self._begin(session.name)
        listed = _listed(session)
        self._resolve(listed)
        workers = {name: node for name in sorted(listed) if (node := self._nodes.get(name)) not in (None, own)}
        self._decide(set(workers.values()))
        bare = [(name, node) for name, node in workers.items() if node in self._bare]
        if len(bare) > MAX_WORKERS and not self._has_warned:
            logger.warning("%d of %d workers without a collector are scraped", MAX_WORKERS, len(bare))
            self._has_warned = True
        return [_target(session, node, name) for name, node in bare[:MAX_WORKERS]]

    def _resolve(self, listed: frozenset[str]) -> None:
        """Ask the dashboard whose the endpoints are, if there are new ones."""
        now = self._clock()
        self._nodes = {name: node for name, node in self._nodes.items() if name in listed}
        is_new = any(name not in self._nodes and self._missing[name] < _MOST_ASKED for name in listed)
        if not is_new or now - self._asked_at < PAUSE:
            return
        self._asked_at = now
        try:
            self._nodes = owners(self._dashboard.get("/nodes?view=summary", timeout=_TIMEOUT).body)
        except (DashboardError, *DECODING_ERRORS) as error:
            logger.debug("the endpoints of other nodes are not known: %s", error)
            return
        self._missing.update(listed - self._nodes.keys())

    def _decide(self, workers: set[str]) -> None:
        """Look which workers have a collector, if that may have changed."""
        now = self._clock()
        for node in workers:
            self._first_seen.setdefault(node, now)
        due = {node for node in workers - self._collected if now - self._first_seen[node] >= self._patience}
        if not due or now - self._listed_at < (RECHECK if due <= self._bare else PAUSE):
            return
        self._listed_at = now
        prefix = layout.ledger_prefix("", self._destination.cluster, self._session)
        try:
            ledgers = {
                info.key.rpartition("/")[2].removesuffix(".json") for info in self._destination.store.list(prefix)
            }
        except ArchiveError as error:
            logger.debug("it is not known which nodes have collectors: %s", error)
            return
        self._collected |= due & ledgers
        for node in due - ledgers - self._bare:
            logger.info("node %s has no collector: its metrics are scraped from here", node)
        self._bare = (self._bare | due) - ledgers


def _listed(session: RaySession) -> frozenset[str]:
    """The endpoints in Ray's file, which was beside the session directory before Ray 2.60."""
    for folder in (session.directory, session.directory.parent):
        with suppress(OSError, *DECODING_ERRORS), (folder / DISCOVERY_FILE).open("rb") as file:
            return endpoints(file.read(_MAX_FILE))
    return frozenset()


def endpoints(content: bytes) -> frozenset[str]:
    """The endpoints in a file for service discovery; raises one of `DECODING_ERRORS`."""
    return frozenset(target for group in msgspec.json.decode(content, type=list[_Group]) for target in group.targets)


def owners(answer: bytes) -> dict[str, str]:
    """The node of each agent, from the dashboard's list of nodes; raises one of `DECODING_ERRORS`."""
    raylets = [node.raylet for node in msgspec.json.decode(answer, type=_Answer).data.summary]
    raylets.sort(key=lambda raylet: raylet.state != "DEAD")  # a node may have the address of one that is gone
    return {
        _joined(raylet.address, raylet.port): raylet.node_id
        for raylet in raylets
        if _NODE_ID.fullmatch(raylet.node_id) and _ADDRESS.fullmatch(raylet.address) and 0 < raylet.port < 65_536
    }


def _target(session: RaySession, node: str, name: str) -> Target:
    host, _, port = name.rpartition(":")
    return Target(session.name, node, AGENT, int(port), name, host.strip("[]"))


def _joined(address: str, port: int) -> str:
    """The endpoint as Ray writes it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
