"""One cycle: what is due is asked, what comes is kept, and what it leads to is asked too."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from typing import Any

import msgspec

from ray_history.archive.errors import ArchiveError
from ray_history.collector.destination import Destination

from .answers import ROWS, JobRow, alive_nodes, has_content, is_partial, job_rows
from .dashboard_client import BadStatus, Dashboard, DashboardError
from .endpoints import DATA_SIGN, DATASETS, JOBS, NODE, NODES, TRAIN_SIGN, TRAIN_V1, TRAIN_V2, Empties, Endpoint, When
from .memory import Seen, Session
from .report import TIME, PollReport

AT_ONCE = 4
"""Requests in flight: one slow endpoint does not stretch the cycle, and the dashboard does not feel us."""
REQUEST_SECONDS = 10.0
FINAL_REQUEST_SECONDS = 3.0
EMPTIES_BELIEVED = 3
"""A dying cluster answers "nothing" for up to two polls before it stops answering."""
NOT_RAYS = "the answer is not one of Ray's"

Outcome = bytes | bool | DashboardError | ArchiveError
Then = Callable[[Outcome], None]


class Cycle:
    """Everything due is asked in order of importance; what the answers lead to joins the queue."""

    def __init__(
        self,
        destination: Destination,
        dashboard: Dashboard,
        endpoints: tuple[Endpoint, ...],
        session: Session,
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
        self._todo: list[tuple[int, int, str, Then]] = []
        self._pool = ThreadPoolExecutor(AT_ONCE, "poll")
        self._flying: dict[Future[Outcome], Then] = {}
        self._order = count()

    def run(self, stopped: Future[None]) -> PollReport:
        for endpoint in self.ranks:
            once_more = endpoint.when is When.ONCE and not self.session.kept[endpoint.url].digest
            if once_more or endpoint.when is When.EVERY_POLL:
                self._ask(endpoint)
        try:
            while (self._todo or self._flying) and not self._over(stopped):
                while self._todo and len(self._flying) < AT_ONCE:
                    _, _, url, then = heappop(self._todo)
                    self._fly(partial(self._get, url), then)
                awaited: list[Future[Any]] = [*self._flying, stopped]
                finished = wait(awaited, self.deadline - time.monotonic(), FIRST_COMPLETED).done
                if not self._over(stopped):
                    for future in finished:
                        self._flying.pop(future)(future.result())
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
        missed = len(self._todo) + len(self._flying)
        self.report.failed += missed
        if missed and not stopped.done():
            self.report.failures[TIME] = "the deadline came before all answers"
        return self.report

    def _over(self, stopped: Future[None]) -> bool:
        return stopped.done() or time.monotonic() >= self.deadline

    # In the pool's threads

    def _get(self, url: str) -> Outcome:
        longest = FINAL_REQUEST_SECONDS if self.final else REQUEST_SECONDS
        try:
            return self.dashboard.get(url, timeout=min(longest, self.deadline - time.monotonic())).body
        except DashboardError as error:
            return error

    def _store(self, url: str, body: bytes, write: Callable[[str, bytes], bool | None]) -> Outcome:
        try:
            return write(self.destination.endpoint(self.session.name, url), body) is not False
        except ArchiveError as error:
            return error

    # In the cycle's own thread

    def _fly(self, work: Callable[[], Outcome], then: Then) -> None:
        self._flying[self._pool.submit(work)] = then

    def _ask(self, endpoint: Endpoint, subject: str = "") -> None:
        url = endpoint.url.format(subject) if subject else endpoint.url
        rank = len(self.ranks) if endpoint is NODE else self.ranks[endpoint]  # many, so after the user's own
        asked = url + ("&" if "?" in url else "?") + "nocache=1" if endpoint.uncached else url
        then: Then = partial(self._answered, endpoint, url, subject)
        heappush(self._todo, (rank, next(self._order), asked, then))

    def _answered(self, endpoint: Endpoint, url: str, subject: str, outcome: Outcome) -> None:
        settle = partial(self.session.settle, endpoint, subject)
        if isinstance(outcome, BadStatus) and outcome.status in endpoint.not_here:
            self.report.empty += 1
            return settle(Seen.EMPTY)
        if not isinstance(outcome, bytes):
            self.report.fail(endpoint.url, outcome)
            return settle(Seen.FAILED)
        full = bool(outcome.strip()) if endpoint.any_body else has_content(outcome, endpoint.content)
        try:
            if full is None:
                raise msgspec.ValidationError
            if endpoint is JOBS:
                self._plan_jobs(job_rows(outcome))
            if endpoint is NODES:
                self._plan_nodes(alive_nodes(outcome))
        except msgspec.ValidationError:
            self.report.fail(endpoint.url, NOT_RAYS)
            return settle(Seen.FAILED)
        if full and self.final and endpoint.content == ROWS:
            full = not is_partial(outcome)  # some nodes are already gone
        return self._keep(endpoint, url, outcome, full, settle)

    def _keep(self, endpoint: Endpoint, url: str, body: bytes, full: bool, settle: Callable[[Seen], None]) -> None:
        kept, digest, store = self.session.kept[url], blake2b(body, digest_size=16).digest(), self.destination.store
        kept.empties = 0 if full else kept.empties + 1
        believed = endpoint.empties is Empties.BELIEVED and kept.empties >= EMPTIES_BELIEVED and not self.final
        if digest == kept.digest:
            self.report.unchanged += 1
            return settle(Seen.UNCHANGED)
        write: Callable[[str, bytes], bool | None] = store.put
        if not full and not believed:
            if endpoint.empties is Empties.IGNORED or endpoint.any_body or kept.occupied:
                self.report.empty += 1
                return settle(Seen.EMPTY)
            write = store.create

        def stored(outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                self.report.fail(endpoint.url, outcome)
                return settle(Seen.FAILED)
            kept.occupied = True
            if not outcome:  # created by a process before us, maybe full
                self.report.empty += 1
                return settle(Seen.EMPTY)
            kept.digest = digest
            self.report.stored += 1
            self.report.bytes += len(body)
            return settle(Seen.CHANGED)

        return self._fly(partial(self._store, url, body, write), stored)

    def _plan_jobs(self, rows: list[JobRow]) -> None:
        self.session.see_jobs(rows)
        due = self.session.jobs_due(final=self.final)
        if due:
            self._ask_sign(DATA_SIGN, partial(self._plan_datasets, due))
        if self.session.train_due(final=self.final):
            self._ask_sign(TRAIN_SIGN, self._plan_train)

    def _plan_nodes(self, alive: list[str]) -> None:
        for node in self.session.nodes_due(alive, final=self.final):
            self._ask(NODE, node)

    def _ask_sign(self, url: str, then: Callable[[bool], None]) -> None:
        def answered(outcome: Outcome) -> None:
            alive = has_content(outcome, ROWS) if isinstance(outcome, bytes) else None
            if alive is None:
                return self.report.fail(url, outcome if isinstance(outcome, Exception) else NOT_RAYS)
            return then(alive)

        heappush(self._todo, (0, next(self._order), url, answered))

    def _plan_datasets(self, due: list[str], alive: bool) -> None:
        for name in due:
            job = self.session.jobs[name]
            if alive:
                job.pace.asked(self.session.number)
                self._ask(DATASETS, name)
            else:
                job.given_up = job.ended
                job.pace.changed(self.session.number)

    def _plan_train(self, alive: bool) -> None:
        if alive:
            self.session.train.asked(self.session.number)
            self._ask(TRAIN_V2)
            self._ask(TRAIN_V1)
        else:
            self.session.train_owed.clear()
            self.session.train.changed(self.session.number)
