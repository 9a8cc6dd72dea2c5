"""One sentence about what went wrong, put together of counts and times alone; none where they do not carry it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .digest import Digest
    from .failed_tasks import Group
    from .session_jobs import Job

_IN_WORDS = {
    "OUT_OF_MEMORY": "tasks began to run out of memory",
    "WORKER_DIED": "workers began to die",
    "NODE_DIED": "tasks were lost with their node",
    "ACTOR_DIED": "calls to a dead actor began to fail",
    "ACTOR_UNAVAILABLE": "calls to an unavailable actor began to fail",
    "TASK_CANCELLED": "tasks were cancelled",
    "RUNTIME_ENV_SETUP_FAILED": "runtime environments could not be set up",
    "OBJECT_LOST": "objects were lost",
    "OWNER_DIED": "owners of objects died",
}


@dataclass(frozen=True, slots=True)
class Headline:
    title: str
    text: str


def headline(digest: Digest, jobs: Sequence[Job]) -> Headline | None:
    """What happened first to what matters most: a job, else a node, else a function."""
    failed = sorted((job for job in jobs if job.status == "FAILED" and job.end_ms), key=lambda job: job.end_ms or 0)
    lost = [node for node in digest.nodes if not node.expected and node.end_ns]
    lasting = [group for group in digest.groups if group.recovered < group.tasks]
    if failed:
        job = failed[0]
        cause = _cause(lasting, job)
        which = f"{len(failed)} jobs failed; the first, {job.name}," if len(failed) > 1 else job.name
        title = f"{which} failed at {clock((job.end_ms or 0) * 10**6)}"
        if cause:
            title += f" after {_in_words(cause)} at {clock(cause.first_ns)}"
        return Headline(title, _share(digest, cause) if cause else (job.said or ""))
    if lost:
        node, *others = lost
        title = f"Node {node.name} was lost at {clock(node.end_ns or 0)}"
        if others:
            title = f"{len(lost)} nodes were lost, the first, {node.name}, at {clock(node.end_ns or 0)}"
        return Headline(title, _share(digest, lasting[0]) if lasting else node.reason)
    if lasting:
        first = lasting[0]
        return Headline(f"{_in_words(first, capital=True)} at {clock(first.first_ns)}", _share(digest, first))
    return None


def _cause(groups: Sequence[Group], job: Job) -> Group | None:
    """What failed most in this job before it did."""
    end = (job.end_ms or 0) * 10**6
    return next((group for group in groups if job.job_id in group.jobs and group.first_ns <= end), None)


def _in_words(group: Group, *, capital: bool = False) -> str:
    words = _IN_WORDS.get(group.error)
    if words:
        return words[:1].upper() + words[1:] if capital else words
    return f"{group.function} {'failed with' if group.error.isupper() else 'raised'} {group.error}"


def _share(digest: Digest, group: Group) -> str:
    parts = f'{group.total:,} of {digest.failed_attempts:,} failed attempts go back to "{group.function}"'
    if digest.failed_attempts == 1:
        parts = f'The only failed attempt was of "{group.function}"'
    node = next((node for node in digest.nodes if node.node_id == group.node_id), None)
    if node is None or not node.end_ns:
        return f"{parts}."
    return f"{parts} on node {node.name}, which died at {clock(node.end_ns)}."


def clock(ns: int) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%H:%M:%S")
