"""The log file that a request selects: by actor, task, submitted job, process or name.

If several are given, the first in this order decides, as in Ray. Names are looked up among the listed files, never
joined into a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.server.http.query_params import integer, one_of
from ray_history.server.http.responses import ApiError
from ray_history.server.logs.task_output import RAN, Worker, find_output
from ray_history.server.logs.worker_files import worker_file, worker_files
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import NUMBER, TEXT, Parameter, one_of_texts

NODE_ID = Parameter("node_id", TEXT, "Node ID.")
NODE_IP = Parameter("node_ip", TEXT, "Node IP address.")

TARGET_PARAMETERS = (
    NODE_ID,
    NODE_IP,
    Parameter("filename", TEXT, "Log file of this name."),
    Parameter("task_id", TEXT, "Output of this task."),
    Parameter("attempt_number", NUMBER, "Attempt of the task."),
    Parameter("actor_id", TEXT, "Output of this actor."),
    Parameter("pid", NUMBER, "Output of this process."),
    Parameter("submission_id", TEXT, "Output of the driver of this submitted job."),
    Parameter("suffix", one_of_texts("out", "err"), "Output stream."),
)
"""What `requested_target` reads."""

_ON_THE_NODE = re.compile(r"/.*/session_[^/]+/logs/(?P<name>.+)")
"""The path of a log file on its node, as Ray's messages show it."""
_TASK_ID, _ACTOR_ID = re.compile(r"[0-9a-f]{48}"), re.compile(r"[0-9a-f]{32}")
_MAX_LIVES = 20
_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """A log file, and which of its bytes."""

    file: LogFile
    start: int = 0
    end: int | None = None
    """None for all."""
    grows: bool = True
    """Whether more bytes may follow while the session is live."""
    ends_at_mark: bool = False
    """Whether what grows is over as soon as its worker marks the begin of another task."""


def requested_target(request: SessionRequest) -> Target:
    query = request.query
    suffix = one_of(query, "suffix", ("out", "err"), "out")
    attempt = integer(query, "attempt_number", 0, minimum=0)
    pid = integer(query, "pid", 0, minimum=0)
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
    nodes = requested_nodes(request)
    if pid:
        return Target(_process_file(request.open.logs, nodes, pid, suffix))
    return Target(_named_file(request.open.logs, nodes, _relative(filename)))


def requested_nodes(request: SessionRequest) -> list[str]:
    """The nodes of `node_id` or `node_ip` that have logs; of several that had the address, the newest first."""
    node, address = request.query.get("node_id"), request.query.get("node_ip")
    with_logs = request.open.logs.nodes()
    if node:
        if "/" in node or node in (".", ".."):
            raise ApiError(400, f"invalid node_id {node[:80]!r}: expected an id as listed by /api/v0/nodes")
        if node not in with_logs:
            raise ApiError(404, f"{_without_logs(request, node)}; {_with_logs(with_logs)}")
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
    found = [node for (node,) in rows if node in with_logs]
    if not found:
        raise ApiError(
            404, f"{_without_logs(request, rows[0][0])}, which had the address {address[:80]}; {_with_logs(with_logs)}"
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
    with_logs = request.open.logs.nodes()
    drivers = _rows(request, "driver_node_id", "jobs", "submission_id = ?", [submission])
    heads = _rows(request, "node_id", "nodes", "is_head_node", [])
    for node in dict.fromkeys([*(node for (node,) in drivers + heads), *with_logs]):
        if node in with_logs:
            yield node


def _actor_file(request: SessionRequest, actor: str, suffix: str) -> LogFile:
    actor = _hex(actor, _ACTOR_ID, "actor_id", "/api/v0/actors")
    lives = _rows(request, "node_id, worker_id", "actors", "actor_id = ?", [actor])
    if not lives:
        raise ApiError(404, f"Actor ID {actor} not found; /api/v0/actors lists the actors")
    for node, worker in lives:
        if found := worker_file(request.open.logs, node, worker, suffix):
            return found
    # The output of an actor before a restart is elsewhere: its tasks show where it ran.
    earlier = _rows(
        request,
        "node_id, worker_id",
        "tasks",
        "actor_id = ? and worker_id is not null group by all order by max(running_ns) desc nulls last limit ?",
        [actor, _MAX_LIVES],
    )
    for node, worker in earlier:
        if found := worker_file(request.open.logs, node, worker, suffix):
            return found
    node, worker = lives[0]
    if not worker and not earlier:
        raise ApiError(404, f"Worker ID for Actor ID {actor} not found. Actor is not scheduled yet.")
    raise ApiError(404, f"node {node} has no .{suffix} file of worker {worker}, in which actor {actor} ran")


class _Attempt(NamedTuple):
    """One attempt of a task, and where its output is."""

    number: int
    state: str
    type: str
    ran: bool
    node: str | None
    worker: str | None
    actor: str | None
    path: str | None
    start: int | None
    end: int | None


def _attempts(request: SessionRequest, task: str, suffix: str) -> dict[int, _Attempt]:
    output = f"std{suffix}_file, std{suffix}_start, std{suffix}_end"
    rows = request.tables.rows(
        f"select attempt_number, state, type, {RAN}, node_id, worker_id, actor_id, {output} "
        f"from {request.tables.task(task, request.view)} where task_id = ?",
        [task],
    )
    return {attempt.number: attempt for attempt in map(_Attempt._make, rows)}


def _task_target(request: SessionRequest, task: str, number: int, suffix: str) -> Target:
    task = _hex(task, _TASK_ID, "task_id", "/api/v0/tasks")
    attempts = _attempts(request, task, suffix)
    if not attempts:
        raise ApiError(404, f"Could not find log file for task: {task}; /api/v0/tasks lists the tasks")
    if number not in attempts:
        raise ApiError(
            404, f"Could not find log file for task attempt: {task}({number}); there are attempts {sorted(attempts)}"
        )
    attempt, logs = attempts[number], request.open.logs
    if attempt.path and attempt.node:
        file = _named_file(logs, _having([attempt.node], logs), PurePosixPath(attempt.path).name)
        # Ray sends the end with the task's last event. If its worker died there is none, and the rest of the file
        # belongs to the task.
        end = _end_by_mark(request, task, attempt, suffix) if attempt.end is None else attempt.end
        return _part(file, attempt, attempt.start or 0, end)
    if attempt.actor:
        raise ApiError(
            400,
            f"For actor task, please query actor log for actor({attempt.actor}): e.g. ray logs actor --id "
            f"{attempt.actor} . Or set RAY_ENABLE_RECORD_ACTOR_TASK_LOGGING=1 in actor's runtime env or when starting "
            "the cluster. Recording actor task's log could be expensive, so Ray turns it off by default.",
        )
    return _target_in_worker_file(request, task, attempt, suffix)


def _target_in_worker_file(request: SessionRequest, task: str, attempt: _Attempt, suffix: str) -> Target:
    """The output of a task whose events do not say where it is."""
    message = (
        f"Could not find log file for task attempt: {task}({attempt.number}). It is {attempt.state}, "
        f"worker id = {attempt.worker}, node id = {attempt.node}, and Ray reported no std{suffix} file"
    )
    if attempt.type != "NORMAL_TASK" or not attempt.node or not attempt.worker:
        raise ApiError(404, message)
    output = find_output(request, Worker(attempt.node, attempt.worker), suffix)
    if output is None:
        raise ApiError(404, message)
    part = output.parts.get((task, attempt.number))
    if part is None and not attempt.ran:
        raise ApiError(404, message)
    if part is None:
        raise ApiError(
            404,
            f"{message}. Which part of its worker's file is its output cannot be told: the lines that the worker wrote "
            f"before each task do not match the tasks that it is known to have run. The whole file is "
            f"filename={output.file.name} of node_id={attempt.node}",
        )
    return _part(output.file, attempt, part.start, part.end)


def _end_by_mark(request: SessionRequest, task: str, attempt: _Attempt, suffix: str) -> int | None:
    """Where the worker marked the begin of its next task, of which events may not have arrived yet."""
    if attempt.type != "NORMAL_TASK" or not attempt.node or not attempt.worker:
        return None
    output = find_output(request, Worker(attempt.node, attempt.worker), suffix)
    part = output.parts.get((task, attempt.number)) if output else None
    return part.end if part else None


def _part(file: LogFile, attempt: _Attempt, start: int, end: int | None) -> Target:
    grows = end is None and attempt.state not in ("FINISHED", "FAILED")
    return Target(file, start, end, grows, ends_at_mark=grows and attempt.type == "NORMAL_TASK")


def _process_file(logs: LogFiles, nodes: list[str], pid: int, suffix: str) -> LogFile:
    found = [file for node in nodes for file in worker_files(logs, node, suffix, pid=str(pid))]
    if not found:
        raise ApiError(404, f"node {nodes[0]} has no .{suffix} file of a worker with pid {pid}; list the node's logs")
    return max(found, key=lambda file: file.modified or _NEVER)  # pids are reused


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
            raise ApiError(404, f"{len(alike)} files have the name {name!r}; use one of {_some(f.name for f in alike)}")
    raise ApiError(404, str(missing))


def _relative(filename: str) -> str:
    """The path of a file below the log directory; full paths from Ray's messages are accepted, too."""
    on_the_node = _ON_THE_NODE.fullmatch(filename)
    name = on_the_node["name"] if on_the_node else filename
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ApiError(
            400,
            f"invalid filename {filename[:80]!r}: expected a path below the node's log directory, "
            "as listed by /api/v0/logs",
        )
    return str(PurePosixPath(name))


def _having(nodes: list[str], logs: LogFiles) -> list[str]:
    if nodes[0] not in logs.nodes():
        raise ApiError(404, f"the archive has no logs of node {nodes[0]}; {_with_logs(logs.nodes())}")
    return nodes


def _hex(text: str, pattern: re.Pattern[str], name: str, where: str) -> str:
    if not pattern.fullmatch(text.lower()):
        raise ApiError(400, f"invalid {name} {text[:80]!r}: expected a hexadecimal id as listed by {where}")
    return text.lower()


def _without_logs(request: SessionRequest, node: str) -> str:
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
