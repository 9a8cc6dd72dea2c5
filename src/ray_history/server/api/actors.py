"""Actors as the dashboard shows them: `/logical/actors` and `/logical/actors/{id}`.

What an actor is and how it ended stands in the tables. What its process used (memory, CPU, GPUs, the figures of its
core worker) is known only from polling, for workers that were alive at the last poll, and at no moment before that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.archive.layout import endpoint_name
from ray_history.server.api.filters import EXCLUDE_INTERNAL, without_internal
from ray_history.server.api.polled import camel_case_keys, is_later, polled_data
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import amounts_of, object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import TEXT, VIEW, Parameter, SessionRoute

_NIL = "f" * 56
"""How Ray prints the node and the worker of an actor that has none."""
_IN_BUNDLE = re.compile(r"(?P<name>.+)_group_(\d+_)?[0-9a-zA-Z]+")
_TIMES = ("startTime", "endTime", "timestamp")
_APART_MS = 1000
_COLUMNS = (
    "actor_id, job_id, state, pid, node_id, ip_address, port, worker_id, name, class_name, num_restarts, repr_name, "
    "call_site, placement_group_id, label_selector, fallback_strategy, required_resources, exit_detail, "
    "coalesce(ray_ms(start_ns), 0), coalesce(ray_ms(end_ns), 0), coalesce(ray_ms(changed_ns), 0)::double"
)


def list_actors(request: SessionRequest) -> Response:
    """All actors, or those of `ids=a,b`; unknown ones are null, as in Ray."""
    ids = request.query["ids"].split(",") if "ids" in request.query else None
    users = without_internal(request, "actors", request.tables.source("actors", request.view))
    actors = actor_infos(request, users) if ids is None else actors_of(request, "actor_id", ids, users)
    if ids is not None:
        actors = {actor_id: actors.get(actor_id) for actor_id in ids}
    return enveloped({"actors": shown(request, actors)}, "All actors fetched.")


def get_actor(request: SessionRequest) -> Response:
    """One actor; null if there is none, as in Ray."""
    actor_id = request.path_param("actor_id")
    actor = actors_of(request, "actor_id", [actor_id]).get(actor_id)
    return enveloped({"detail": shown(request, camel_case_keys(actor))}, "Actor details fetched.")


def actors_of(
    request: SessionRequest, column: str, values: list[str], actors: str = ""
) -> dict[str, dict[str, Any] | None]:
    """Those that have one of these values, by their ids, of all or of these rows."""
    rows = actors or request.tables.source("actors", request.view)
    return actor_infos(request, f"(from {rows} where {column} in (select unnest(?)))", [values])


def actor_infos(
    request: SessionRequest, actors: str, values: list[object] | None = None
) -> dict[str, dict[str, Any] | None]:
    """Actors of these rows by their ids. Secrets included."""
    rows = request.tables.fetch(f"select {_COLUMNS} from {actors} order by start_ns, actor_id", values or [])
    usage = polled_usage(request, {row[4] for row in rows if row[4]})
    return {row[0]: _actor(row, usage.get(row[4], NodeUsage())) for row in rows}


def _actor(row: tuple[Any, ...], node: NodeUsage) -> dict[str, Any]:
    (
        actor_id, job_id, state, pid, node_id, ip, port, worker_id, name, class_name, restarts, repr_name, call_site,
        placement_group_id, label_selector, fallback_strategy, resources, exit_detail, start_ms, end_ms, changed_ms,
    ) = row  # fmt: skip
    actor: dict[str, Any] = {
        "actorId": actor_id,
        "jobId": job_id,
        "address": {
            "nodeId": node_id or _NIL,
            "ipAddress": ip or "",
            "port": port or 0,
            "workerId": worker_id or _NIL,
        },
        "name": name,
        "className": class_name,
        "actorClass": class_name,
        "state": state,
        "numRestarts": str(restarts),
        "timestamp": changed_ms,
        "pid": pid,
        "startTime": start_ms,
        "endTime": end_ms,
        "reprName": repr_name,
        "labelSelector": msgspec.json.decode(label_selector),
        "exitDetail": exit_detail or "-",
        "requiredResources": original_resources(amounts_of(msgspec.json.decode(resources))),
    }
    if call_site is not None:
        actor["callSite"] = call_site
    if placement_group_id is not None:
        actor["placementGroupId"] = placement_group_id
    if fallback_strategy is not None:
        actor["fallbackStrategy"] = msgspec.json.decode(fallback_strategy)
    told = object_of(node.actors.get(actor_id))
    actor |= {name: told[name] for name in _TIMES if _is_same_moment(actor[name], told.get(name))}
    figures = node.core_workers.get(worker_id, {})
    actor |= figures
    process = node.processes.get(str(figures.get("pid")))
    gpus = [gpu for gpu in node.gpus if process and str(figures.get("pid")) in _pids(gpu)]
    return actor | {"gpus": gpus, "processStats": process, "mem": node.mem, "tpus": []}


def _is_same_moment(ours: float, told: Any) -> bool:
    """Ray reads the clock for its table some milliseconds before it does for the event: both tell of one moment."""
    return isinstance(told, int | float) and bool(ours) and abs(told - ours) < _APART_MS


def original_resources(resources: dict[str, float]) -> dict[str, float]:
    """Resources as they were asked for: inside a placement group Ray calls `CPU` `CPU_group_0_<id>`."""
    original = {}
    for name, amount in resources.items():
        in_bundle = _IN_BUNDLE.fullmatch(name)
        if in_bundle is None:
            original[name] = amount
        elif in_bundle["name"] != "bundle":  # reserved by Ray for itself
            original[in_bundle["name"]] = amount
    return original


# What polling saw ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeUsage:
    """What the processes of a node used when it was last polled."""

    core_workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By worker id."""
    processes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By process id, as text: it may be anything."""
    actors: dict[str, dict[str, Any]] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    mem: list[Any] = field(default_factory=list)


def polled_usage(request: SessionRequest, nodes: Iterable[str]) -> dict[str, NodeUsage]:
    """By node: from its own page, where it was polled, else from the summary of all nodes."""
    wanted = set(nodes)
    if not wanted:
        return {}
    summaries = polled_summaries(polled_data(request, "/nodes?view=summary"))
    details = polled_details(request, wanted)
    found = {node_id: details.get(node_id) or summaries[node_id] for node_id in wanted & (summaries | details).keys()}
    return {node_id: _usage(node) for node_id, node in found.items() if not is_later(request, node.get("now"), 1e9)}


def polled_summaries(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes of a polled summary, by id."""
    return {
        str(object_of(node.get("raylet")).get("nodeId")): _readable(node) for node in objects_of(data.get("summary"))
    }


def polled_details(request: SessionRequest, nodes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The pages of nodes that were polled while these were alive, by id."""
    names = {endpoint_name(f"/nodes/{node_id}"): node_id for node_id in nodes}
    rows = request.tables.rows(
        "select name, body->'$.data.detail' from document where source = 'endpoint' and name in (select unnest(?))",
        [list(names)],
    )
    found = {names[name]: msgspec.json.decode(text or "null") for name, text in rows}
    return {node_id: _readable(node) for node_id, node in found.items() if isinstance(node, dict) and "now" in node}


def _readable(node: dict[str, Any]) -> dict[str, Any]:
    """A node without the memory figures that its system has not: Ray 2.60 sends them as null, and its frontend, which
    takes all of them for numbers, then shows nothing but a blank page."""
    for worker in objects_of(node.get("workers")):
        if "memoryInfo" in worker:
            figures = object_of(worker["memoryInfo"])
            worker["memoryInfo"] = {name: figure for name, figure in figures.items() if figure is not None}
    return node


def _usage(node: dict[str, Any]) -> NodeUsage:
    mem = node.get("mem")
    usage = NodeUsage(
        actors=object_of(node.get("actors")),
        gpus=objects_of(node.get("gpus")),
        mem=mem if isinstance(mem, list) else [],
    )
    figures = objects_of(object_of(node.get("raylet")).get("coreWorkersStats"))
    for worker in objects_of(node.get("workers")):
        figures += objects_of(worker.get("coreWorkerStats"))
        # What Ray adds to a process when it lists the workers of a node.
        added = ("coreWorkerStats", "language", "jobId")
        usage.processes[str(worker.get("pid"))] = {key: value for key, value in worker.items() if key not in added}
    usage.core_workers.update({str(of_worker.get("workerId")): of_worker for of_worker in figures})
    return usage


def _pids(gpu: dict[str, Any]) -> set[str]:
    return {str(process.get("pid")) for process in objects_of(gpu.get("processesPids"))}


routes = [
    SessionRoute(
        "/logical/actors",
        list_actors,
        parameters=(*VIEW, Parameter("ids", TEXT, "Only these actors, separated by commas."), EXCLUDE_INTERNAL),
        forwarded=True,
    ),
    SessionRoute("/logical/actors/{actor_id}", get_actor, forwarded=True),
]
