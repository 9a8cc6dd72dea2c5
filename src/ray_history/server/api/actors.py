"""Actors as the dashboard shows them: `/logical/actors` and `/logical/actors/{id}`.

The state of an actor comes from the tables. The usage of its process (memory, CPU, GPUs, the statistics of its core
worker) comes from polling: it exists for workers that were alive at the last poll, and for no earlier moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from ray_history.archive.layout import endpoint_name
from ray_history.history.read.views import View
from ray_history.history.registry import Version, minor_version
from ray_history.server.api.filters import EXCLUDE_INTERNAL, without_internal
from ray_history.server.api.polled import camel_case_keys, is_later, polled_data
from ray_history.server.api.resources import requested_resources
from ray_history.server.http.responses import enveloped
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import TEXT, VIEW, Parameter, SessionRoute

_NIL = "f" * 56
"""How Ray prints the node of an actor without one."""
_POLLED_TIMES = ("startTime", "endTime", "timestamp")
_CLOCK_SKEW_MS = 1000
_ADDED_TO_PROCESSES = ("coreWorkerStats", "language", "jobId")
"""Fields that Ray adds to the processes of a node when it lists them as workers."""


class ActorRow(NamedTuple):
    """An actor as the tables know it."""

    actor_id: str
    job_id: str | None
    state: str
    pid: int | None
    node_id: str | None
    ip: str | None
    port: int | None
    worker_id: str | None
    name: str | None
    class_name: str | None
    num_restarts: int
    repr_name: str | None
    call_site: str | None
    placement_group_id: str | None
    label_selector: str | None
    fallback_strategy: str | None
    required_resources: str
    exit_detail: str | None
    start_ms: int
    end_ms: int
    changed_ms: float


_COLUMNS = (
    "actor_id, job_id, state, pid, node_id, ip_address, port, worker_id, name, class_name, num_restarts, repr_name, "
    "call_site, placement_group_id, label_selector, fallback_strategy, required_resources, exit_detail, "
    "coalesce(ray_ms(start_ns), 0), coalesce(ray_ms(end_ns), 0), "
    "if(state in ('DEPENDENCIES_UNREADY', 'PENDING_CREATION'), 0, coalesce(ray_ms(changed_ns), 0))::double"
)


_TPUS_SINCE, _CONSTRUCTOR_BEFORE = (2, 56), (2, 50)


def list_actors(request: SessionRequest) -> Response:
    """All actors, or the ones in `ids=a,b`; as in Ray, unknown IDs are null."""
    users = without_internal(request, "actors", request.tables.source("actors", request.view))
    actors: dict[str, dict[str, Any] | None]
    if "ids" in request.query:
        ids = request.query["ids"].split(",")
        actors = actors_of(request, "actor_id", ids, users)
        actors = {actor_id: actors.get(actor_id) for actor_id in ids}
    else:
        actors = actor_infos(request, users)
    return enveloped({"actors": request.redacted(actors)}, "All actors fetched.")


def get_actor(request: SessionRequest) -> Response:
    """One actor; as in Ray, null if there is none."""
    actor_id = request.path_param("actor_id")
    actor = actors_of(request, "actor_id", [actor_id]).get(actor_id)
    return enveloped({"detail": request.redacted(camel_case_keys(actor))}, "Actor details fetched.")


def actors_of(
    request: SessionRequest, column: str, values: list[str], actors: str = ""
) -> dict[str, dict[str, Any] | None]:
    """The actors, of all or of these rows, with one of the values in the column, by id."""
    rows = actors or request.tables.source("actors", request.view)
    return actor_infos(request, f"(from {rows} where {column} in (select unnest(?)))", [values])


def actor_infos(
    request: SessionRequest, actors: str, values: list[object] | None = None
) -> dict[str, dict[str, Any] | None]:
    """The actors of these rows by id. Includes secrets."""
    found = request.tables.fetch(f"select {_COLUMNS} from {actors} order by start_ns, actor_id", values or [])
    rows = [ActorRow(*row) for row in found]
    usage = polled_usage(request, {row.node_id for row in rows if row.node_id})
    version = minor_version(request.open.facts.ray_version)
    return {
        row.actor_id: _of_version(version, _actor(row) | _polled(row, usage.get(row.node_id or "", NodeUsage())))
        for row in rows
    }


def _of_version(version: Version | None, actor: dict[str, Any]) -> dict[str, Any]:
    """The fields that actors have in some versions of Ray only. An unknown version counts as the newest."""
    if version is None or version >= _TPUS_SINCE:
        return actor | {"tpus": []}
    if version < _CONSTRUCTOR_BEFORE:
        return actor | {"actorConstructor": actor.get("actorTitle", "Unknown actor constructor")}
    return actor


def _actor(row: ActorRow) -> dict[str, Any]:
    actor: dict[str, Any] = {
        "actorId": row.actor_id,
        "jobId": row.job_id,
        "address": {
            "nodeId": row.node_id or _NIL,
            "ipAddress": row.ip or "",
            "port": row.port or 0,
            "workerId": row.worker_id or "",
        },
        "name": row.name,
        "className": row.class_name,
        "actorClass": row.class_name,
        "state": row.state,
        "numRestarts": str(row.num_restarts),
        "timestamp": row.changed_ms,
        "pid": row.pid,
        "startTime": row.start_ms,
        "endTime": row.end_ms,
        "reprName": row.repr_name,
        "labelSelector": msgspec.json.decode(row.label_selector or "{}"),
        "exitDetail": row.exit_detail or "-",
        "requiredResources": requested_resources(row.required_resources),
    }
    if row.call_site is not None:
        actor["callSite"] = row.call_site
    if row.placement_group_id is not None:
        actor["placementGroupId"] = row.placement_group_id
    if row.fallback_strategy is not None:
        actor["fallbackStrategy"] = msgspec.json.decode(row.fallback_strategy)
    return actor


def _polled(row: ActorRow, node: NodeUsage) -> dict[str, Any]:
    """The polled fields of an actor, and Ray's own times where they mean the same moment."""
    actor = object_of(node.actors.get(row.actor_id))
    times = dict(zip(_POLLED_TIMES, (row.start_ms, row.end_ms, row.changed_ms), strict=True))
    stats = node.core_workers.get(row.worker_id, {}) if row.worker_id else {}
    if "usedResources" in stats:
        stats = stats | {"usedResources": _with_original_names(stats["usedResources"], row.required_resources)}
    pid = str(stats.get("pid"))
    process = node.processes.get(pid)
    return {
        **{name: actor[name] for name, time in times.items() if _is_same_moment(time, actor.get(name))},
        **stats,
        "gpus": [gpu for gpu in node.gpus if process and pid in _pids(gpu)],
        "processStats": process,
        "mem": node.mem,
    }


def _with_original_names(used: Any, required: str | None) -> dict[str, Any]:
    """Resources of a polled page, whose names are in camel case, with their own names."""
    own = object_of(msgspec.json.decode(required or "{}"))
    names = {key: name for name in own for key in camel_case_keys({name: 0})}
    return {names.get(key, key): amount for key, amount in object_of(used).items()}


def _is_same_moment(time: float, polled: Any) -> bool:
    """Ray reads the clock for its table of actors some milliseconds before it does for the event."""
    return isinstance(polled, int | float) and bool(time) and abs(polled - time) < _CLOCK_SKEW_MS


# Polled usage ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeUsage:
    """The usage of a node's processes at the last poll."""

    core_workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Statistics by worker id."""
    processes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By process id, as text since it may have any type."""
    actors: dict[str, dict[str, Any]] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    mem: list[Any] = field(default_factory=list)


def polled_usage(request: SessionRequest, node_ids: Iterable[str]) -> dict[str, NodeUsage]:
    """Usage by node, from its own page if that was polled, else from the summary of all nodes."""
    wanted = set(node_ids)
    if not wanted:
        return {}
    nodes = polled_summaries(request, polled_data(request, "/nodes?view=summary")) | polled_details(request, wanted)
    return {
        node_id: _usage(nodes[node_id])
        for node_id in wanted & nodes.keys()
        if not is_later(request, nodes[node_id].get("now"), 1e9)
    }


def polled_summaries(request: SessionRequest, data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes of a polled summary, by id."""
    nodes = objects_of(data.get("summary"))
    return _as_observed(request, {str(object_of(node.get("raylet")).get("nodeId")): node for node in nodes})


def polled_details(request: SessionRequest, node_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The polled pages of nodes, by id."""
    names = {endpoint_name(f"/nodes/{node_id}"): node_id for node_id in node_ids}
    rows = request.tables.rows(
        "select name, body->'$.data.detail' from document where source = 'endpoint' and name in (select unnest(?))",
        [list(names)],
    )
    nodes = {names[name]: msgspec.json.decode(text or "null") for name, text in rows}
    # The page of a node that is dead has no usage.
    pages = {node_id: node for node_id, node in nodes.items() if isinstance(node, dict) and "now" in node}
    return _as_observed(request, pages)


def _as_observed(request: SessionRequest, pages: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    dead = _dead_workers(request, list(pages))
    return {node_id: _without_null_memory(_without_workers(page, dead[node_id])) for node_id, page in pages.items()}


def _dead_workers(request: SessionRequest, node_ids: list[str]) -> dict[str, set[str | int]]:
    """By node, the ids and processes of workers that had died by the requested moment, or when last observed."""
    dead: dict[str, set[str | int]] = {node_id: set() for node_id in node_ids}
    workers = request.tables.source("workers", View(request.view.at))
    condition = "not is_alive and node_id in (select unnest(?))"
    for node_id, worker_id, pid in request.tables.rows(
        f"select node_id, worker_id, pid from {workers} where {condition}", [node_ids]
    ):
        dead[node_id] |= {worker_id, pid}
    return dead


def _without_workers(page: dict[str, Any], dead: Collection[str | int]) -> dict[str, Any]:
    """The page of a node without processes that died after it was polled: workers are listed more often."""

    def lives(stats: dict[str, Any]) -> bool:
        return str(stats.get("workerId")) not in dead

    def runs(worker: dict[str, Any]) -> bool:
        known, pid = objects_of(worker.get("coreWorkerStats")), worker.get("pid")
        # Of a process that is about to exit the raylet has no statistics anymore.
        return any(map(lives, known)) if known else not (isinstance(pid, int) and pid in dead)

    if "workers" in page:
        page["workers"] = list(filter(runs, objects_of(page["workers"])))
    raylet = object_of(page.get("raylet"))
    if "coreWorkersStats" in raylet:
        raylet["coreWorkersStats"] = list(filter(lives, objects_of(raylet["coreWorkersStats"])))
    return page


def _without_null_memory(node: dict[str, Any]) -> dict[str, Any]:
    """Ray 2.60 sends null for memory figures that its system does not have. Its frontend takes all of them for numbers
    and then shows a blank page."""
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
    core_workers = objects_of(object_of(node.get("raylet")).get("coreWorkersStats"))
    for worker in objects_of(node.get("workers")):
        core_workers += objects_of(worker.get("coreWorkerStats"))
        process = {name: value for name, value in worker.items() if name not in _ADDED_TO_PROCESSES}
        usage.processes[str(worker.get("pid"))] = process
    usage.core_workers.update({str(stats.get("workerId")): stats for stats in core_workers})
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
