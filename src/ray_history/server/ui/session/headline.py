"""One sentence about what went wrong, derived from counts and times; None where they do not support one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_history.server import formatting
from ray_history.server.ui.session.departures import DepartedNode
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
"""Failures that Ray decides; they are one cause for all functions."""


@dataclass(frozen=True, slots=True)
class Headline:
    title: str
    text: str
    node_id: str | None = field(default=None, compare=False)
    """The node on which it happened, if it is one."""
    at_ns: int | None = field(default=None, compare=False)
    """When it happened."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Groups with the same cause: one function that raised, or one of Ray's own reasons."""

    groups: tuple[Group, ...]
    """The largest first."""

    @property
    def total(self) -> int:
        return sum(group.total for group in self.groups)

    @property
    def first_ns(self) -> int:
        return min(group.first_ns for group in self.groups)

    @property
    def error(self) -> str:
        return self.groups[0].error

    @property
    def node_id(self) -> str | None:
        nodes = {group.node_id for group in self.groups}
        return nodes.pop() if len(nodes) == 1 else None

    @property
    def first_node_id(self) -> str | None:
        """The node of the first failure."""
        return min(self.groups, key=lambda group: group.first_ns).example.node_id

    @property
    def in_words(self) -> str:
        if words := _IN_WORDS.get(self.error):
            return words
        return f"{self.groups[0].function} {'failed with' if self.error.isupper() else 'raised'} {self.error}"


def causes(groups: Sequence[Group]) -> list[Cause]:
    """The causes of failures that did not succeed on retry, the largest first."""
    by_cause: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if not group.has_recovered:
            key = (group.error, "" if group.error in _IN_WORDS else group.function)
            by_cause.setdefault(key, []).append(group)
    found = [Cause(tuple(groups)) for groups in by_cause.values()]
    return sorted(found, key=lambda cause: (-cause.total, cause.first_ns))


@dataclass(frozen=True, slots=True)
class Findings:
    """What the headline is derived from."""

    failed_attempts: int
    groups: Sequence[Group]
    nodes: Sequence[DepartedNode]
    jobs: Sequence[Job]

    def headline(self) -> Headline | None:
        """The first of: a failed job, a lost node, the largest cause of failures."""
        failed, cause = self._failed_jobs(), self._cause()
        if failed:
            return self._about_jobs(failed, cause)
        lost = [node for node in self.nodes if not node.expected and node.end_ns]
        if lost:
            return self._about_nodes(lost, cause)
        if cause:
            words = cause.in_words
            title = words[:1].upper() + words[1:] if cause.error in _IN_WORDS else words
            title = f"{title} at {_clock(cause.first_ns)}"
            return Headline(title, self._share(cause), cause.first_node_id, cause.first_ns)
        return None

    def ordered_groups(self) -> list[Group]:
        """The groups that the headline names, then the others, the largest first; those that recovered come last."""
        cause = self._cause()
        named = cause.groups if cause else ()
        return sorted(
            self.groups, key=lambda group: (group not in named, group.has_recovered, -group.total, group.first_ns)
        )

    def _failed_jobs(self) -> list[Job]:
        return sorted((job for job in self.jobs if job.status == "FAILED" and job.end_ms), key=_job_end_ns)

    def _cause(self) -> Cause | None:
        """The largest cause of failures; if jobs failed, in the first of them before its end."""
        groups = self.groups
        for job in self._failed_jobs()[:1]:
            groups = [group for group in groups if job.job_id in group.jobs and group.first_ns <= _job_end_ns(job)]
        return next(iter(causes(groups)), None)

    def _about_jobs(self, failed: Sequence[Job], cause: Cause | None) -> Headline:
        """The job that failed first, and the largest cause of failures in it before."""
        job, end = failed[0], _job_end_ns(failed[0])
        title = f"{job.name} failed"
        if len(failed) > 1:
            title = f"{len(failed)} jobs failed; the first, {job.name}, failed"
        title += f" at {_clock(end)}"
        if cause is None:
            return Headline(title, job.reason or "")
        title += f" after {cause.in_words} at {_clock(cause.first_ns)}"
        return Headline(title, self._share(cause), cause.first_node_id, cause.first_ns)

    def _about_nodes(self, lost: Sequence[DepartedNode], cause: Cause | None) -> Headline:
        node, lost_at = lost[0], _clock(lost[0].end_ns or 0)
        title = f"Node {node.name} was lost at {lost_at}"
        if len(lost) > 1:
            title = f"{len(lost)} nodes were lost, the first, {node.name}, at {lost_at}"
        return Headline(title, self._share(cause) if cause else node.reason, node.node_id, node.end_ns)

    def _share(self, cause: Cause) -> str:
        """How many of the failed attempts a cause explains, and the node if it left, too."""
        largest = cause.groups[0]
        if len(cause.groups) > 1:
            text = (
                f"{cause.total:,} of {self.failed_attempts:,} failed attempts had this cause, "
                f'in {len(cause.groups)} functions, most of them in "{largest.function}"'
            )
        elif self.failed_attempts == 1:
            text = f'The only failed attempt was in "{largest.function}"'
        else:
            message = formatting.clip(largest.example.trace.message, 160)
            subject = f'"{message}" in {largest.function}' if message else f'"{largest.function}"'
            text = f"{subject} caused {cause.total:,} of {self.failed_attempts:,} failed attempts"
        node = next((node for node in self.nodes if node.node_id == cause.node_id), None)
        if node is None or not node.end_ns:
            return f"{text}."
        return f"{text} on node {node.name}, which {'left' if node.expected else 'was lost'} at {_clock(node.end_ns)}."


def _job_end_ns(job: Job) -> int:
    return (job.end_ms or 0) * 10**6


def _clock(ns: int) -> str:
    return formatting.clock(ns / 1e9)
