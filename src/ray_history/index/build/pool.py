"""Builds indexes in processes of their own, so that a build has real limits, gives its memory back when it ends, and
never holds up the interpreter of those who answer requests.

Invariants:
* there are two lanes with one build at a time in each: one for small sessions, so that they never wait for a large one,
  and one for all others. A session that is not as small as it looks is built again in the second lane;
* in a lane, namespaces take turns: one tenant's many sessions hold up another tenant for one build at most;
* the memory of all build processes is at most the sum of the two lanes' limits and of an idle process;
* a process is ready before it is needed: starting one and loading DuckDB takes longer than building a small session. A
  used process is replaced when nothing has come for it for a while, so that its memory is free again;
* a build in the background is ended when another one needs its lane;
* a build process ends with its server, however that ends (see process.py).
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ray_history.history.engine import NICE_INCREMENT, Cancelled, Limits
from ray_history.index.locks import CancelToken, FairLock
from ray_history.index.manifest import Manifest

from .confinement import why_unconfined
from .forked import can_fork
from .order import BuildFailed, BuildOrder, Report
from .usage import memory_of
from .worker import Gone, Job, Worker

logger = logging.getLogger(__name__)

MIB = 1 << 20
SMALL = 8 * MIB
"""Stored bytes up to which a session is small: some 10,000 tasks."""
SMALL_MEMORY, SMALL_LIMIT, _SMALL_SECONDS = 256 * MIB, 512 * MIB, 20
"""What a small session may use. Ordinary ones need 140 to 260 MiB and a second."""
EXTRA_MEMORY = 512 * MIB
"""What a build process may hold beyond `--build-memory`: the interpreter and its libraries, which take 100 MiB, what is
being downloaded, and what DuckDB takes beyond its limit. At `--build-memory 512`, 416 MiB have been seen."""
SECONDS_PER_MIB = 5
"""Processor time per stored MiB; ordinary events need 0.1 s."""
_MOST_BUILDS, _MOST_IDLE_MEMORY = 100, 320 * MIB
"""When a process is not used again."""
_NICE_IN_BACKGROUND = 10
_RENEWED_AFTER = 20.0
"""Seconds after which a used process is replaced by a new one."""


@dataclass
class Lane:
    """Where one build at a time runs."""

    limits: Limits
    memory: int
    processor_seconds: int
    niceness: int = 0
    turns: FairLock = field(default_factory=FairLock)
    _background: CancelToken | None = None

    @contextmanager
    def turn(self, order: BuildOrder, cancel: CancelToken) -> Iterator[CancelToken]:
        """Have the lane inside the block; a build in the background is cancelled when another one comes."""
        mine = CancelToken()
        if not order.is_background and (other := self._background) is not None:
            other.cancel()
        namespace = order.sources.files.session.cluster.namespace
        with cancel.calling(mine.cancel), self.turns.turn(mine, namespace):
            if order.is_background:
                self._background = mine
                if self.turns.is_contended:
                    raise Cancelled
            try:
                yield mine
            finally:
                self._background = None


class BuildPool:
    """Builds indexes in processes. For many threads."""

    def __init__(
        self, make: Callable[[], object], limits: Limits, directory: Path, *, processor_seconds: int, disk: int
    ) -> None:
        """`make` can be pickled and makes the indexer of a process. All orders are for places below `directory`."""
        self._make_worker = partial(Worker, pickle.dumps(make), directory)
        self._disk = disk
        if reason := why_unconfined():
            logger.info("build processes can write wherever this process can: %s", reason)
        self._small = Lane(replace(limits, memory=SMALL_MEMORY), SMALL_LIMIT, _SMALL_SECONDS)
        self._large = Lane(limits, limits.memory + EXTRA_MEMORY, processor_seconds, NICE_INCREMENT)
        self._lock = threading.Lock()
        self._spare: Future[Worker] | None = None
        self._running: set[Worker] = set()
        self._is_closed = False
        # All processes are started by one thread, because they inherit its priority.
        self._starter = ThreadPoolExecutor(1, "build-start")
        self._renewal: threading.Timer | None = None

    def prepare(self) -> None:
        """Start a process for the next order, unless there is one."""
        with self._lock:
            if self._spare is None and not self._is_closed:
                self._spare = self._start()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            spare, self._spare = self._spare, None
            running = list(self._running)
            if self._renewal is not None:
                self._renewal.cancel()
        for worker in running:
            worker.end()
        if spare is not None:
            spare.result().close()
        self._starter.shutdown()

    def build(self, order: BuildOrder, report: Report, cancel: CancelToken) -> Manifest:
        """Write the files of an index. What takes too much memory is tried once more, frugally."""
        if order.stored_bytes <= SMALL:
            try:
                return self._build(order, self._small, report, cancel)
            except BuildFailed as failed:
                if failed.reason not in ("memory", "time"):
                    raise
        try:
            return self._build(order, self._large, report, cancel)
        except BuildFailed as failed:
            if failed.reason != "memory":
                raise
        return self._build(replace(order, is_frugal=True), self._large, report, cancel)

    def _build(self, order: BuildOrder, lane: Lane, report: Report, cancel: CancelToken) -> Manifest:
        seconds = lane.processor_seconds + SECONDS_PER_MIB * order.stored_bytes // MIB
        niceness = _NICE_IN_BACKGROUND if order.is_background else lane.niceness
        job = Job(order, lane.limits, lane.memory, self._disk, seconds, niceness)
        with lane.turn(order, cancel) as token:
            while True:
                _empty(order)
                worker = self._take(keep_spare=lane is self._large)
                try:
                    built = worker.build(job, report, token)
                except Gone:  # it ended while it was idle
                    self._discard(worker)
                except BaseException:
                    self._discard(worker)
                    raise
                else:
                    self._put_back(worker, job)
                    return built

    def _take(self, *, keep_spare: bool) -> Worker:
        with self._lock:
            if self._is_closed:
                raise Cancelled
            spare, self._spare = self._spare or self._start(), None
        if keep_spare:
            self.prepare()
        worker = spare.result()
        if not worker.can_write:
            worker.close()
            worker = self._start().result()
        with self._lock:
            self._running.add(worker)
            is_closed = self._is_closed
        if is_closed:
            self._discard(worker)
            raise Cancelled
        return worker

    def _start(self) -> Future[Worker]:
        if not can_fork():
            return self._starter.submit(self._make_worker)
        started = Future[Worker]()  # by this thread, because it is the only one, and no other may exist
        started.set_result(self._make_worker())
        return started

    def _put_back(self, worker: Worker, job: Job) -> None:
        is_fit = (
            not job.niceness  # it cannot be lowered again
            and worker.builds < _MOST_BUILDS
            and memory_of(worker.pid) < _MOST_IDLE_MEMORY
        )
        with self._lock:
            if is_fit and self._spare is None and not self._is_closed:
                self._running.discard(worker)
                self._spare = Future()
                self._spare.set_result(worker)
                self._renew_later(self._spare)
                return
        self._discard(worker)

    def _discard(self, worker: Worker) -> None:
        worker.close()
        with self._lock:
            self._running.discard(worker)
        self.prepare()

    def _renew_later(self, used: Future[Worker]) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        self._renewal = threading.Timer(_RENEWED_AFTER, self._renew, [used])
        self._renewal.daemon = True
        self._renewal.start()

    def _renew(self, used: Future[Worker]) -> None:
        """Replace a used process if nobody has taken it since."""
        with self._lock:
            if self._spare is not used or self._is_closed:
                return
            self._spare = self._start()
        used.result().close()


def _empty(order: BuildOrder) -> None:
    """Remove what an earlier try left."""
    for path in order.directory.iterdir():
        if path == order.base:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
