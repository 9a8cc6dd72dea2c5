"""Nodes as the dashboard shows them: `/nodes` and `/nodes/{id}`.

Usage, processes and addresses come from the last poll. Whether and how a node ended, its resources and its labels come
from the tables, which are more accurate. A node without a poll has the same shape with zeros. So has a node at a moment
before its poll, except for its addresses and the processes that had started by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from ray_history.history.read.views import View
from ray_history.server.api.actors import actors_of, polled_details, polled_summaries
from ray_history.server.api.polled import camel_case_keys, is_later, polled_data
from ray_history.server.api.resources import Held, held_resources, resource_lines
from ray_history.server.http.responses import ApiError, enveloped
from ray_history.server.loose_json import amounts_of, object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import TEXT, VIEW, Parameter, SessionRoute

RAYLET_DEFAULTS: dict[str, Any] = {
    "storeStats": {},
    "numWorkers": 0,
    "objectStoreUsedMemory": 0,
    "objectStoreAvailableMemory": 0,
    "nodeManagerPort": 0,
    "objectManagerPort": 0,
    "metricsExportPort": 0,
    "resourcesTotal": {},
    "labels": {},
}
_DISK = {"total": 0, "used": 0, "free": 0, "percent": 0.0}
USAGE_DEFAULTS: dict[str, Any] = {
    "cpu": 0.0,
    "cpus": [0, 0],
    "mem": [0, 0, 0.0, 0],
    "shm": 0,
    "bootTime": 0.0,
    "loadAvg": [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    "disk": {"/": _DISK, "/tmp/ray": _DISK},  # noqa: S108
    "diskIo": [0, 0, 0, 0],
    "diskIoSpeed": [0.0, 0.0, 0.0, 0.0],
    "network": [0, 0],
    "networkSpeed": [0.0, 0.0],
    "gpus": [],
    "tpus": [],
    "cmdline": [],
    "agent": None,
    "gcs": None,
}
_CONSTANT_FIELDS = ("hostname", "ip", "cpus", "bootTime", "cmdline")
_PROCESS_FIELDS = ("pid", "createTime", "cmdline", "language", "jobId", "workerId", "ipAddress", "port")
_DEATHS = {
    "Expected termination": "EXPECTED_TERMINATION",
    "Unexpected termination": "UNEXPECTED_TERMINATION",
    "Terminated due to preemption": "AUTOSCALER_DRAIN_PREEMPTED",
    "Terminated due to idle (no Ray activity)": "AUTOSCALER_DRAIN_IDLE",
}
"""How Ray begins the message of a dead node, and the reason that it stands for."""
_LOG_PAGE_FIELDS = ("hostname", "ip", "gpus", "tpus", "raylet")


class NodeRow(NamedTuple):
    """A node as the tables know it."""

    node_id: str
    ip: str | None
    hostname: str | None
    name: str | None
    is_head: bool | None
    state: str
    state_message: str | None
    instance_id: str | None
    instance_type: str | None
    resources: str
    labels: str
    start_ms: int | None
    end_ms: int | None


_COLUMNS = (
    "node_id, node_ip, hostname, node_name, is_head_node, state, state_message, instance_id, instance_type_name, "
    "resources_total, labels, ray_ms(start_ns), ray_ms(end_ns)"
)


def list_nodes(request: SessionRequest) -> Response:
    """`view=summary` (also the default, where Ray returns an error), `view=logs` or `view=hostNameList`."""
    view = request.query.get("view") or "summary"
    if view == "summary":
        return _summary(request)
    if view == "logs":
        return _nodes_with_logs(request)
    if view.lower() == "hostnamelist":
        return _host_names(request)
    return enveloped({}, f"Unknown view {view[:100]}", result=False, status=400)  # Ray says 500


def get_node(request: SessionRequest) -> Response:
    """One node with its workers and actors."""
    node_id = request.path_param("node_id")
    rows = _node_rows(request, request.view, "where node_id = ?", [node_id])
    if not rows:  # Ray answers 200, with a body that looks like a node
        raise ApiError(404, f"Node {node_id[:200]} does not exist")
    polled = polled_details(request, [node_id]) or polled_summaries(
        request, polled_data(request, "/nodes?view=summary")
    )
    detail = merge_polled(request, rows[0], polled.get(node_id, {}))
    detail["raylet"].pop("coreWorkersStats", None)
    detail.setdefault("workers", [])
    detail["actors"] = camel_case_keys(actors_of(request, "node_id", [node_id]))
    return enveloped({"detail": request.redacted(detail)}, "Node details fetched.")


def _summary(request: SessionRequest) -> Response:
    data = polled_data(request, "/nodes?view=summary")
    summaries = polled_summaries(request, data)
    rows = _node_rows(request, request.view)
    summaries = polled_details(request, {row.node_id for row in rows} - summaries.keys()) | summaries
    if request.view.at is None:
        resource_texts, held = object_of(data.get("nodeLogicalResources")), {}
    else:  # the polled texts are of the last poll
        resource_texts, held = {}, held_resources(request, _observed(request))
    nodes, resources = [], {}
    for row in rows:
        node = merge_polled(request, row, summaries.get(row.node_id, {}))
        node.pop("workers", None)
        node.pop("actors", None)
        nodes.append(node)
        total = amounts_of(msgspec.json.decode(row.resources))
        text = resource_texts.get(row.node_id) or "\n".join(resource_lines(total, held.get(row.node_id) or Held()))
        if text:
            resources[row.node_id] = text
    return enveloped({"summary": request.redacted(nodes), "nodeLogicalResources": resources}, "Node summary fetched.")


def _nodes_with_logs(request: SessionRequest) -> Response:
    """The nodes with log files, all of them ALIVE: the frontend's page of logs shows no others."""
    with_logs = request.open.logs.nodes()
    polled = polled_summaries(request, polled_data(request, "/nodes?view=summary"))
    nodes = []
    for row in _node_rows(request, _observed(request)):
        if row.node_id in with_logs:
            node = merge_polled(request, row, polled.get(row.node_id, {}))
            # The page has no column for either.
            state = node["raylet"]["state"]
            node["ip"] = ", ".join(
                [str(node["ip"]), *(["head"] if row.is_head else []), *([state] * (state != "ALIVE"))]
            )
            node["raylet"]["state"] = "ALIVE"
            nodes.append({name: node[name] for name in _LOG_PAGE_FIELDS if name in node})
    return enveloped({"summary": request.redacted(nodes)}, "Nodes with logs fetched.")


def _host_names(request: SessionRequest) -> Response:
    """The hosts of the nodes that were alive, in an ended session at its end."""
    names = {
        row.hostname or row.name or row.node_id
        for row in _node_rows(request, _observed(request))
        if row.state == "ALIVE"
    }
    return enveloped({"hostNameList": sorted(names)}, "Node hostname list fetched.")


def _observed(request: SessionRequest) -> View:
    """Nodes as last observed, not closed by the end of their session."""
    return View(request.view.at)


def _node_rows(
    request: SessionRequest, view: View, where: str = "", values: list[object] | None = None
) -> list[NodeRow]:
    rows = request.tables.rows(
        f"select {_COLUMNS} from {request.tables.source('nodes', view)} {where} "
        "order by is_head_node desc nulls last, start_ns nulls last, node_id",
        values or [],
    )
    return [NodeRow(*row) for row in rows]


def merge_polled(request: SessionRequest, row: NodeRow, polled: dict[str, Any]) -> dict[str, Any]:
    """A polled node, updated from the tables."""
    is_before_poll = is_later(request, polled.get("now"), 1e9)
    if is_before_poll:
        polled = _without_usage(request, polled)
    labels = camel_case_keys(object_of(msgspec.json.decode(row.labels)))
    resources = camel_case_keys(object_of(msgspec.json.decode(row.resources)))
    raylet = object_of(polled.get("raylet")) or _unpolled_raylet(request, row, labels)
    raylet = raylet | {
        "nodeId": row.node_id,
        "state": row.state,
        "stateMessage": row.state_message,
        "endTimeMs": str(row.end_ms or 0),
    }
    raylet.pop("deathInfo", None)
    if row.state == "DEAD":
        raylet["deathInfo"] = _death_info(row.state_message or "")
    # Events of a dead node, and its polled state, have neither.
    if resources:
        raylet["resourcesTotal"] = resources
    if labels:
        raylet["labels"] = labels
    if is_before_poll or "now" not in polled:
        return {**_unpolled_node(row), **polled, "raylet": raylet}
    return polled | {"raylet": raylet}


def _death_info(message: str) -> dict[str, str]:
    """The parts that Ray composed the message of a dead node of."""
    start, _, rest = message.partition(": ")
    reason = _DEATHS.get(start)
    if reason is None:
        return {"reason": "UNSPECIFIED", "reasonMessage": message}
    return {"reason": reason, "reasonMessage": rest}


def _unpolled_raylet(request: SessionRequest, row: NodeRow, labels: dict[str, Any]) -> dict[str, Any]:
    directory = f"/tmp/ray/{request.open.session.name}"  # noqa: S108  # on the node
    return RAYLET_DEFAULTS | {
        "nodeManagerAddress": row.ip or "",
        "nodeManagerHostname": row.hostname or "",
        "rayletSocketName": f"{directory}/sockets/raylet",
        "objectStoreSocketName": f"{directory}/sockets/plasma_store",
        "nodeName": row.name or row.ip or "",
        "instanceId": row.instance_id or "",
        "nodeTypeName": labels.get("ray.io/node-group", ""),
        "instanceTypeName": row.instance_type or "",
        "startTimeMs": str(row.start_ms or 0),
        "isHeadNode": bool(row.is_head),
    }


def _unpolled_node(row: NodeRow) -> dict[str, Any]:
    return {
        "now": (row.end_ms or row.start_ms or 0) / 1000,
        "hostname": row.hostname or row.name or "",
        "ip": row.ip or "",
        **USAGE_DEFAULTS,
    }


def _without_usage(request: SessionRequest, polled: dict[str, Any]) -> dict[str, Any]:
    """The parts of a polled node that were true before the poll."""
    raylet = {name: value for name, value in object_of(polled.get("raylet")).items() if name != "coreWorkersStats"}
    if raylet:
        raylet |= {"numWorkers": 0, "storeStats": {}, "objectStoreUsedMemory": 0, "objectStoreAvailableMemory": 0}
    workers = [
        _present(worker, _PROCESS_FIELDS)
        | {
            "cpuPercent": 0.0,
            "memoryInfo": {"rss": 0, "vms": 0},
            "coreWorkerStats": [
                _present(stats, _PROCESS_FIELDS) for stats in objects_of(worker.get("coreWorkerStats"))
            ],
        }
        for worker in objects_of(polled.get("workers"))
        if not is_later(request, worker.get("createTime"), 1e9)
    ]
    return _present(polled, _CONSTANT_FIELDS) | {
        "now": (request.view.at or 0) / 1e9,
        "workers": workers,
        "raylet": raylet,
    }


def _present(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


routes = [
    SessionRoute(
        "/nodes",
        list_nodes,
        parameters=(*VIEW, Parameter("view", TEXT, "`summary`, `logs` or `hostNameList`.")),
        forwarded=True,
    ),
    SessionRoute("/nodes/{node_id}", get_node, forwarded=True),
]
