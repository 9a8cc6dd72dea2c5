"""`/api/cluster_status`: the autoscaler's report, as polled or, for other moments, rebuilt from the tables.

Rebuilt, a node is active when tasks or actors held resources on it, and demands are what waited for resources. What the
autoscaler alone knew (pending nodes, `request_resources`) stays unknown, and the text says so. Once the cluster has
ended it has no nodes; what was in use and what was waited for stands there as the last report told it: that is what
people look for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.history.read.views import View
from ray_history.server.api.nodes import human_bytes
from ray_history.server.api.polled import polled_answer
from ray_history.server.api.resources import Amounts, held_resources, resources_of
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import amounts_of, object_of
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import TEXT, Parameter, SessionRoute

_UNKNOWN = " (unavailable in history server)"
_MOST_FAILURES = 20
_WAITING = "'PENDING_ARGS_AVAIL', 'PENDING_NODE_ASSIGNMENT', 'PENDING_OBJ_STORE_MEM_AVAIL', 'PENDING_ARGS_FETCH'"


def cluster_status(request: SessionRequest) -> Response:
    """With `format=1` as text, as `ray status` prints it."""
    as_text = request.query.get("format", "0") == "1"
    url = "/api/cluster_status?format=1" if as_text else "/api/cluster_status"
    polled = polled_answer(request, url) if request.view.at is None else None  # it tells of the last poll only
    data = polled.get("data") if isinstance(polled, dict) else None
    if not isinstance(data, dict):
        data = (
            {"clusterStatus": status_text(request)}
            if as_text
            else {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None}
        )
    if request.view.end is not None:
        data = _closed(data)
    return enveloped(shown(request, data), "Got formatted cluster status." if as_text else "Got cluster status.")


def status_text(request: SessionRequest) -> str:
    """The report as of the moment that is shown, in the autoscaler's words."""
    observed = View(request.view.at)  # closed, a session has nothing that runs or waits
    used = held_resources(request, observed)
    active: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    total: Amounts = defaultdict(float)
    failures = []
    nodes = request.tables.source("nodes", observed)
    for node_id, state, resources, labels, ip, instance_id, is_planned in request.tables.rows(
        f"select node_id, state, resources_total, labels, node_ip, instance_id, planned_departure from {nodes} "
        "order by end_ns desc nulls last, node_id"
    ):
        group = str(object_of(msgspec.json.decode(labels)).get("ray.io/node-group") or f"node_{node_id}")
        if state == "DEAD":
            if not is_planned:
                place = f"instance_id: {instance_id}" if instance_id else f"ip: {ip}"
                failures.append(f" {group}: NodeTerminated ({place})")
            continue
        (active if used.get(node_id) else idle)[group] += 1
        for name, amount in amounts_of(msgspec.json.decode(resources)).items():
            total[name] += amount
    in_use: Amounts = defaultdict(float)
    for amounts in used.values():
        for name, amount in amounts.items():
            in_use[name] += amount
    header = f"======== Autoscaler status: {_moment(request)} ========"
    line = "-" * len(header)
    return "\n".join(
        [
            header,
            "Node status",
            line,
            "Active:",
            *(_counted(active) or [" (no active nodes)"]),
            "Idle:",
            *(_counted(idle) or [" (no idle nodes)"]),
            "Pending:",
            _UNKNOWN,
            "Recent failures:",
            *(failures[:_MOST_FAILURES] or [" (no failures)"]),
            "",
            "Resources",
            line,
            "Total Usage:",
            *(_usage(in_use, total) or [" (no resources)"]),
            "",
            "From request_resources:",
            _UNKNOWN,
            "Pending Demands:",
            *(_demands(request, observed) or [" (no resource demands)"]),
        ]
    )


_NODES = {"Healthy": "healthy", "Active": "active", "Idle": "idle", "Pending": "pending"}
"""Lists of nodes that there are, by their headings; `Healthy` is an older Ray's word for the first two."""
_NO_NODES: dict[str, Any] = {"activeNodes": {}, "idleNodes": {}, "pendingNodes": [], "pendingLaunches": {}}


def _closed(data: dict[str, Any]) -> dict[str, Any]:
    """A report without nodes, as text or as JSON."""
    status = data.get("clusterStatus")
    if isinstance(status, str):
        return data | {"clusterStatus": without_nodes(status)}
    if isinstance(status, dict):
        report = object_of(status.get("autoscalerReport"))
        none = {name: empty for name, empty in _NO_NODES.items() if report.get(name)}
        return data | {"clusterStatus": status | {"autoscalerReport": report | none}}
    return data


def without_nodes(text: str) -> str:
    """The autoscaler's text with none in its lists of nodes that there are."""
    lines: list[str] = []
    is_left_out = False
    for line in text.split("\n"):
        heading = line.removesuffix(":")
        if not line.startswith(" "):
            is_left_out = line.endswith(":") and heading in _NODES
            lines += [line, f" (no {_NODES[heading]} nodes)"] if is_left_out else [line]
        elif not is_left_out:
            lines.append(line)
    return "\n".join(lines)


def _demands(request: SessionRequest, view: View) -> list[str]:
    """What waited for resources, by shape, the most wanted first."""
    tasks, actors = request.tables.source("tasks", view), request.tables.source("actors", view)
    rows = request.tables.fetch(
        f"""select required_resources::varchar, count(*) from (
            select required_resources from {tasks} where state in ({_WAITING}) and type = 'NORMAL_TASK'
            union all
            select required_resources from {actors} where state in ('PENDING_CREATION', 'DEPENDENCIES_UNREADY')
        ) group by all"""
    )
    wanted: Counter[str] = Counter()
    for resources, count in rows:
        shape = {name: round(amount, 4) for name, amount in sorted(resources_of(resources).items())}
        if shape:
            wanted[str(shape)] += count
    return [f" {shape}: {count}+ pending tasks/actors" for shape, count in wanted.most_common()]


def _usage(used: Amounts, total: Amounts) -> list[str]:
    lines = []
    for name in sorted(total):
        if name.startswith(("node:", "accelerator_type:")):
            continue
        if "memory" in name:
            lines.append(f" {human_bytes(used.get(name, 0))}/{human_bytes(total[name])} {name}")
        else:
            lines.append(f" {round(used.get(name, 0.0), 4)}/{total[name]} {name}")
    return lines


def _counted(groups: Counter[str]) -> list[str]:
    return [f" {count} {group}" for group, count in sorted(groups.items())]


def _moment(request: SessionRequest) -> str:
    moment = request.view.at or request.open.facts.get("last_ns")
    if not moment:
        return "time unknown"
    return datetime.fromtimestamp(moment / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


routes = [
    SessionRoute(
        "/api/cluster_status",
        cluster_status,
        parameters=[Parameter("format", TEXT, "`1` for plain text.")],
        forwarded=True,
    )
]
