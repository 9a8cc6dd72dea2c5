"""One cycle: everything due is requested and stored, and what the answers make due is requested too."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from typing import Any

import msgspec

from ray_history.archive import ledger
from ray_history.archive.errors import ArchiveError
from ray_history.collector.destination import Destination
from ray_history.decoding import DECODING_ERRORS

from .answers import ROWS, JobRow, alive_nodes, has_content, is_partial, job_rows, ray_version
from .dashboard_client import BadStatus, Dashboard, DashboardError, Misconfigured, Refused, TimedOut, Unreachable
from .endpoints import (
    ACTORS,
    DATA_ACTOR,
    DATASETS,
    JOBS,
    LOGICAL_ACTORS,
    NODE,
    NODES,
    TRAIN_ACTOR,
    TRAIN_V1,
    TRAIN_V2,
    VERSION,
    EmptyAnswers,
    Endpoint,
)
from .memory import Change, SessionMemory

CONCURRENCY = 4
"""Concurrent requests: one slow endpoint does not delay the cycle, and the load on the dashboard stays low."""
REQUEST_SECONDS = 10.0
FINAL_REQUEST_SECONDS = 3.0
ACCEPTED_AFTER = 3
"""Empty answers in a row: a cluster that shuts down gives up to two before it stops answering."""
NOT_FROM_RAY = "not an answer of Ray"

EVERYTHING, ARCHIVE, TIME = "every answer", "the archive", "time"

logger = logging.getLogger(__name__)

Outcome = bytes | bool | DashboardError | ArchiveError
Callback = Callable[[Outcome], None]


@dataclass(slots=True)
class PollReport:
    """The result of one cycle."""

    stored: int = 0
    unchanged: int = 0
    empty: int = 0
    """Answers without content that were not stored."""
    failed: int = 0
    """Without usable answer, too late, or not stored because of an error."""
    bytes: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """What failed (an endpoint, EVERYTHING, ARCHIVE or TIME) and why; without unreachable dashboards."""
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)
    """By URL of an endpoint, the outcomes of its requests in their order (see `archive.ledger`), and their errors."""

    def note(self, endpoint: Endpoint, outcome: str, detail: str = "") -> None:
        found = self.outcomes.setdefault(endpoint.url, {})
        found.pop(outcome, None)
        found[outcome] = detail[:200]

    def fail(self, what: str, why: object) -> None:
        self.failed += 1
        if isinstance(why, Unreachable):
            logger.debug("%s: %s", what, why)  # not started yet, or gone: the next poll tries again
            return
        if isinstance(why, ArchiveError):
            what = ARCHIVE
        if isinstance(why, Refused | Misconfigured):
            what = EVERYTHING
        self.failures.setdefault(what, str(why))


class Cycle:
    """Sends requests in order of importance; answers may add further ones to the queue."""

    def __init__(
        self,
        destination: Destination,
        dashboard: Dashboard,
        endpoints: tuple[Endpoint, ...],
        session: SessionMemory,
        deadline: float,
        final: bool,
    ) -> None:
        self.destination = destination
        self.dashboard = dashboard
        self.ranks = {endpoint: rank for rank, endpoint in enumerate(endpoints, 1)}
        self.session = session
        self.deadline = deadline
        self.final = final
        self.report = PollReport()
        self._queue: list[tuple[int, int, str, Callback]] = []
        self._pool = ThreadPoolExecutor(CONCURRENCY, "poll")
        self._running: dict[Future[Outcome], Callback] = {}
        self._order = count()

    def run(self, stopped: Future[None]) -> PollReport:
        for endpoint in self.ranks:
            if self.session.is_due(endpoint, final=self.final):
                self._enqueue(endpoint)
        try:
            while (self._queue or self._running) and not self._is_over(stopped):
                self._step(stopped)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
        missed = len(self._queue) + len(self._running)
        self.report.failed += missed
        if missed and not stopped.done():
            self.report.failures[TIME] = "the deadline passed before all answers arrived"
        return self.report

    def _step(self, stopped: Future[None]) -> None:
        """Start requests from the queue, and handle the next answers."""
        while self._queue and len(self._running) < CONCURRENCY:
            _, _, url, callback = heappop(self._queue)
            self._submit(partial(self._request, url), callback)
        awaited: list[Future[Any]] = [*self._running, stopped]
        finished = wait(awaited, self.deadline - time.monotonic(), FIRST_COMPLETED).done
        if not self._is_over(stopped):
            for future in finished:
                self._running.pop(future)(future.result())

    def _is_over(self, stopped: Future[None]) -> bool:
        return stopped.done() or time.monotonic() >= self.deadline

    # In the threads of the pool

    def _request(self, url: str) -> Outcome:
        longest = FINAL_REQUEST_SECONDS if self.final else REQUEST_SECONDS
        try:
            return self.dashboard.get(url, timeout=min(longest, self.deadline - time.monotonic())).body
        except DashboardError as error:
            return error

    def _write(self, url: str, body: bytes, write: Callable[[str, bytes], bool | None]) -> Outcome:
        try:
            return write(self.destination.endpoint(self.session.name, url), body) is not False
        except ArchiveError as error:
            return error

    # In the thread of the cycle

    def _submit(self, work: Callable[[], Outcome], callback: Callback) -> None:
        self._running[self._pool.submit(work)] = callback

    def _enqueue(self, endpoint: Endpoint, subject: str = "") -> None:
        url = endpoint.url.format(subject) if subject else endpoint.url
        # There are many nodes, so they come after the user's own endpoints.
        rank = len(self.ranks) if endpoint is NODE else self.ranks[endpoint]
        request_url = url + ("&" if "?" in url else "?") + endpoint.parameters if endpoint.parameters else url
        callback: Callback = partial(self._answered, endpoint, url, subject)
        heappush(self._queue, (rank, next(self._order), request_url, callback))

    def _answered(self, endpoint: Endpoint, url: str, subject: str, outcome: Outcome) -> None:
        settle = partial(self.session.settle, endpoint, subject)
        if isinstance(outcome, BadStatus) and outcome.status in endpoint.absent_statuses:
            self.report.empty += 1
            self.report.note(endpoint, ledger.ANSWERED)
            return settle(Change.EMPTY)
        if not isinstance(outcome, bytes):
            self.report.fail(endpoint.url, outcome)
            self.report.note(endpoint, _ledger_outcome(outcome), str(outcome))
            return settle(Change.FAILED)
        has_data = bool(outcome.strip()) if endpoint.any_body else has_content(outcome, endpoint.content)
        try:
            if has_data is None:
                raise msgspec.ValidationError
            self._plan(endpoint, outcome)
        except DECODING_ERRORS:
            self.report.fail(endpoint.url, NOT_FROM_RAY)
            self.report.note(endpoint, ledger.FAILED, NOT_FROM_RAY)
            return settle(Change.FAILED)
        self.report.note(endpoint, ledger.ANSWERED)
        if has_data and self.final and endpoint.content == ROWS:
            has_data = not is_partial(outcome)  # some nodes are gone already
        return self._store_answer(endpoint, url, outcome, has_data, settle)

    def _store_answer(
        self, endpoint: Endpoint, url: str, body: bytes, has_data: bool, settle: Callable[[Change], None]
    ) -> None:
        previous, digest = self.session.answers[url], blake2b(body, digest_size=16).digest()
        previous.size = len(body)
        previous.empty_answers = 0 if has_data else previous.empty_answers + 1
        enough = previous.empty_answers >= ACCEPTED_AFTER and not self.final
        accepted = endpoint.empty_answers is EmptyAnswers.THIRD and enough
        if digest == previous.digest:
            self.report.unchanged += 1
            return settle(Change.UNCHANGED)
        write: Callable[[str, bytes], bool | None] = self.destination.store.put
        if not has_data and not accepted:
            if endpoint.empty_answers is EmptyAnswers.IGNORED or endpoint.any_body or previous.occupied:
                self.report.empty += 1
                return settle(Change.EMPTY)
            write = self.destination.store.create

        def stored(outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                self.report.fail(endpoint.url, outcome)
                return settle(Change.FAILED)
            previous.occupied = True
            if not outcome:  # an earlier process created it, perhaps with content
                self.report.empty += 1
                return settle(Change.EMPTY)
            previous.digest = digest
            self.report.stored += 1
            self.report.bytes += len(body)
            self._plan_actors(endpoint)
            return settle(Change.CHANGED)

        return self._submit(partial(self._write, url, body, write), stored)

    def _plan(self, endpoint: Endpoint, body: bytes) -> None:
        """What else this answer makes due."""
        if endpoint is VERSION:
            self.session.update_version(ray_version(body))
        if endpoint is JOBS:
            self._plan_jobs(job_rows(body))
        if endpoint is NODES:
            self._plan_nodes(alive_nodes(body))

    def _plan_actors(self, changed: Endpoint) -> None:
        if changed is ACTORS and self.session.is_due_with_actors(LOGICAL_ACTORS, final=self.final):
            self._enqueue(LOGICAL_ACTORS)

    def _plan_jobs(self, rows: list[JobRow]) -> None:
        self.session.update_jobs(rows)
        due = self.session.jobs_due(final=self.final)
        if due:
            self._check_actor(DATA_ACTOR, partial(self._plan_datasets, due))
        if self.session.train_due(final=self.final):
            self._check_actor(TRAIN_ACTOR, self._plan_train)

    def _plan_nodes(self, alive: list[str]) -> None:
        for node in self.session.nodes_due(alive, final=self.final):
            self._enqueue(NODE, node)

    def _check_actor(self, url: str, callback: Callable[[bool], None]) -> None:
        def answered(outcome: Outcome) -> None:
            alive = has_content(outcome, ROWS) if isinstance(outcome, bytes) else None
            if alive is None:
                return self.report.fail(url, outcome if isinstance(outcome, Exception) else NOT_FROM_RAY)
            return callback(alive)

        heappush(self._queue, (0, next(self._order), url, answered))

    def _plan_datasets(self, due: list[str], alive: bool) -> None:
        for name in due:
            job = self.session.jobs[name]
            if alive:
                job.pace.requested(self.session.number)
                self._enqueue(DATASETS, name)
            else:
                job.given_up = job.ended
                job.pace.changed(self.session.number)

    def _plan_train(self, alive: bool) -> None:
        if alive:
            self.session.train.requested(self.session.number)
            self._enqueue(TRAIN_V2)
            self._enqueue(TRAIN_V1)
        else:
            self.session.train_pending.clear()
            self.session.train.changed(self.session.number)


def _ledger_outcome(error: object) -> str:
    match error:
        case Refused():
            return ledger.REFUSED
        case TimedOut():
            return ledger.TIMED_OUT
        case Unreachable():
            return ledger.UNREACHABLE
    return ledger.FAILED
