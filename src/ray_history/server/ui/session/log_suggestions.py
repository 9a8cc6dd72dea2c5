"""Log files worth reading: of drivers that failed, of the workers of failed tasks, and what Ray's own processes wrote
when something went wrong. Names are those of the listing; nothing is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFile
from ray_history.server.logs.targets import worker_file
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.ui.session.diagnosis import Digest
from ray_history.server.ui.session.jobs import Job

MOST = 12
_MOST_GROUPS = 5


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A log file, and why."""

    node_id: str
    name: str
    size: int
    why: str

    @property
    def as_text(self) -> str:
        """Its address below the session's: all of it, shown by the browser."""
        return "api/v0/logs/file?" + urlencode(
            {"node_id": self.node_id, "filename": self.name, "lines": -1, "inline": 1}
        )

    @property
    def in_dashboard(self) -> str:
        return "#/logs/viewer?" + urlencode({"nodeId": self.node_id, "fileName": self.name})


def worth_reading(request: SessionRequest, digest: Digest, jobs: list[Job]) -> list[Suggestion]:
    """The most telling first."""
    found: dict[tuple[str, str], Suggestion] = {}
    for file, why in _candidates(request, digest, jobs):
        if file.size:
            found.setdefault((file.node, file.name), Suggestion(file.node, file.name, file.size, why))
        if len(found) == MOST:
            break
    return list(found.values())


def _candidates(request: SessionRequest, digest: Digest, jobs: list[Job]) -> Iterator[tuple[LogFile, str]]:
    """Only nodes that had a part in it are listed: a large cluster has thousands."""
    ended_badly = [job for job in jobs if job.status in ("FAILED", "UNKNOWN")]
    for job in ended_badly:
        why = "driver of a job that failed" if job.status == "FAILED" else "driver of a job cut off by the end"
        if job.submission_id:
            yield from _named(request, f"job-driver-{job.submission_id}.log", job.driver_node_id, why)
    for group in digest.groups[:_MOST_GROUPS]:
        first = group.example
        for suffix in ("err", "out"):
            file = worker_file(request.open.logs, first.node_id, first.worker_id, suffix)
            if file:
                yield file, f"worker of the first {group.error} in {group.function}"
    for node in digest.nodes:
        yield from _named(request, "raylet.out", node.node_id, f"node {node.name}, until it was gone")
    if not (digest.groups or digest.nodes or ended_badly):
        return
    for name, why in (
        ("gcs_server.err", "what the control plane complained of"),
        ("raylet.err", "what the head's raylet complained of"),
        ("gcs_server.out", "the control plane"),
        ("monitor.log", "the autoscaler"),
    ):
        for (head,) in request.tables.rows(f"select node_id from {request.tables.source('nodes')} where is_head_node"):
            yield from _named(request, name, head, why)


def _named(request: SessionRequest, name: str, node: str | None, why: str) -> Iterator[tuple[LogFile, str]]:
    logs = request.open.logs
    if node and node in logs.nodes():
        try:
            yield logs.find(node, name), why
        except NotFound:
            return
