"""How much of a session's history is kept, and why it is not all: the collectors' accounts, node by node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..about import account
from ..handling import Asked
from ..polled import object_of
from . import texts


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
class Kept:
    """The account of a session."""

    share: float | None
    """Of the events that are known of; none if nobody counted."""
    events: int
    """Known of: received by collectors, and dropped by Ray before; read, if nobody counted."""
    reasons: list[str] = field(default_factory=list)
    nodes: list[NodeAccount] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    @property
    def is_whole(self) -> bool:
        return self.share == 1 and not self.reasons


def kept(asked: Asked) -> Kept:
    told = account(asked)
    names = _names(asked)
    nodes = [_node(asked, told, row, names) for row in told["nodes"]]
    events = [object_of(object_of(ledger).get("events")) for ledger in told["ledgers"].values()]

    def total(name: str) -> int:
        return sum(_number(of_node.get(name)) or 0 for of_node in events)

    dropped = total("dropped_by_ray")
    known = total("received") - total("duplicated") + dropped
    missing = max(known - dropped - total("stored") - total("quarantined"), 0)
    if asked.open.ended_ns is None:
        missing = 0  # on its way
    share = (known - dropped - missing) / known if known else None
    return Kept(
        share,
        known or told["events"]["read"],
        _reasons(asked, told, nodes, dropped, missing),
        sorted(nodes, key=lambda node: (node.is_whole, node.name)),
        told["problems"][:20],
        told["problem_count"],
    )


def _names(asked: Asked) -> dict[str, str]:
    rows = asked.tables.rows(
        "select node_id, coalesce(nullif(node_name, ''), node_ip, left(node_id, 8)) || if(is_head_node, ', head', '') "
        f"from {asked.tables.source('nodes')}"
    )
    return dict(rows)


def _node(asked: Asked, told: dict[str, Any], row: dict[str, Any], names: dict[str, str]) -> NodeAccount:
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
        asked.open.ended_ns is not None and ledger.get("ended") != "graceful",
        row["has_files"],
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _reasons(asked: Asked, told: dict[str, Any], nodes: list[NodeAccount], dropped: int, missing: int) -> list[str]:
    """Why it is not all, in words; empty if nothing is missing."""
    reasons = []
    if not told["ledgers"]:
        reasons.append("No collector kept an account of this session, so that nobody knows whether all arrived.")
    if dropped:
        reasons.append(f"{dropped:,} events were dropped by Ray itself before they reached a collector.")
    if missing:
        reasons.append(f"{missing:,} events that collectors received were never stored.")
    if strange := told["events"]["quarantined"]:
        reasons.append(f"{strange:,} events could not be understood; they are kept, not shown.")
    if cut := [node.name for node in nodes if node.cut_off]:
        reasons.append(
            f"{_some(cut)} did not end in order: what {'it' if len(cut) == 1 else 'they'} did in the last seconds "
            "may be missing."
        )
    if without := [node.name for node in nodes if not node.has_files]:
        reasons.append(
            f"Nothing was stored of {_some(without)}: no collector ran there, or none got to store anything."
        )
    if lost := asked.open.facts.get("log_bytes_lost"):
        reasons.append(f"{texts.size(lost)} of log files are lost.")
    if number := told["problem_count"]:
        reasons.append(
            f"{number:,} problems while reading the archive, such as: {texts.clip(told['problems'][0], 300)}"
        )
    return reasons


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return (
        f"{shown} and {len(names) - 3} more nodes"
        if len(names) > 3
        else f"Node {shown}"
        if len(names) == 1
        else (f"Nodes {shown}")
    )
