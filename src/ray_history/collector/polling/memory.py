"""Remembers a session from poll to poll, and decides what is due."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto

from .answers import JobRow
from .endpoints import SPANS_SINCE, TRAIN_V1, TRAIN_V2, Endpoint, When

MAX_EMPTY_AFTER_END = 2
DATASETS_EVERY, TRAIN_EVERY, MAX_GAP = 4, 8, 32
"""Polls between two requests that run tasks in the user's job: doubled while nothing changes, up to the last."""
JOBS_PER_CYCLE = 20
SMALL, LARGE = 1 << 20, 16 << 20
"""Bytes of an answer that may be requested in each poll, some 500 actors or tasks, and in every fourth."""
NODE_EVERY, NODES_PER_CYCLE = 4, 50
"""Polls between two requests for one node, and the most nodes per cycle: 1,000 nodes take 20 cycles."""
TERMINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


class Change(Enum):
    """How an answer compares with the stored one."""

    CHANGED = auto()
    UNCHANGED = auto()
    EMPTY = auto()
    FAILED = auto()


@dataclass(slots=True)
class StoredAnswer:
    """The answers of one key."""

    digest: bytes | None = None
    """Of the body that this process stored."""
    occupied: bool = False
    """Whether there is a stored answer, of this or an earlier process."""
    empty_answers: int = 0
    """Empty answers in a row."""
    size: int = 0
    """Bytes of the last one."""


@dataclass(slots=True)
class Pace:
    """When to repeat a request that runs a task in the user's job, counted in polls."""

    every: int
    due: int = 0
    gap: int = 0

    def requested(self, now: int) -> None:
        self.gap = min(max(self.every, self.gap * 2), MAX_GAP)
        self.due = now + self.gap

    def changed(self, now: int) -> None:
        self.gap = self.every
        self.due = now + self.gap


@dataclass(slots=True)
class Job:
    """The datasets of one job."""

    ended: bool = False
    done: bool = False
    """Stored after the end of the job: they will not change again."""
    given_up: bool = False
    empty_answers: int = 0
    pace: Pace = field(default_factory=lambda: Pace(DATASETS_EVERY))


class SessionMemory:
    """Everything that is remembered of a session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.answers: defaultdict[str, StoredAnswer] = defaultdict(StoredAnswer)
        self.jobs: dict[str, Job] = {}
        self.train = Pace(TRAIN_EVERY)
        self.train_pending: set[Endpoint] = set()
        """Endpoints without an answer since a job ended."""
        self.polled_at: dict[str, int] = {}
        """The poll that last requested each node."""
        self.sends_spans = True
        self.lists_tasks = False
        """Whether all tasks are polled, because Ray sends no events."""
        self._listed_tasks_at = 0

    def is_due(self, endpoint: Endpoint, *, final: bool) -> bool:
        """Whether to request an endpoint that depends on no other answer."""
        match endpoint.when:
            case When.ONCE:
                return not self.answers[endpoint.url].digest
            case When.EVERY_POLL:
                return True
            case When.WITH_ACTORS:
                return final or self.number % 4 == 1
            case When.WITHOUT_SPANS:
                return (self.lists_tasks or not self.sends_spans) and (
                    final or self._is_time_for(self.answers[endpoint.url].size)
                )
        return False

    def _is_time_for(self, size: int) -> bool:
        pause = 1 if size <= SMALL else 4 if size <= LARGE else 16
        return self.number - self._listed_tasks_at >= pause

    def update_version(self, version: tuple[int, ...]) -> None:
        self.sends_spans = not version or version >= SPANS_SINCE

    def is_due_with_actors(self, endpoint: Endpoint, *, final: bool) -> bool:
        """Whether to request it in this cycle because the listing of actors changed."""
        return not self.is_due(endpoint, final=final) and self.answers[endpoint.url].size <= SMALL

    def update_jobs(self, rows: list[JobRow]) -> None:
        ended: dict[str, bool] = {}
        for row in rows:
            if row.job_id and row.job_id.isalnum():  # null or blank until the driver has started
                ended[row.job_id] = row.status in TERMINAL and ended.get(row.job_id, True)
        if ended:  # an empty list may come from a cluster that shuts down
            self.jobs = {name: self.jobs.get(name) or Job() for name in ended}
        for name, job in self.jobs.items():
            if ended.get(name, job.ended) != job.ended:
                job.ended, job.done, job.given_up, job.empty_answers = not job.ended, False, False, 0
                job.pace = Pace(DATASETS_EVERY)
                self.train_pending |= {TRAIN_V2, TRAIN_V1} if job.ended else set()

    def jobs_due(self, *, final: bool) -> list[str]:
        if final:
            names = [name for name, job in self.jobs.items() if not job.done]
            return sorted(names, key=lambda name: (self.jobs[name].given_up, self.jobs[name].ended))
        names = [n for n, job in self.jobs.items() if not (job.done or job.given_up) and job.pace.due <= self.number]
        return sorted(names, key=lambda name: self.jobs[name].pace.due)[:JOBS_PER_CYCLE]

    def train_due(self, *, final: bool) -> bool:
        running = any(not job.ended for job in self.jobs.values())
        return final or bool(self.train_pending) or (running and self.train.due <= self.number)

    def nodes_due(self, alive: list[str], *, final: bool) -> list[str]:
        """The nodes that were not requested for longest, new ones first."""
        self.polled_at = {node: self.polled_at[node] for node in alive if node in self.polled_at}
        due = [n for n in alive if final or self.number - self.polled_at.get(n, -NODE_EVERY) >= NODE_EVERY]
        due.sort(key=lambda node: self.polled_at.get(node, -1))
        self.polled_at.update(dict.fromkeys(due[:NODES_PER_CYCLE], self.number))
        return due[:NODES_PER_CYCLE]

    def settle(self, endpoint: Endpoint, subject: str, change: Change) -> None:
        """Decide when to repeat the request."""
        if endpoint.when is When.WITHOUT_SPANS:
            self._listed_tasks_at = self.number
        if endpoint.when is When.WITH_TRAIN:
            if change is not Change.FAILED:
                self.train_pending.discard(endpoint)
            if change is Change.CHANGED:
                self.train.changed(self.number)
        if endpoint.when is When.PER_JOB:
            job = self.jobs[subject]
            if change is Change.CHANGED:
                job.pace.changed(self.number)
            if job.ended:
                job.done = change in (Change.CHANGED, Change.UNCHANGED)
                job.empty_answers += change is Change.EMPTY
                job.given_up = job.empty_answers >= MAX_EMPTY_AFTER_END
                job.pace.due = self.number + 1
