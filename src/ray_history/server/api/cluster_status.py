"""`/api/cluster_status`: the autoscaler's report, as polled or, for other moments, made from the tables.

In a report made from the tables, a node is active while tasks or actors hold resources on it, and demands are the
resources that tasks and actors wait for. Pending nodes and `request_resources`, which only the autoscaler knew, are
marked as unavailable. The report of an ended cluster says that it has no nodes. It keeps the usage and the demands of
the last report: they help to find out why work did not run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from ray_history.history.read.views import View
from ray_history.history.registry import CLUSTER_TERMINATED
from ray_history.server.api.polled import polled_answer
from ray_history.server.api.resources import Amounts, Held, held_resources, requested_resources, resource_lines
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import amounts_of, object_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import TEXT, Parameter, SessionRoute

_UNKNOWN = " (unavailable in history server)"
_FAILURES_MAX = 20
_WAITING = "'PENDING_ARGS_AVAIL', 'PENDING_NODE_ASSIGNMENT', 'PENDING_OBJ_STORE_MEM_AVAIL', 'PENDING_ARGS_FETCH'"


def cluster_status(request: SessionRequest) -> Response:
    """The report as JSON; with `format=1` as text, as `ray status` prints it."""
    as_text = request.query.get("format", "0") == "1"
    url = "/api/cluster_status?format=1" if as_text else "/api/cluster_status"
    polled = polled_answer(request, url) if request.view.at is None else None  # the report of the last poll
    data = polled.get("data") if isinstance(polled, dict) else None
    if not isinstance(data, dict):
        data = (
            {"clusterStatus": render_report(collect_report(request))}
            if as_text
            else {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None}
        )
    if request.view.end is not None:
        data = _closed(data)
    return enveloped(request.redacted(data), "Got formatted cluster status." if as_text else "Got cluster status.")


# Made from the tables -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ClusterReport:
    """The state of a cluster at a moment; nodes are counted by their group."""

    moment_ns: int | None
    active: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    total: Amounts = field(default_factory=lambda: defaultdict(float))
    held: Held = field(default_factory=Held)
    demands: Counter[str] = field(default_factory=Counter)
    """Tasks and actors that wait for resources, by these."""


class NodeRow(NamedTuple):
    node_id: str
    state: str
    resources: str
    labels: str
    ip: str | None
    instance_id: str | None
    planned_departure: bool

    @property
    def group(self) -> str:
        return str(object_of(msgspec.json.decode(self.labels)).get("ray.io/node-group") or f"node_{self.node_id}")

    @property
    def place(self) -> str:
        return f"instance_id: {self.instance_id}" if self.instance_id else f"ip: {self.ip}"


def collect_report(request: SessionRequest) -> ClusterReport:
    report = ClusterReport(request.view.at or request.open.facts.last_ns)
    view = View(request.view.at)  # in the closed view of an ended session nothing runs or waits
    held = held_resources(request, view)
    for of_node in held.values():
        report.held.add(of_node)
    for node in _nodes(request, view):
        if node.state != "DEAD":
            (report.active if node.node_id in held else report.idle)[node.group] += 1
            for name, amount in amounts_of(msgspec.json.decode(node.resources)).items():
                report.total[name] += amount
        elif not node.planned_departure:
            report.failures.append(f"{node.group}: NodeTerminated ({node.place})")
    for resources, count in _waiting(request, view):
        shape = {name: round(amount, 4) for name, amount in sorted(requested_resources(resources).items())}
        if shape:
            report.demands[str(shape)] += count
    return report


def _nodes(request: SessionRequest, view: View) -> list[NodeRow]:
    """The nodes; the last to end comes first."""
    rows = request.tables.rows(
        "select node_id, state, resources_total, labels, node_ip, instance_id, planned_departure "
        f"from {request.tables.source('nodes', view)} order by end_ns desc nulls last, node_id"
    )
    return [NodeRow(*row) for row in rows]


def _waiting(request: SessionRequest, view: View) -> list[tuple[Any, ...]]:
    """The resources that tasks and actors wait for, and how many of them do."""
    tasks, actors = request.tables.source("tasks", view), request.tables.source("actors", view)
    return request.tables.fetch(
        f"""select required_resources::varchar, count(*) from (
            select required_resources from {tasks} where state in ({_WAITING}) and type = 'NORMAL_TASK'
            union all
            select required_resources from {actors} where state in ('PENDING_CREATION', 'DEPENDENCIES_UNREADY')
        ) group by all"""
    )


def render_report(report: ClusterReport) -> str:
    """The report as `ray status` prints it."""
    time = "time unknown"
    if report.moment_ns:
        time = datetime.fromtimestamp(report.moment_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    header = f"======== Autoscaler status: {time} ========"
    rule = "-" * len(header)
    demands = [f"{shape}: {count}+ pending tasks/actors" for shape, count in report.demands.most_common()]
    return "\n".join(
        [
            header,
            "Node status",
            rule,
            "Active:",
            *_lines(_node_counts(report.active), "(no active nodes)"),
            "Idle:",
            *_lines(_node_counts(report.idle), "(no idle nodes)"),
            "Pending:",
            _UNKNOWN,
            "Recent failures:",
            *_lines(report.failures[:_FAILURES_MAX], "(no failures)"),
            "",
            "Resources",
            rule,
            "Total Usage:",
            *_lines(resource_lines(report.total, report.held), "(no resources)"),
            "",
            "From request_resources:",
            _UNKNOWN,
            "Pending Demands:",
            *_lines(demands, "(no resource demands)"),
        ]
    )


def _node_counts(groups: Counter[str]) -> list[str]:
    return [f"{count} {group}" for group, count in sorted(groups.items())]


def _lines(lines: list[str], placeholder: str) -> list[str]:
    return [f" {line}" for line in lines or [placeholder]]


# Of an ended cluster --------------------------------------------------------------------------------------------------

_NODE_LISTS = {"Healthy": "healthy", "Active": "active", "Idle": "idle", "Pending": "pending"}
"""Headings of lists of nodes; older versions of Ray have `Healthy` for active and idle nodes."""
_ENDED = CLUSTER_TERMINATED.rstrip(".").lower()
_USAGE = ("Usage:", "Total Usage:")
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
    """The autoscaler's text with empty lists of nodes, and with the time to which the usage belongs."""
    lines: list[str] = []
    is_node_list = False
    for line in text.split("\n"):
        heading = line.removesuffix(":")
        if line in _USAGE:
            line = f"{heading} in the last report:"
        if not line.startswith(" "):
            is_node_list = line.endswith(":") and heading in _NODE_LISTS
            lines += [line, f" (no {_NODE_LISTS[heading]} nodes: {_ENDED})"] if is_node_list else [line]
        elif not is_node_list:
            lines.append(line)
    return "\n".join(lines)


routes = [
    SessionRoute(
        "/api/cluster_status",
        cluster_status,
        parameters=[Parameter("format", TEXT, "`1` for plain text.")],
        forwarded=True,
    )
]
