"""Scrapes endpoints at intervals, and uploads blocks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ray_history.archive.layout import MetricBlockKey
from ray_history.archive.ledger import MetricCounts
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.metrics.block import OpenBlock

from .dashboards import SessionDashboards
from .files import MAX_BYTES, BlockFile, BlockFiles
from .scrape import TIMEOUT, ScrapeFailed, check_session, scrape
from .targets import Target

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS = 300.0
"""After so long without an answer, an endpoint counts as gone, and costs no more blocks until it answers again."""
LAST_TIMEOUT = 2.0
"""Seconds for the last scrape: Ray is usually stopped at the same time."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times in seconds."""

    interval: float
    """Between two scrapes of an endpoint."""
    save: float = 60.0
    """Between two writes of the open block to the volume: what a killed collector loses at most."""
    block: float = 300.0
    """The length of a block. Shorter ones take up more space: with one minute twice as much."""


Keeps = Callable[[str], bool]
"""Decides by the name of a metric whether its samples are stored."""


class _Recording:
    """One endpoint that is scraped."""

    def __init__(self, target: Target, files: BlockFiles, schedule: Schedule, keeps: Keeps) -> None:
        self.target, self._files, self._schedule, self._keeps = target, files, schedule, keeps
        self._block: OpenBlock | None = None
        self._opened = self._saved = 0.0
        self._answered = float("-inf")
        self._is_gone = True
        """Whether it has not answered yet, or not for a long time."""
        self._lock = threading.Lock()
        self.path: Path | None = None
        """The file of the open block."""
        self.counts = MetricCounts()
        """What has not been added to the ledger yet."""

    def scrape(self, *, timeout: float = TIMEOUT, is_last: bool = False) -> None:
        """Add one scrape to the open block."""
        try:
            page = scrape(self.target.port, host=self.target.host, timeout=timeout)
            check_session(page.content, self.target.session)
        except ScrapeFailed as error:
            if not is_last:
                self._add_failure(error)
            return
        try:
            with self._lock:
                block = self._open()
                block.add(_moment(block), page.lines(), left_out=page.left_out)
                self._note_answer(block)
        except ValueError as error:
            self._add_failure(error)

    def _open(self) -> OpenBlock:
        if self._block is None:
            return OpenBlock(self.target.instance, keeps=self._keeps)
        return self._block

    def _note_answer(self, block: OpenBlock) -> None:
        now = time.monotonic()
        self._answered, self._is_gone = now, False
        self.counts.scrapes += 1
        self.counts.series_left_out = max(self.counts.series_left_out, block.left_out)
        if self._block is None:
            self._block, self._opened, self._saved = block, now, now
            key = MetricBlockKey(self.target.node, self.target.kind, block.first)
            self.path = self._files.path(self.target.session, key)

    def _add_failure(self, error: Exception) -> None:
        with self._lock:
            if self._is_gone or self._block is None:
                return
            logger.debug("metrics of the %s were not scraped: %s", self.target.kind, error)
            self._block.add_failure(_moment(self._block))
            self.counts.failures += 1
            self._is_gone = time.monotonic() - self._answered > GIVE_UP_SECONDS

    def take_counts(self) -> MetricCounts:
        """What was counted since the last call."""
        with self._lock:
            counts, self.counts = self.counts, MetricCounts()
        return counts

    def save(self) -> None:
        """Write the open block to the volume if that is due, and close it if it is long enough."""
        now = time.monotonic()
        if now - self._opened >= self._schedule.block or self._is_gone:
            self.close()
        elif now - self._saved >= self._schedule.save:
            with self._lock:
                self._write()

    def close(self) -> None:
        """End the open block; its file may be uploaded then."""
        with self._lock:
            self._write()
            self._block = self.path = None

    def _write(self) -> None:
        if self._block is not None and self.path is not None:
            self._files.write(self.path, self._block.encode())
            self._saved = time.monotonic()


def _moment(block: OpenBlock) -> int:
    """Now, in ms. Times of a block increase, also when the clock is set back."""
    return max(time.time_ns() // 1_000_000, block.last + 1 if len(block) else 0)


class MetricsRecorder:
    """Records all endpoints, each in a thread of its own so that a slow one does not delay others."""

    def __init__(
        self,
        destination: Destination,
        ledgers: LedgerBook,
        directory: Path,
        find_targets: Callable[[], Sequence[Target]],
        schedule: Schedule,
        keeps: Keeps,
        dashboards: SessionDashboards,
    ) -> None:
        self._dashboards = dashboards
        self._destination, self._ledgers, self._files = destination, ledgers, BlockFiles(directory)
        self._find_targets, self._schedule, self._keeps = find_targets, schedule, keeps
        self._recordings: dict[Target, tuple[_Recording, threading.Event]] = {}
        self._stop = threading.Event()

    def tick(self) -> None:
        """Follow the endpoints that there are, and upload closed blocks; raises errors of the store."""
        found = set() if self._stop.is_set() else set(self._find_targets())
        for target in found - self._recordings.keys():
            self._start(target)
        for target in self._recordings.keys() - found:
            recording, stop = self._recordings.pop(target)
            stop.set()
            recording.close()
            self._count(recording)
        for recording, _ in self._recordings.values():
            self._count(recording)
        self._upload()
        self._dashboards.tick(is_last=self._stop.is_set())

    def finish(self, deadline: float) -> bool:
        """Scrape a last time, and upload everything; True if nothing is left."""
        self._stop.set()
        for recording, stop in self._recordings.values():
            stop.set()
            if recording.target.is_local:  # other nodes are often gone by now, and there may be many
                recording.scrape(timeout=min(LAST_TIMEOUT, max(0.1, deadline - time.monotonic())), is_last=True)
        self.tick()
        return not self._files.all()

    def _start(self, target: Target) -> None:
        recording, stop = _Recording(target, self._files, self._schedule, self._keeps), threading.Event()
        self._recordings[target] = recording, stop
        name = f"scrape {target.kind}"
        threading.Thread(target=self._record, args=(recording, stop), name=name, daemon=True).start()

    def _record(self, recording: _Recording, stop: threading.Event) -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            recording.scrape()
            try:
                recording.save()
            except OSError as error:
                logger.error("metrics of the %s cannot be written to the volume: %s", recording.target.kind, error)
            # A scrape that took longer than the interval is not followed by others at once.
            due = max(due + self._schedule.interval, time.monotonic())

    def _count(self, recording: _Recording) -> None:
        new = recording.take_counts()
        if new != MetricCounts():
            with self._ledgers.lock:
                self._ledgers.session(recording.target.session).metrics.add(new)

    def _upload(self) -> None:
        waiting = self._files.all()
        self._make_room(waiting)
        still_open = {recording.path for recording, _ in self._recordings.values()}
        for file in waiting:
            if file.path not in still_open and file.path.exists():
                block = file.path.read_bytes()
                self._destination.store.put(self._destination.metric_block(file.session, file.key), block)
                self._files.remove(file)
                self._note(file.session, MetricCounts(blocks_stored=1, bytes_stored=len(block)))

    def _make_room(self, waiting: Sequence[BlockFile]) -> None:
        """Delete the oldest blocks while the bucket takes none and they become too many."""
        size = sum(file.size for file in waiting)
        for file in waiting:
            if size <= MAX_BYTES:
                return
            logger.error("deleted the metrics from %d on, because the bucket takes no others", file.first_ms)
            self._files.remove(file)
            self._note(file.session, MetricCounts(blocks_lost=1))
            size -= file.size

    def _note(self, session: str, counts: MetricCounts) -> None:
        with self._ledgers.lock:
            self._ledgers.session(session).metrics.add(counts)
