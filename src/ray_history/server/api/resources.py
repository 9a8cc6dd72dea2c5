"""Resources that tasks and actors held on each node, and Ray's text about them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ray_history.history.read.views import View
from ray_history.server.loose_json import amounts_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest

Amounts = dict[str, float]

_HOLDING = "'RUNNING', 'RUNNING_IN_RAY_GET', 'RUNNING_IN_RAY_WAIT'"
_IN_PLACEMENT_GROUP = re.compile(r"(?P<name>.+)_group_(\d+_)?[0-9a-zA-Z]+")
_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def _none() -> Amounts:
    return defaultdict(float)


@dataclass(slots=True)
class Held:
    """Resources that are in use or reserved, by name."""

    used: Amounts = field(default_factory=_none)
    """By running tasks and living actors, inside placement groups too."""
    used_in_groups: Amounts = field(default_factory=_none)
    reserved: Amounts = field(default_factory=_none)
    """By placement groups."""

    def add(self, other: Held) -> None:
        for mine, others in (
            (self.used, other.used),
            (self.used_in_groups, other.used_in_groups),
            (self.reserved, other.reserved),
        ):
            for name, amount in others.items():
                mine[name] += amount


def held_resources(request: SessionRequest, view: View) -> dict[str, Held]:
    """The resources of running tasks, living actors and placement groups, by node."""
    held: dict[str, Held] = defaultdict(Held)
    _add_used(request, view, held)
    groups = request.tables.source("placement_groups", view)
    bundles = request.tables.fetch(f"select bundles::varchar from {groups} where state = 'CREATED'")
    for (text,) in bundles:
        for bundle in objects_of(msgspec.json.decode(text or "[]")):
            for name, amount in amounts_of(bundle.get("unit_resources")).items():
                held[str(bundle.get("node_id"))].reserved[name] += amount
    return held


def _add_used(request: SessionRequest, view: View, held: dict[str, Held]) -> None:
    tasks, actors = request.tables.source("tasks", view), request.tables.source("actors", view)
    rows = request.tables.fetch(
        f"""select node_id, required_resources::varchar, count(*) from (
            select node_id, required_resources from {tasks} where state in ({_HOLDING}) and type = 'NORMAL_TASK'
            union all
            select node_id, required_resources from {actors} where state = 'ALIVE'
        ) where node_id is not null group by all"""
    )
    for node_id, resources, count in rows:
        is_in_group = any(map(_IN_PLACEMENT_GROUP.fullmatch, amounts_of(msgspec.json.decode(resources or "{}"))))
        for name, amount in requested_resources(resources).items():
            held[node_id].used[name] += amount * count
            if is_in_group:
                held[node_id].used_in_groups[name] += amount * count


def requested_resources(text: str | None) -> Amounts:
    """Resources as the user requested them: inside a placement group, Ray calls `CPU` `CPU_group_0_<id>`."""
    requested = {}
    for name, amount in amounts_of(msgspec.json.decode(text or "{}")).items():
        in_group = _IN_PLACEMENT_GROUP.fullmatch(name)
        if in_group is None:
            requested[name] = amount
        elif in_group["name"] != "bundle":  # which Ray adds to each group
            requested[in_group["name"]] = amount
    return requested


def resource_lines(total: Mapping[str, float], held: Held) -> list[str]:
    """The usage of resources, in the words of Ray's autoscaler."""
    lines = []
    for name in sorted(total):
        if name.startswith(("node:", "accelerator_type:")):
            continue
        text = _binary if "memory" in name else _decimal
        line = f"{text(held.used[name])}/{text(total[name])} {name}"
        if name in held.reserved:
            line += (
                f" ({text(held.used_in_groups[name])} used of {text(held.reserved[name])} reserved in placement groups)"
            )
        lines.append(line)
    return lines


def _decimal(amount: float) -> str:
    return str(round(amount, 4))


def _binary(amount: float) -> str:
    for unit, size in _UNITS.items():
        if amount >= size:
            return f"{amount / size:.2f}{unit}"
    return f"{int(amount)}B"
