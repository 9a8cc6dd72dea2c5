"""How complete an open session is, node by node."""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.history.events import KNOWN_TYPES
from ray_history.server.completeness.assessment import Assessment, assess
from ray_history.server.completeness.evidence import Evidence, Nodes
from ray_history.server.completeness.sources import unknown
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.node_names import node_names


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node; its counts are None without a ledger."""

    node_id: str
    name: str
    received: int | None = None
    stored: int | None = None
    dropped: int | None = None
    cut_off: bool = False
    """Its collector did not shut down in order."""
    has_files: bool = True

    @property
    def is_whole(self) -> bool:
        return self.has_files and not self.dropped and not self.cut_off


@dataclass(frozen=True, slots=True)
class CompletenessReport:
    """The completeness of a session and of its nodes."""

    all: Assessment
    events: int
    """Events that are known of; without ledgers, events read."""
    nodes: list[NodeReport]
    problems: list[str]
    problem_count: int
    unknown: list[str]
    """What is unknown because its source was not stored."""
    unknown_types: dict[str, int]
    """Events of types that this version does not know."""


def completeness_report(request: SessionRequest) -> CompletenessReport:
    manifest = request.open.opened.manifest
    nodes = _nodes(request)
    evidence = Evidence.from_tables(
        request,
        cut_off=Nodes.named(node.name for node in nodes if node.cut_off),
        without_files=Nodes.named(node.name for node in nodes if not node.has_files),
    )
    return CompletenessReport(
        assess(evidence),
        evidence.events or sum(manifest.events.values()),
        sorted(nodes, key=lambda node: (node.is_whole, node.name)),
        manifest.problems[:20],
        manifest.problem_count,
        list(dict.fromkeys(unknown(request).values())),
        unknown_types(request),
    )


def unknown_types(request: SessionRequest) -> dict[str, int]:
    """How many events of each type that this version does not know were read."""
    events = request.open.opened.manifest.events
    return {name: number for name, number in events.items() if name not in KNOWN_TYPES}


def _nodes(request: SessionRequest) -> list[NodeReport]:
    tables = request.tables
    names = node_names(request)
    rows = tables.rows(f"select node_id, is_head_node from {tables.source('nodes', request.view)} order by node_id")
    nodes = []
    for node_id, is_head in rows:
        name = names.get(node_id, node_id[:8])
        nodes.append(_node(request, node_id, f"{name}, head" if is_head and not name.startswith("head, ") else name))
    return nodes


def _node(request: SessionRequest, node_id: str, name: str) -> NodeReport:
    has_files = node_id in request.open.files.nodes
    ledger = request.open.ledgers.get(node_id)
    if ledger is None:
        return NodeReport(node_id, name, has_files=has_files)
    events = ledger.events
    cut_off = request.open.ended_ns is not None and not ledger.is_graceful
    return NodeReport(node_id, name, events.received, events.stored, events.dropped_by_ray, cut_off, has_files)
