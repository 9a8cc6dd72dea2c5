"""What is remembered of a session from poll to poll, and what is due by it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto

from .answers import JobRow
from .endpoints import TRAIN_V1, TRAIN_V2, Endpoint, When

EMPTIES_OF_ENDED_JOB = 2
DATASETS_EVERY, TRAIN_EVERY, RAREST = 4, 8, 32
"""Polls between two questions that cost tasks in the user's job: doubled while nothing changes, up to the rarest."""
JOBS_PER_CYCLE = 20
NODE_EVERY, NODES_PER_CYCLE = 4, 50
"""Polls between two looks at one node, and the most looks in one cycle: 1,000 nodes take 20 cycles to go round."""
TERMINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


class Seen(Enum):
    """What came of a question."""

    CHANGED = auto()
    UNCHANGED = auto()
    EMPTY = auto()
    FAILED = auto()


@dataclass(slots=True)
class Kept:
    """What is known of one key."""

    digest: bytes | None = None
    """Of the body stored under it by this process."""
    occupied: bool = False
    """Whether something was stored under it, now or by a process before us."""
    empties: int = 0
    """In a row, up to now."""


@dataclass(slots=True)
class Pace:
    """When to ask again for what costs a task in the user's job, counted in polls."""

    every: int
    due: int = 0
    gap: int = 0

    def asked(self, now: int) -> None:
        self.gap = min(max(self.every, self.gap * 2), RAREST)
        self.due = now + self.gap

    def changed(self, now: int) -> None:
        self.gap = self.every
        self.due = now + self.gap


@dataclass(slots=True)
class Job:
    """How far the datasets of one job are kept."""

    ended: bool = False
    done: bool = False
    """Stored after the end: this will never change again."""
    given_up: bool = False
    empties: int = 0
    pace: Pace = field(default_factory=lambda: Pace(DATASETS_EVERY))


class Session:
    """All that is remembered; a new session starts with nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.kept: defaultdict[str, Kept] = defaultdict(Kept)
        self.jobs: dict[str, Job] = {}
        self.train = Pace(TRAIN_EVERY)
        self.train_owed: set[Endpoint] = set()
        """Not answered since a job ended."""
        self.looked_at: dict[str, int] = {}
        """Poll in which each node was last asked for."""

    def see_jobs(self, rows: list[JobRow]) -> None:
        ended: dict[str, bool] = {}
        for row in rows:
            if row.job_id and row.job_id.isalnum():  # null or blank until the driver has started
                ended[row.job_id] = row.status in TERMINAL and ended.get(row.job_id, True)
        if ended:  # an empty list may be the cluster's last word: keep what is known
            self.jobs = {name: self.jobs.get(name) or Job() for name in ended}
        for name, job in self.jobs.items():
            if ended.get(name, job.ended) != job.ended:
                job.ended, job.done, job.given_up, job.empties = not job.ended, False, False, 0
                job.pace = Pace(DATASETS_EVERY)
                self.train_owed |= {TRAIN_V2, TRAIN_V1} if job.ended else set()

    def jobs_due(self, *, final: bool) -> list[str]:
        if final:
            names = [name for name, job in self.jobs.items() if not job.done]
            return sorted(names, key=lambda name: (self.jobs[name].given_up, self.jobs[name].ended))
        names = [n for n, job in self.jobs.items() if not (job.done or job.given_up) and job.pace.due <= self.number]
        return sorted(names, key=lambda name: self.jobs[name].pace.due)[:JOBS_PER_CYCLE]

    def train_due(self, *, final: bool) -> bool:
        running = any(not job.ended for job in self.jobs.values())
        return final or bool(self.train_owed) or (running and self.train.due <= self.number)

    def nodes_due(self, alive: list[str], *, final: bool) -> list[str]:
        """The nodes that waited longest, those never seen before all others."""
        self.looked_at = {node: self.looked_at[node] for node in alive if node in self.looked_at}
        due = [n for n in alive if final or self.number - self.looked_at.get(n, -NODE_EVERY) >= NODE_EVERY]
        due.sort(key=lambda node: self.looked_at.get(node, -1))
        self.looked_at.update(dict.fromkeys(due[:NODES_PER_CYCLE], self.number))
        return due[:NODES_PER_CYCLE]

    def settle(self, endpoint: Endpoint, subject: str, seen: Seen) -> None:
        """What the outcome means for asking again."""
        if endpoint.when is When.WITH_TRAIN:
            if seen is not Seen.FAILED:
                self.train_owed.discard(endpoint)
            if seen is Seen.CHANGED:
                self.train.changed(self.number)
        if endpoint.when is When.PER_JOB:
            job = self.jobs[subject]
            if seen is Seen.CHANGED:
                job.pace.changed(self.number)
            if job.ended:
                job.done = seen in (Seen.CHANGED, Seen.UNCHANGED)
                job.empties += seen is Seen.EMPTY
                job.given_up = job.empties >= EMPTIES_OF_ENDED_JOB
                job.pace.due = self.number + 1
