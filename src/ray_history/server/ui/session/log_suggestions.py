"""Log files to look at first: of failed drivers, of the workers of failed tasks, and of Ray's own processes.

Only names and sizes are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.server.logs.worker_files import worker_file
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.ui.session.diagnosis import Diagnosis
from ray_history.server.ui.session.jobs import Job

MOST = 12
_MOST_GROUPS = 5
_HEAD_LOGS = (
    ("gcs_server.err", "errors of the control plane"),
    ("raylet.err", "errors of the head's raylet"),
    ("gcs_server.out", "the control plane"),
    ("monitor.log", "the autoscaler"),
)
_DRIVERS = {
    "FAILED": "driver of a failed job",
    "INTERRUPTED": "driver of a job that was running at the end",
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A log file, and why to look at it."""

    node_id: str
    name: str
    size: int
    why: str

    @property
    def page(self) -> str:
        """The address of its page, below that of the session."""
        return "_log?" + urlencode({"node_id": self.node_id, "filename": self.name})

    @property
    def in_dashboard(self) -> str:
        return "#/logs/viewer?" + urlencode({"nodeId": self.node_id, "fileName": self.name})


_Candidate = tuple[LogFile, str]


def suggest_logs(request: SessionRequest, diagnosis: Diagnosis, jobs: list[Job]) -> list[Suggestion]:
    """At most `MOST` files that are not empty, the most informative first."""
    found: dict[tuple[str, str], Suggestion] = {}
    for file, why in _candidates(request, diagnosis, jobs):
        if file.size:
            found.setdefault((file.node, file.name), Suggestion(file.node, file.name, file.size, why))
        if len(found) == MOST:
            break
    return list(found.values())


def _candidates(request: SessionRequest, diagnosis: Diagnosis, jobs: list[Job]) -> Iterator[_Candidate]:
    # A large cluster has thousands of nodes: only the log folders of those involved are listed.
    logs = request.open.logs
    failed = [job for job in jobs if job.status in _DRIVERS]
    yield from _drivers(logs, failed)
    yield from _workers(logs, diagnosis)
    for node in diagnosis.nodes:
        yield from _file(logs, "raylet.out", node.node_id, f"node {node.name}, until it left")
    if diagnosis.groups or diagnosis.nodes or failed:
        yield from _head(request)


def _drivers(logs: LogFiles, jobs: list[Job]) -> Iterator[_Candidate]:
    for job in jobs:
        if job.submission_id:
            yield from _file(logs, f"job-driver-{job.submission_id}.log", job.driver_node_id, _DRIVERS[job.status])


def _workers(logs: LogFiles, diagnosis: Diagnosis) -> Iterator[_Candidate]:
    for group in diagnosis.groups[:_MOST_GROUPS]:
        for suffix in ("err", "out"):
            file = worker_file(logs, group.example.node_id, group.example.worker_id, suffix)
            if file:
                yield file, f"worker of the first {group.error} in {group.function}"


def _head(request: SessionRequest) -> Iterator[_Candidate]:
    heads = request.tables.rows(f"select node_id from {request.tables.source('nodes')} where is_head_node")
    for name, why in _HEAD_LOGS:
        for (node,) in heads:
            yield from _file(request.open.logs, name, node, why)


def _file(logs: LogFiles, name: str, node: str | None, why: str) -> Iterator[_Candidate]:
    if node and node in logs.nodes():
        try:
            yield logs.find(node, name), why
        except NotFound:
            return
