"""Which log file is meant: by name, task, actor, process or submitted job, in Ray's order of precedence.

Names are looked up among the files that were listed, never joined into a key. As in Ray an actor goes before a task,
a task before a submitted job, that before a process, and a file name comes last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.server.http.query_params import integer, one_of
from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import TEXT, Parameter

NODE_ID = Parameter("node_id", TEXT, "Node ID.")
NODE_IP = Parameter("node_ip", TEXT, "Node IP address.")

_WORKER = re.compile(r"(?:.*/)?worker-(?P<worker>[0-9a-f]+)-(?P<job>[0-9a-f]+)-(?P<pid>[0-9]+)\.(?P<suffix>out|err)")
_ON_THE_NODE = re.compile(r"/.*/session_[^/]+/logs/(?P<name>.+)")
"""Where Ray kept a file, as its messages show it."""
_TASK_ID, _ACTOR_ID = re.compile(r"[0-9a-f]{48}"), re.compile(r"[0-9a-f]{32}")
_MOST_LIVES = 20
_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """A log file, and which of its bytes."""

    file: LogFile
    start: int = 0
    end: int | None = None
    """None for all there are."""
    grows: bool = True
    """Whether more may come while the session goes on."""


def target(request: SessionRequest) -> Target:
    """The log that a request asks for."""
    query = request.query
    suffix = one_of(query, "suffix", ("out", "err"), "out")
    attempt = integer(query, "attempt_number", 0, least=0)
    pid = integer(query, "pid", 0, least=0)
    if actor := query.get("actor_id"):
        return Target(_actor_file(request, actor, suffix))
    if task := query.get("task_id"):
        return _task_target(request, task, attempt, suffix)
    if submission := query.get("submission_id"):
        return Target(submission_file(request, submission))
    filename = query.get("filename", "")
    if not pid and not filename:
        raise ApiError(
            400,
            "None of actor_id, task_id, pid, submission_id or filename is provided. "
            "At least one of them is required to fetch logs.",
        )
    nodes = nodes_meant(request)
    if pid:
        return Target(_process_file(request.open.logs, nodes, pid, suffix))
    return Target(_named_file(request.open.logs, nodes, _relative(filename)))


def nodes_meant(request: SessionRequest) -> list[str]:
    """The nodes of `node_id` or `node_ip` that have logs; an address may have been that of several, newest first."""
    node, address = request.query.get("node_id"), request.query.get("node_ip")
    known = request.open.logs.nodes()
    if node:
        if "/" in node or node in (".", ".."):
            raise ApiError(400, f"node_id is {node[:80]!r}; it takes a node's id, as /api/v0/nodes lists them")
        if node not in known:
            raise ApiError(404, f"{_said_of(request, node)}; {_with_logs(known)}")
        return [node]
    if not address:
        raise ApiError(
            400,
            "Both node id and node ip are not provided. Please provide at least one of them; /api/v0/nodes lists both.",
        )
    rows = _rows(request, "node_id", "nodes", "node_ip = ? order by start_ns desc nulls last", [address])
    if not rows:
        raise ApiError(
            404, f"Cannot find matching node_id for a given node ip {address[:80]}; /api/v0/nodes lists the addresses"
        )
    found = [node for (node,) in rows if node in known]
    if not found:
        raise ApiError(
            404, f"{_said_of(request, rows[0][0])}, which had the address {address[:80]}; {_with_logs(known)}"
        )
    return found


def submission_file(request: SessionRequest, submission: str) -> LogFile:
    """The log of a submitted job's driver, on the node where it ran."""
    name = f"job-driver-{submission}.log"
    for node in _driver_nodes(request, submission):
        try:
            return request.open.logs.find(node, name)
        except NotFound:
            continue
    raise ApiError(
        404,
        f"no node has a log of a submitted job {submission[:80]!r}; /api/jobs/ lists the jobs, and a job that was not "
        "submitted through the job API writes to its own terminal",
    )


def _driver_nodes(request: SessionRequest, submission: str) -> Iterator[str]:
    known = request.open.logs.nodes()
    told = _rows(request, "driver_node_id", "jobs", "submission_id = ?", [submission])
    heads = _rows(request, "node_id", "nodes", "is_head_node", [])
    for node in dict.fromkeys([*(node for (node,) in told + heads), *known]):
        if node in known:
            yield node


def _actor_file(request: SessionRequest, actor: str, suffix: str) -> LogFile:
    actor = _hex(actor, _ACTOR_ID, "actor_id", "/api/v0/actors")
    lives = _rows(request, "node_id, worker_id", "actors", "actor_id = ?", [actor])
    if not lives:
        raise ApiError(404, f"Actor ID {actor} not found; /api/v0/actors lists the actors")
    for node, worker in lives:
        if found := worker_file(request.open.logs, node, worker, suffix):
            return found
    # An actor that restarted has the output of its earlier lives elsewhere: its tasks tell where it was.
    earlier = _rows(
        request,
        "node_id, worker_id",
        "tasks",
        "actor_id = ? and worker_id is not null group by all order by max(running_ns) desc nulls last limit ?",
        [actor, _MOST_LIVES],
    )
    for node, worker in earlier:
        if found := worker_file(request.open.logs, node, worker, suffix):
            return found
    node, worker = lives[0]
    if not worker and not earlier:
        raise ApiError(404, f"Worker ID for Actor ID {actor} not found. Actor is not scheduled yet.")
    raise ApiError(404, f"node {node} has no .{suffix} file of worker {worker}, in which actor {actor} ran")


def _task_target(request: SessionRequest, task: str, attempt: int, suffix: str) -> Target:
    task = _hex(task, _TASK_ID, "task_id", "/api/v0/tasks")
    columns = (
        f"attempt_number, state, node_id, worker_id, actor_id, std{suffix}_file, std{suffix}_start, std{suffix}_end"
    )
    rows = request.tables.rows(
        f"select {columns} from {request.tables.task(task, request.view)} where task_id = ?", [task]
    )
    attempts = {row[0]: row[1:] for row in rows}
    if not attempts:
        raise ApiError(404, f"Could not find log file for task: {task}; /api/v0/tasks lists the tasks")
    if attempt not in attempts:
        raise ApiError(
            404, f"Could not find log file for task attempt: {task}({attempt}); there are attempts {sorted(attempts)}"
        )
    state, node, worker, actor, path, start, end = attempts[attempt]
    logs = request.open.logs
    if path and node:
        file = _named_file(logs, _having([node], logs), PurePosixPath(path).name)
        # Ray tells the end with a task's last event: one whose worker died has none, and owns the rest of the file.
        return Target(file, start or 0, end, grows=end is None and state not in ("FINISHED", "FAILED"))
    if actor:
        raise ApiError(
            400,
            f"For actor task, please query actor log for actor({actor}): e.g. ray logs actor --id {actor} . Or set "
            "RAY_ENABLE_RECORD_ACTOR_TASK_LOGGING=1 in actor's runtime env or when starting the cluster. "
            "Recording actor task's log could be expensive, so Ray turns it off by default.",
        )
    if found := worker_file(logs, node, worker, suffix):
        return Target(found)
    raise ApiError(
        404,
        f"Could not find log file for task attempt: {task}({attempt}). It is {state}, worker id = {worker}, "
        f"node id = {node}, and Ray told of no std{suffix} file",
    )


def _process_file(logs: LogFiles, nodes: list[str], pid: int, suffix: str) -> LogFile:
    found = [file for node in nodes for file in _workers(logs, node, suffix, pid=str(pid))]
    if not found:
        raise ApiError(404, f"node {nodes[0]} has no .{suffix} file of a worker with pid {pid}; list the node's logs")
    return max(found, key=lambda file: file.modified or _NEVER)  # a pid is used again


def worker_file(logs: LogFiles, node: str | None, worker: str | None, suffix: str) -> LogFile | None:
    """What a worker printed, if its node has it."""
    if not node or not worker or node not in logs.nodes():
        return None
    found = list(_workers(logs, node, suffix, worker=worker))
    return max(found, key=lambda file: file.size) if found else None  # `old/` may have it too, longer


def _workers(logs: LogFiles, node: str, suffix: str, *, worker: str = "", pid: str = "") -> Iterator[LogFile]:
    for file in logs.list(node):
        match = _WORKER.fullmatch(file.name)
        if match and match["suffix"] == suffix and worker in ("", match["worker"]) and pid in ("", match["pid"]):
            yield file


def _named_file(logs: LogFiles, nodes: list[str], name: str) -> LogFile:
    """A file by its path, or by its last part when only one file has it."""
    missing: NotFound | None = None
    for node in nodes:
        try:
            return logs.find(node, name)
        except NotFound as error:
            missing = missing or error
        alike = [file for file in logs.list(node) if file.name.endswith("/" + name)] if "/" not in name else []
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise ApiError(
                404, f"{len(alike)} files have the name {name!r}; give one of {_some(f.name for f in alike)}"
            )
    raise ApiError(404, str(missing))


def _relative(filename: str) -> str:
    """A file's path below the log directory; Ray's own full paths are taken too."""
    on_the_node = _ON_THE_NODE.fullmatch(filename)
    name = on_the_node["name"] if on_the_node else filename
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ApiError(
            400,
            f"filename is {filename[:80]!r}; it takes a path below the node's log directory, as /api/v0/logs lists",
        )
    return str(PurePosixPath(name))


def _having(nodes: list[str], logs: LogFiles) -> list[str]:
    if nodes[0] not in logs.nodes():
        raise ApiError(404, f"the archive has no logs of node {nodes[0]}; {_with_logs(logs.nodes())}")
    return nodes


def _hex(text: str, pattern: re.Pattern[str], name: str, where: str) -> str:
    if not pattern.fullmatch(text.lower()):
        raise ApiError(400, f"{name} is {text[:80]!r}; it takes an id in hex, as {where} lists them")
    return text.lower()


def _said_of(request: SessionRequest, node: str) -> str:
    if _rows(request, "1", "nodes", "node_id = ?", [node]):
        return f"the archive has no logs of node {node}: no collector ran there, or it stored none yet"
    return f"there is no node {node[:80]}"


def _with_logs(nodes: Iterable[str]) -> str:
    return f"nodes with logs are {_some(nodes)}" if nodes else "no node has any"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _rows(request: SessionRequest, columns: str, table: str, where: str, values: list[Any]) -> list[tuple[Any, ...]]:
    return request.tables.rows(
        f"select {columns} from {request.tables.source(table, request.view)} where {where}", values
    )
