"""One sentence about what went wrong, put together of counts and times alone; none where they do not carry it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray_history.server.ui.session.diagnosis import Digest
    from ray_history.server.ui.session.failures import Group
    from ray_history.server.ui.session.jobs import Job

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


@dataclass(frozen=True, slots=True)
class Cause:
    """What failed in one way: one function that raised, or all that Ray failed for one reason of its own."""

    groups: tuple[Group, ...]
    """The largest first."""

    @property
    def total(self) -> int:
        return sum(group.total for group in self.groups)

    @property
    def first_ns(self) -> int:
        return min(group.first_ns for group in self.groups)

    @property
    def node_id(self) -> str | None:
        nodes = {group.node_id for group in self.groups}
        return nodes.pop() if len(nodes) == 1 else None

    @property
    def in_words(self) -> str:
        largest = self.groups[0]
        words = _IN_WORDS.get(largest.error)
        if words:
            return words
        return f"{largest.function} {'failed with' if largest.error.isupper() else 'raised'} {largest.error}"


def causes(groups: Sequence[Group]) -> list[Cause]:
    """What did not come right when it was tried again, the largest first."""
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.recovered < group.tasks:
            alike.setdefault((group.error, "" if group.error in _IN_WORDS else group.function), []).append(group)
    return sorted((Cause(tuple(found)) for found in alike.values()), key=lambda cause: (-cause.total, cause.first_ns))


def headline(digest: Digest, jobs: Sequence[Job]) -> Headline | None:
    """What happened first to what matters most: a job, else a node, else a function."""
    failed = sorted((job for job in jobs if job.status == "FAILED" and job.end_ms), key=lambda job: job.end_ms or 0)
    lost = [node for node in digest.nodes if not node.expected and node.end_ns]
    if failed:
        return _of_job(digest, failed[0], len(failed))
    found = causes(digest.groups)
    if lost:
        node, *others = lost
        title = f"Node {node.name} was lost at {clock(node.end_ns or 0)}"
        if others:
            title = f"{len(lost)} nodes were lost, the first, {node.name}, at {clock(node.end_ns or 0)}"
        return Headline(title, _share(digest, found[0]) if found else node.reason)
    if found:
        words = found[0].in_words
        title = words[:1].upper() + words[1:] if found[0].groups[0].error in _IN_WORDS else words
        return Headline(f"{title} at {clock(found[0].first_ns)}", _share(digest, found[0]))
    return None


def _of_job(digest: Digest, job: Job, failed: int) -> Headline:
    """The first job that failed, and what failed most in it before it did."""
    end = (job.end_ms or 0) * 10**6
    title = f"{failed} jobs failed; the first, {job.name}, failed" if failed > 1 else f"{job.name} failed"
    title += f" at {clock(end)}"
    before = causes([group for group in digest.groups if job.job_id in group.jobs and group.first_ns <= end])
    if not before:
        return Headline(title, job.said or "")
    return Headline(f"{title} after {before[0].in_words} at {clock(before[0].first_ns)}", _share(digest, before[0]))


def _share(digest: Digest, cause: Cause) -> str:
    function = f'"{cause.groups[0].function}"'
    told = f"{cause.total:,} of {digest.failed_attempts:,} failed attempts "
    if len(cause.groups) > 1:
        told += f"ended that way, in {len(cause.groups)} functions, the largest part in {function}"
    elif digest.failed_attempts == 1:
        told = f"The only failed attempt was of {function}"
    else:
        told += f"go back to {function}"
    node = next((node for node in digest.nodes if node.node_id == cause.node_id), None)
    if node is None or not node.end_ns:
        return f"{told}."
    return f"{told} on node {node.name}, which died at {clock(node.end_ns)}."


def clock(ns: int) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%H:%M:%S")
