"""How much of an open session's history is kept: the collectors' accounts, node by node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ray_history.server.completeness.assessment import Kept, Nodes, Told, kept
from ray_history.server.completeness.status import account
from ray_history.server.loose_json import object_of
from ray_history.server.sessions.endpoint import SessionRequest


@dataclass(frozen=True, slots=True)
class NodeAccount:
    """What the collector of one node told; numbers that it does not know are none."""

    node_id: str
    name: str
    received: int | None = None
    stored: int | None = None
    dropped: int | None = None
    cut_off: bool = False
    """It did not come to its end in order."""
    has_files: bool = True

    @property
    def is_whole(self) -> bool:
        return self.has_files and not self.dropped and not self.cut_off


@dataclass(frozen=True, slots=True)
class CompletenessReport:
    """The account of a session."""

    all: Kept
    events: int
    """Known of: received by collectors, and dropped by Ray before; read, if nobody counted."""
    nodes: list[NodeAccount]
    problems: list[str]
    problem_count: int
    unknown: list[str]
    """What is not known because nobody kept its source."""
    unknown_types: dict[str, int]
    """Events of types that we do not know."""


def session_kept(request: SessionRequest) -> CompletenessReport:
    told = account(request)
    names = _names(request)
    nodes = [_node(request, told, row, names) for row in told["nodes"]]
    events = [object_of(object_of(ledger).get("events")) for ledger in told["ledgers"].values()]

    def total(name: str) -> int:
        return sum(_number(of_node.get(name)) or 0 for of_node in events)

    sums = Told(
        collectors=len(told["ledgers"]),
        received=total("received") - total("duplicated"),
        stored=total("stored"),
        quarantined=total("quarantined"),
        dropped=total("dropped_by_ray"),
        goes_on=request.open.ended_ns is None,
        cut_off=_named(node.name for node in nodes if node.cut_off),
        without_files=_named(node.name for node in nodes if not node.has_files),
        log_bytes_lost=_number(request.open.facts.get("log_bytes_lost")) or 0,
        problem_count=told["problem_count"],
        problem=next(iter(told["problems"]), ""),
    )
    return CompletenessReport(
        kept(sums),
        sums.known or told["events"]["read"],
        sorted(nodes, key=lambda node: (node.is_whole, node.name)),
        told["problems"][:20],
        told["problem_count"],
        list(dict.fromkeys(told["unknown"].values())),
        told["events"]["unknown_types"],
    )


def _named(names: Iterable[str]) -> Nodes:
    found = tuple(names)
    return Nodes(len(found), found)


def _names(request: SessionRequest) -> dict[str, str]:
    rows = request.tables.rows(
        "select node_id, coalesce(nullif(node_name, ''), node_ip, left(node_id, 8)) || if(is_head_node, ', head', '') "
        f"from {request.tables.source('nodes')}"
    )
    return dict(rows)


def _node(request: SessionRequest, told: dict[str, Any], row: dict[str, Any], names: dict[str, str]) -> NodeAccount:
    node = row["node_id"]
    name = names.get(node, node[:8])
    if not row["has_ledger"]:
        return NodeAccount(node, name, has_files=row["has_files"])
    ledger = object_of(told["ledgers"].get(node))
    events = object_of(ledger.get("events"))
    return NodeAccount(
        node,
        name,
        _number(events.get("received")),
        _number(events.get("stored")),
        _number(events.get("dropped_by_ray")),
        request.open.ended_ns is not None and ledger.get("ended") != "graceful",
        row["has_files"],
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
