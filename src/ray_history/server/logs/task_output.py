"""The output of tasks whose events do not say where it is: of Ray up to 2.56, and of workers that were killed.

Ray 2.49 to 2.53 say nothing of it, 2.54 to 2.56 for most tasks only where it ends. The files of a worker are then
searched for the marks that it wrote between tasks (`task_marks`), when a task of it is requested.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from ray_history.archive.errors import ArchiveError, NotFound
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.history.read.views import LAST
from ray_history.history.registry import TASK_LOG
from ray_history.server.logs.task_marks import Part, Run, assign, find_marks
from ray_history.server.logs.worker_files import worker_file
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session
from ray_history.server.sessions.open_session import OpenSession

logger = logging.getLogger(__name__)

IS_UNREPORTED = """coalesce(
    type = 'NORMAL_TASK' and running_ns is not null and node_id is not null and worker_id is not null
    and (stdout_file is null or stdout_start is null), false
)"""
"""SQL: whether a task ran and its events do not say where its output begins. Ray itself keeps none of actors' tasks."""
_WAS_ENDED = "coalesce(state = 'FINISHED' or error_type = 'TASK_EXECUTION_EXCEPTION', false)"
RAN = f"(running_ns is not null or {_WAS_ENDED})"
"""SQL: whether an attempt ran for certain. Its worker may have been killed before it reported that."""
MAX_FILE = 256 << 20
"""Bytes of a file that is searched for one task."""
MAX_SEARCHED, MAX_PARTS = 256 << 20, 200_000
"""Bytes that are searched for the listings of an open session, and parts that it caches, 350 bytes each."""


class Worker(NamedTuple):
    node: str
    id: str


class Output(NamedTuple):
    """A file of a worker, and the parts of its tasks as far as they are certain, by task id and attempt."""

    file: LogFile
    parts: dict[tuple[str, int], Part]


@dataclass(slots=True)
class _Searched:
    """What was found in an open session."""

    outputs: dict[tuple[Worker, str], Output | None] = field(default_factory=dict)
    bytes: int = 0
    parts: int = 0

    @property
    def is_full(self) -> bool:
        return self.parts >= MAX_PARTS

    def has_room(self, file: LogFile | None) -> bool:
        return not self.is_full and self.bytes + (file.size if file else 0) <= MAX_SEARCHED

    def add(self, worker: Worker, suffix: str, output: Output | None) -> None:
        self.outputs[worker, suffix] = output
        self.bytes += output.file.size if output else 0
        self.parts += len(output.parts) if output else 0


_searched: WeakKeyDictionary[OpenSession, _Searched] = WeakKeyDictionary()


def find_output(request: SessionRequest, worker: Worker, suffix: str) -> Output | None:
    """The output of a worker; None without a file. A file that is too large has no parts."""
    searched = _searched.setdefault(request.open, _Searched())
    if (worker, suffix) in searched.outputs:
        return searched.outputs[worker, suffix]
    file = worker_file(request.open.logs, *worker, suffix)
    if file is None:
        return None
    if file.size > MAX_FILE:
        return Output(file, {})
    output = _search(request, file, _runs(request, [worker], suffix)[worker.id])
    if searched.has_room(file):
        searched.add(worker, suffix, output)
    return output


def _find_outputs(request: SessionRequest, workers: Iterable[Worker], suffix: str) -> dict[Worker, Output]:
    """The output of workers, for a listing: of those that are within the limits of the session."""
    searched = _searched.setdefault(request.open, _Searched())
    workers = set(workers)
    missing = sorted(worker for worker in workers if (worker, suffix) not in searched.outputs)
    if missing and not searched.is_full:
        _search_all(request, missing, suffix, searched)
    found = {worker: searched.outputs.get((worker, suffix)) for worker in workers}
    return {worker: output for worker, output in found.items() if output is not None}


def _search_all(request: SessionRequest, workers: Sequence[Worker], suffix: str, searched: _Searched) -> None:
    runs = _runs(request, workers, suffix)
    try:
        for worker in workers:
            file = worker_file(request.open.logs, *worker, suffix)
            if searched.has_room(file):
                searched.add(worker, suffix, _search(request, file, runs[worker.id]) if file else None)
    except ArchiveError as error:  # the rest of a row is worth more than the place of its output
        logger.warning("a listing of tasks is without the place of some outputs: %s", error)


def _search(request: SessionRequest, file: LogFile, runs: Sequence[Run]) -> Output:
    logs = request.open.logs
    reader = logs.open(file)
    # A part that is missing may have had marks, and those of the rest would seem to be of other tasks.
    if reader.gaps or _was_rotated(logs, file):
        return Output(file, {})
    return Output(file, assign(list(find_marks(reader.stream())), runs, reader.size))


def _was_rotated(logs: LogFiles, file: LogFile) -> bool:
    stem, dot, ending = file.name.rpartition(".")
    for name in (f"{file.name}.1", f"{stem}.1{dot}{ending}"):
        try:
            logs.find(file.node, name)
        except NotFound:
            continue
        return True
    return bool(logs.earlier(file))


def _runs(request: SessionRequest, workers: Sequence[Worker], suffix: str) -> dict[str, list[Run]]:
    """What each worker ran, in the order of its start."""
    rows = request.tables.rows(
        f"""
        select
            worker_id, running_ns, {RAN},
            task_id, attempt_number, name, {_WAS_ENDED}, std{suffix}_start, std{suffix}_end
        from {request.tables.source("tasks", LAST)}
        where type = 'NORMAL_TASK' and name is not null and list_contains(?, worker_id)
        order by coalesce(submitted_to_worker_ns, running_ns), task_id, attempt_number
        """,
        [[worker.id for worker in workers]],
    )
    sent = defaultdict[str, list[_Sent]](list)
    for worker, running_ns, ran, *values in rows:
        sent[worker].append(_Sent(running_ns, ran, Run(*values)))
    return defaultdict(list, {worker: _in_order(attempts) for worker, attempts in sent.items()})


class _Sent(NamedTuple):
    """An attempt that was sent to a worker."""

    running_ns: int | None
    ran: bool
    run: Run


def _in_order(sent: Sequence[_Sent]) -> list[Run]:
    """The attempts that a worker ran, of those that were sent to it, in this order by the clocks of their owners."""
    ran = [each for each in sent if each.ran]
    starts = [each.running_ns for each in ran if each.running_ns is not None]
    if starts != sorted(starts) and not any(_has_place(each.run) for each in ran):
        # The clock of the worker says otherwise, so the place of those without a time of its own is unknown.
        return [each.run for each in sorted(ran, key=lambda each: each.running_ns or 0) if each.running_ns is not None]
    # Of the others, one may have been the last: its worker was killed before it reported the start.
    others = [each.run._replace(is_certain=False) for each in sent if not each.ran]
    return [each.run for each in ran] + (others if len(others) == 1 else [])


def _has_place(run: Run) -> bool:
    return run.start is not None or run.end is not None


# Rows of tasks --------------------------------------------------------------------------------------------------------


@cached_per_session
def has_unreported(request: SessionRequest) -> bool:
    """Whether events do not say where the output of some tasks is."""
    tasks = request.tables.source("tasks", LAST)
    return bool(request.tables.rows(f"select 1 from {tasks} where {IS_UNREPORTED} limit 1"))


def with_outputs(request: SessionRequest, rows: Sequence[tuple[bytes, bool, bool]]) -> list[tuple[bytes, bool, bool]]:
    """Rows of tasks, as a listing makes them: those whose output is unreported with a `task_log_info` from the files of
    their workers."""
    decoded = {place: msgspec.json.decode(text) for place, (text, _, is_unreported) in enumerate(rows) if is_unreported}
    if not decoded:
        return list(rows)
    workers = {Worker(row["node_id"], row["worker_id"]) for row in decoded.values()}
    outputs = {suffix: _find_outputs(request, workers, suffix) for suffix in ("out", "err")}
    filled = list(rows)
    for place, row in decoded.items():
        row["task_log_info"] = _log_info(request, row, outputs)
        filled[place] = (msgspec.json.encode(row), *rows[place][1:])
    return filled


def _log_info(
    request: SessionRequest, row: dict[str, Any], outputs: dict[str, dict[Worker, Output]]
) -> dict[str, Any] | None:
    info = dict[str, Any](row["task_log_info"] or {})
    for suffix, of_workers in outputs.items():
        output = of_workers.get(Worker(row["node_id"], row["worker_id"]))
        part = output.parts.get((row["task_id"], row["attempt_number"])) if output else None
        if output and part:
            name = PurePosixPath(output.file.name).name  # without `old/`
            info[f"std{suffix}_file"] = str(PurePosixPath(_log_directory(request, output.file.node)) / name)
            info[f"std{suffix}_start"] = part.start
            if part.end is not None:
                info[f"std{suffix}_end"] = part.end
    return {name: info[name] for name in TASK_LOG if name in info} or None


def _log_directory(request: SessionRequest, node: str) -> str:
    """The directory of log files on a node, or on any other, which is nearly always the same; empty if unknown."""
    known = _log_directories(request)
    return known.get(node) or next(iter(known.values()), "")


@cached_per_session
def _log_directories(request: SessionRequest) -> dict[str, str]:
    """By node, as far as polled pages have it."""
    rows = request.tables.rows(
        """
        select body->>'$.data.detail.raylet.nodeId', body->>'$.data.detail.raylet.rayletSocketName'
        from document
        where source = 'endpoint' and regexp_full_match(name, 'restful__nodes__[0-9a-f]{56}')
        order by name
        """
    )
    return {node: str(PurePosixPath(socket).parent.parent / "logs") for node, socket in rows if node and socket}
