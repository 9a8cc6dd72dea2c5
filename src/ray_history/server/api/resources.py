"""Resources that tasks and actors held on each node, and Ray's text about them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import msgspec

from ray_history.history.read.views import View
from ray_history.server.loose_json import amounts_of
from ray_history.server.sessions.endpoint import SessionRequest

Amounts = dict[str, float]

_HOLDING = "'RUNNING', 'RUNNING_IN_RAY_GET', 'RUNNING_IN_RAY_WAIT'"
_IN_PLACEMENT_GROUP = re.compile(r"(?P<name>.+)_group_(\d+_)?[0-9a-zA-Z]+")
_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def held_resources(request: SessionRequest, view: View) -> dict[str, Amounts]:
    """The resources of running tasks and living actors, by node."""
    tasks, actors = request.tables.source("tasks", view), request.tables.source("actors", view)
    rows = request.tables.fetch(
        f"""select node_id, required_resources::varchar, count(*) from (
            select node_id, required_resources from {tasks} where state in ({_HOLDING}) and type = 'NORMAL_TASK'
            union all
            select node_id, required_resources from {actors} where state = 'ALIVE'
        ) where node_id is not null group by all"""
    )
    held: dict[str, Amounts] = defaultdict(lambda: defaultdict(float))
    for node_id, resources, count in rows:
        for name, amount in requested_resources(resources).items():
            held[node_id][name] += amount * count
    return held


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


def resource_lines(total: Mapping[str, float], used: Mapping[str, float]) -> list[str]:
    """The usage of resources, in the words of Ray's autoscaler."""
    lines = []
    for name in sorted(total):
        if name.startswith(("node:", "accelerator_type:")):
            continue
        if "memory" in name:
            lines.append(f"{_binary(used.get(name, 0))}/{_binary(total[name])} {name}")
        else:
            lines.append(f"{round(used.get(name, 0.0), 4)}/{total[name]} {name}")
    return lines


def _binary(amount: float) -> str:
    for unit, size in _UNITS.items():
        if amount >= size:
            return f"{amount / size:.2f}{unit}"
    return f"{int(amount)}B"
