"""Nodes as the dashboard shows them: `/nodes` and `/nodes/{id}`.

Usage, processes and addresses come from the last poll; whether and how a node ended, its resources and labels from the
tables, which know them better. A node that nobody polled has the same shape with zeros, and so has one at a moment
before the poll: only what does not change (its addresses, processes that had started) is then taken from it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.history.read.views import View
from ray_history.server.api.actors import actors_of, polled_details, polled_summaries
from ray_history.server.api.polled import camel_case_keys, is_later, polled_data
from ray_history.server.api.resources import Amounts, held_resources
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import amounts_of, object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import TEXT, VIEW, Parameter, SessionRoute

_COLUMNS = (
    "node_id, node_ip, hostname, node_name, is_head_node, state, state_message, instance_id, instance_type_name, "
    "resources_total, labels, ray_ms(start_ns), ray_ms(end_ns)"
)
_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def list_nodes(request: SessionRequest) -> Response:
    """`view=summary` (also without a view, where Ray answers an error), `view=logs` or `view=hostNameList`."""
    view = request.query.get("view") or "summary"
    if view == "summary":
        return _summary(request)
    if view == "logs":
        return _with_logs(request)
    if view.lower() == "hostnamelist":
        return _host_names(request)
    return enveloped({}, f"Unknown view {view[:100]}", result=False, status=400)  # Ray says 500


def get_node(request: SessionRequest) -> Response:
    """One node with its workers and actors; an unknown one is nearly empty, as in Ray."""
    node_id = request.path_param("node_id")
    detail: dict[str, Any] = {"raylet": {"objectStoreUsedMemory": 0, "objectStoreAvailableMemory": 0}, "tpus": []}
    detail["raylet"]["stateMessage"] = None
    rows = _rows(request, _observed(request), "where node_id = ?", [node_id])
    if rows:
        polled = polled_details(request, [node_id]) or polled_summaries(polled_data(request, "/nodes?view=summary"))
        detail = _node(request, rows[0], polled.get(node_id, {}))
        detail["raylet"].pop("coreWorkersStats", None)
    detail.setdefault("workers", [])
    detail["actors"] = camel_case_keys(actors_of(request, "node_id", [node_id]))
    return enveloped({"detail": shown(request, detail)}, "Node details fetched.")


def _summary(request: SessionRequest) -> Response:
    polled = polled_data(request, "/nodes?view=summary")
    summaries = polled_summaries(polled)
    logical = object_of(polled.get("nodeLogicalResources"))
    rows = _rows(request, _observed(request))
    held = held_resources(request, _observed(request)) if request.view.at is not None else {}
    summaries = polled_details(request, {row[0] for row in rows} - summaries.keys()) | summaries
    nodes = []
    resources = {}
    for row in rows:
        node_id = row[0]
        node = _node(request, row, summaries.get(node_id, {}))
        node.pop("workers", None)
        node.pop("actors", None)
        nodes.append(node)
        polled_text = logical.get(node_id) if request.view.at is None else None  # it tells of the last poll only
        text = polled_text or logical_resources(amounts_of(msgspec.json.decode(row[9])), held.get(node_id, {}))
        if text:
            resources[node_id] = text
    return enveloped(
        {"summary": shown(request, nodes), "nodeLogicalResources": resources},
        "Node summary fetched.",
    )


def _with_logs(request: SessionRequest) -> Response:
    """The nodes that left logs. The frontend's page of logs lists none but ALIVE nodes, by id and address."""
    kept = request.open.logs.nodes()
    polled = polled_summaries(polled_data(request, "/nodes?view=summary"))
    nodes = []
    for row in _rows(request, _observed(request)):
        if row[0] in kept:
            node = _node(request, row, polled.get(row[0], {}))
            if node["raylet"]["state"] != "ALIVE":
                node["ip"] = f"{node['ip']}, {node['raylet']['state']}"
                node["raylet"]["state"] = "ALIVE"
            nodes.append({name: node[name] for name in ("hostname", "ip", "gpus", "tpus", "raylet") if name in node})
    return enveloped({"summary": shown(request, nodes)}, "Nodes with logs fetched.")


def _host_names(request: SessionRequest) -> Response:
    """The hosts of the nodes that were alive: at the end of a session that is over, since now none is."""
    names = {row[2] or row[3] or row[0] for row in _rows(request, _observed(request)) if row[5] == "ALIVE"}
    return enveloped({"hostNameList": sorted(names)}, "Node hostname list fetched.")


def _observed(request: SessionRequest) -> View:
    """Nodes as last observed, also of a session that ended: the frontend lists the logs of none but ALIVE nodes."""
    return View(request.view.at)


def _rows(
    request: SessionRequest, view: View, where: str = "", values: list[object] | None = None
) -> list[tuple[Any, ...]]:
    return request.tables.rows(
        f"select {_COLUMNS} from {request.tables.source('nodes', view)} {where} "
        "order by is_head_node desc nulls last, start_ns nulls last, node_id",
        values or [],
    )


def _node(request: SessionRequest, row: tuple[Any, ...], node: dict[str, Any]) -> dict[str, Any]:
    """A node as it was polled, overlaid with what the tables know."""
    (
        node_id, ip, hostname, name, is_head, state, state_message, instance_id, instance_type, resources, labels,
        start_ms, end_ms,
    ) = row  # fmt: skip
    is_before_poll = is_later(request, node.get("now"), 1e9)
    if is_before_poll:
        node = _without_figures(request, node)
    raylet = object_of(node.get("raylet"))
    known: dict[str, Any] = {
        "nodeId": node_id,
        "state": state,
        "stateMessage": state_message,
        "endTimeMs": str(end_ms or 0),
    }
    total, named = (camel_case_keys(object_of(msgspec.json.decode(text))) for text in (resources, labels))
    if total:  # events of a dead node carry none, and neither does a polled one
        known["resourcesTotal"] = total
    if named:
        known["labels"] = named
    if not raylet:
        directory = f"/tmp/ray/{request.open.session.name}"  # noqa: S108  # where Ray's processes had it
        raylet = {
            "storeStats": {},
            "numWorkers": 0,
            "objectStoreUsedMemory": 0,
            "objectStoreAvailableMemory": 0,
            "nodeManagerAddress": ip or "",
            "nodeManagerHostname": hostname or "",
            "nodeManagerPort": 0,
            "objectManagerPort": 0,
            "metricsExportPort": 0,
            "rayletSocketName": f"{directory}/sockets/raylet",
            "objectStoreSocketName": f"{directory}/sockets/plasma_store",
            "resourcesTotal": {},
            "labels": {},
            "nodeName": name or ip or "",
            "instanceId": instance_id or "",
            "nodeTypeName": named.get("ray.io/node-group", ""),
            "instanceTypeName": instance_type or "",
            "startTimeMs": str(start_ms or 0),
            "isHeadNode": bool(is_head),
        }
    if is_before_poll or "now" not in node:
        node = {**_unused(start_ms, end_ms, hostname or name, ip), **node}
    return node | {"raylet": raylet | known}


_LASTING = ("hostname", "ip", "cpus", "bootTime", "cmdline")
_FIGURES_OF_RAYLET = {"numWorkers": 0, "storeStats": {}, "objectStoreUsedMemory": 0, "objectStoreAvailableMemory": 0}
_WHO = ("pid", "createTime", "cmdline", "language", "jobId", "workerId", "ipAddress", "port")


def _without_figures(request: SessionRequest, node: dict[str, Any]) -> dict[str, Any]:
    """What of a polled node was so before the poll already."""
    raylet = {name: value for name, value in object_of(node.get("raylet")).items() if name != "coreWorkersStats"}
    workers = [
        {name: worker[name] for name in _WHO if name in worker}
        | {
            "cpuPercent": 0.0,
            "memoryInfo": {"rss": 0, "vms": 0},
            "coreWorkerStats": [
                {name: figures[name] for name in _WHO if name in figures}
                for figures in objects_of(worker.get("coreWorkerStats"))
            ],
        }
        for worker in objects_of(node.get("workers"))
        if not is_later(request, worker.get("createTime"), 1e9)
    ]
    lasting = {name: node[name] for name in _LASTING if name in node}
    return lasting | {
        "now": (request.view.at or 0) / 1e9,
        "workers": workers,
        "raylet": raylet and raylet | _FIGURES_OF_RAYLET,
    }


def _unused(start_ms: int | None, end_ms: int | None, hostname: str | None, ip: str | None) -> dict[str, Any]:
    """The usage of a node that was never polled while it was alive."""
    disk = {"total": 0, "used": 0, "free": 0, "percent": 0.0}
    return {
        "now": (end_ms or start_ms or 0) / 1000,
        "hostname": hostname or "",
        "ip": ip or "",
        "cpu": 0.0,
        "cpus": [0, 0],
        "mem": [0, 0, 0.0, 0],
        "shm": 0,
        "bootTime": 0.0,
        "loadAvg": [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        "disk": {"/": disk, "/tmp/ray": disk},  # noqa: S108
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


def logical_resources(resources: Amounts, held: Amounts) -> str:
    """Ray's text about the logical resources of a node, so much of them in use."""
    lines = []
    for name in sorted(resources):
        if name.startswith(("node:", "accelerator_type:")):
            continue
        if "memory" in name:
            lines.append(f"{human_bytes(held.get(name, 0))}/{human_bytes(resources[name])} {name}")
        else:
            lines.append(f"{round(held.get(name, 0.0), 4)}/{resources[name]} {name}")
    return "\n".join(lines)


def human_bytes(amount: float) -> str:
    for unit, size in _UNITS.items():
        if amount >= size:
            return f"{amount / size:.2f}{unit}"
    return f"{int(amount)}B"


routes = [
    SessionRoute(
        "/nodes",
        list_nodes,
        parameters=(*VIEW, Parameter("view", TEXT, "`summary`, `logs` or `hostNameList`.")),
        forwarded=True,
    ),
    SessionRoute("/nodes/{node_id}", get_node, forwarded=True),
]
