"""The event files of a session, downloaded as batches of JSON lines on disk, sorted by type.

Invariants:
* files of the same job and time are in the same batch, so that most attempts of tasks are complete within one;
* the weight of a batch is known when it is unpacked; it affects the size of the next but one;
* the next batches are downloaded and unpacked while one is read; at most three are on disk;
* the fast path only unpacks files, because DuckDB checks each line. A file with anything unusual (an array, damage,
  snake_case names, an event of many megabytes) is read event by event instead; losses are in `problems`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, count, islice, repeat
from pathlib import Path

from ray_history.archive.errors import NotFound
from ray_history.archive.event_files import DEFAULT, Problem, read_event_blocks, read_text
from ray_history.archive.session_files import EventFile
from ray_history.archive.stores import Store
from ray_history.history.build.event_lines import EventLines
from ray_history.history.events import in_camel_case

MAX_EVENT = DEFAULT.max_event
FRUGAL_EVENT = 1 << 20
"""The longest event that is read where memory is short. Ray cuts the longest text, the message of an error, at half."""
_FETCHERS = 8
_WHOLE = 16 << 20
"""Objects up to this size are downloaded ahead, in one piece; larger ones are streamed when they are unpacked."""
_UNPACKED = 8
"""The expected ratio of unpacked to compressed size."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some event files as JSON lines."""

    lines: EventLines
    files: Sequence[EventFile]

    @property
    def stored_bytes(self) -> int:
        return sum(file.stored.size for file in self.files)


class EventSource:
    """Downloads the event files of a session, batch by batch."""

    def __init__(self, store: Store, work: Path, batch_bytes: int, max_event: int = MAX_EVENT) -> None:
        self._store, self._work, self._batch_bytes = store, work, batch_bytes
        self._numbers = count()
        self._limits = replace(DEFAULT, max_event=max_event)
        self._weight = 1.0
        """The weight of the last batch in memory, relative to the expected one."""
        self._problems: dict[str, list[Problem]] = {}
        self._rejected: dict[str, Counter[str]] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read, by file, and the numbers of lines that are not events."""
        problems = [str(problem) for of_file in self._problems.values() for problem in of_file]
        rejected = sum(self._rejected.values(), Counter[str]())
        return problems + [f"{number} x {reason}" for reason, number in sorted(rejected.items())]

    def batches(self, files: Iterable[EventFile]) -> Generator[Batch]:
        """Batches in order; each is removed when the next one is requested. The first ones are prepared at once."""
        planned = zip(self._numbers, self._in_batches(files), strict=False)
        fetchers, unpacker = ThreadPoolExecutor(_FETCHERS, "fetch"), ThreadPoolExecutor(1, "unpack")

        def prepare(batches: int) -> list[Future[Batch]]:
            return [unpacker.submit(self._prepare, *plan, fetchers) for plan in islice(planned, batches)]

        coming = prepare(2)

        def batches() -> Generator[Batch]:
            try:
                while coming:
                    batch = coming.pop(0).result()
                    coming.extend(prepare(1))
                    yield batch
                    fetchers.submit(batch.lines.remove)  # removing large files takes long
            finally:
                unpacker.shutdown(cancel_futures=True)
                fetchers.shutdown(cancel_futures=True)

        return batches()

    def rewrite(self, batch: Batch) -> None:
        """Write a batch again, event by event."""
        with batch.lines.writing():
            for file in batch.files:
                self._append_events(batch.lines, file)

    def _prepare(self, number: int, files: Sequence[EventFile], fetchers: ThreadPoolExecutor) -> Batch:
        lines = EventLines(self._work / f"batch-{number}")
        bodies = [fetchers.submit(self._whole, file) if file.stored.size <= _WHOLE else None for file in files]
        with lines.writing():
            for file, body in zip(files, bodies, strict=True):
                chunks = self._chunks(file) if body is None else [body.result()]
                if not self._append_text(lines, file, chunks):
                    self._append_events(lines, file)
        self._weight = max(1.0, lines.load / max(1, sum(map(_unpacked, files))))
        return Batch(lines, files)

    def _whole(self, file: EventFile) -> bytes:
        try:
            return self._store.get(file.stored.key)
        except NotFound:
            if not file.is_journal:
                raise
            return b""  # its events are in event files by now, which the next listing has

    def _chunks(self, file: EventFile) -> Iterator[bytes]:
        try:
            yield from self._store.stream(file.stored.key)
        except NotFound:
            if not file.is_journal:
                raise

    def _append_text(self, lines: EventLines, file: EventFile, chunks: Iterable[bytes]) -> bool:
        """Unpack a file into `lines`; False, without a change to `lines`, if it may not be lines of objects."""
        before, found = lines.position(), list[Problem]()
        pieces = read_text(chunks, file=file.stored.key, problems=found)
        first = next(pieces, b"")
        if first and not first.startswith(b"{"):
            return False
        lines.add(first)
        for piece in pieces:
            lines.add(piece)
            if lines.longest > self._limits.max_event:
                # Reading event by event leaves it out, without holding it in memory.
                lines.rewind(before)
                return False
        if found:
            lines.rewind(before)
            return False
        lines.end_file()
        return True

    def _append_events(self, lines: EventLines, file: EventFile) -> None:
        key = file.stored.key
        problems = self._problems[key] = []  # cleared, if the file is read a second time
        rejected = self._rejected[key] = Counter()
        for block in read_event_blocks(self._chunks(file), file=key, problems=problems, limits=self._limits):
            for event in block:
                renamed = in_camel_case(event, rejected)
                if renamed is not None:
                    lines.put(*renamed)

    def _in_batches(self, files: Iterable[EventFile]) -> Iterator[list[EventFile]]:
        batch: list[EventFile] = []
        # The first ones are small, because nothing else can start before they are there.
        capacities = chain((self._batch_bytes // 3, self._batch_bytes // 2), repeat(self._batch_bytes))
        size, capacity = 0, next(capacities)
        for file in sorted(files, key=_place):
            if batch and (size + _unpacked(file)) * self._weight > capacity:
                yield batch
                batch, size, capacity = [], 0, next(capacities)
            batch.append(file)
            size += _unpacked(file)
        if batch:
            yield batch


def _unpacked(file: EventFile) -> int:
    return file.stored.size * (_UNPACKED if file.stored.key.endswith(".gz") else 1)


def _place(file: EventFile) -> tuple[str, str, int, str]:
    return file.key.job or "", file.key.hour, file.key.created_ns or 0, file.stored.key
