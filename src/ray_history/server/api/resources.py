"""Which resources tasks and actors held on which node, by the tables."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from ray_history.history.read.views import View
from ray_history.server.api.actors import original_resources
from ray_history.server.loose_json import amounts_of
from ray_history.server.sessions.endpoint import SessionRequest

_HOLDING = "'RUNNING', 'RUNNING_IN_RAY_GET', 'RUNNING_IN_RAY_WAIT'"

Amounts = dict[str, float]


def held_resources(request: SessionRequest, view: View) -> dict[str, Amounts]:
    """By node: the resources that running tasks and living actors held."""
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
        for name, amount in resources_of(resources).items():
            held[node_id][name] += amount * count
    return held


def resources_of(text: str | None) -> Amounts:
    """Resources as they were asked for."""
    return original_resources(amounts_of(msgspec.json.decode(text or "{}")))
