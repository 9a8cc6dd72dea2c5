"""The event files of a session, made ready for the tables: batches of JSON lines, sorted by type, on disk.

Invariants:
* files of one job and one time come together, so that most attempts of tasks are whole within a batch;
* how large a batch becomes is known when it is unpacked, and taken into account from the next but one on;
* the next batches are fetched and unpacked while the last one is read; no more than three are on the disk;
* the quick way only unpacks: the reader of the tables checks each line anyway. A file with anything odd in it (an
  array, damage, snake_case names, an event of many megabytes) is gone through event by event instead, and what it lost
  is named in `problems`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path

from ray_history.archive.event_files import DEFAULT, Problem, read_event_blocks, read_text
from ray_history.archive.session_files import EventFile
from ray_history.archive.stores import Store
from ray_history.history.build.event_lines import EventLines
from ray_history.history.events import in_camel_case

_FETCHERS = 8
_WHOLE = 16 << 20
"""Objects up to this size are fetched ahead in one piece; larger ones are streamed when their turn comes."""
_UNPACKED = 8
"""How much larger Ray's events become when unpacked, before any are seen."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some event files as JSON lines."""

    lines: EventLines
    files: Sequence[EventFile]

    @property
    def stored_bytes(self) -> int:
        return sum(file.stored.size for file in self.files)


class EventSource:
    """Fetches a session's event files, batch by batch."""

    def __init__(self, store: Store, work: Path, batch_bytes: int) -> None:
        self._store, self._work, self._batch_bytes = store, work, batch_bytes
        self._heavier = 1.0
        """How much more than expected the last batch weighs in memory."""
        self._problems: dict[str, list[Problem]] = {}
        self._strange: dict[str, Counter[str]] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read, file by file, and how many things in files are no events."""
        told = [str(problem) for found in self._problems.values() for problem in found]
        strange = sum(self._strange.values(), Counter[str]())
        return told + [f"{number} x {what}" for what, number in sorted(strange.items())]

    def batches(self, files: Iterable[EventFile]) -> Generator[Batch]:
        """Batches in order; each is removed when the next is asked for. The first is begun at once."""
        planned = enumerate(self._in_batches(files))
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
                    fetchers.submit(batch.lines.remove)  # what is large takes its time to go
            finally:
                unpacker.shutdown(cancel_futures=True)
                fetchers.shutdown(cancel_futures=True)

        return batches()

    def carefully(self, batch: Batch) -> None:
        """Write the same batch again, event by event."""
        with batch.lines.writing():
            for file in batch.files:
                self._append_events(batch.lines, file)

    def _prepare(self, number: int, files: Sequence[EventFile], fetchers: ThreadPoolExecutor) -> Batch:
        lines = EventLines(self._work / f"batch-{number}")
        bodies = [
            fetchers.submit(self._store.get, file.stored.key) if file.stored.size <= _WHOLE else None for file in files
        ]
        with lines.writing():
            for file, body in zip(files, bodies, strict=True):
                chunks = self._store.stream(file.stored.key) if body is None else [body.result()]
                if not self._append_text(lines, file, chunks):
                    self._append_events(lines, file)
        self._heavier = max(1.0, lines.load / max(1, sum(map(_unpacked, files))))
        return Batch(lines, files)

    def _append_text(self, lines: EventLines, file: EventFile, chunks: Iterable[bytes]) -> bool:
        """Unpack the file into `lines`; False, with `lines` as before, if it is not plainly lines of objects."""
        before, found = lines.position(), list[Problem]()
        pieces = read_text(chunks, file=file.stored.key, problems=found)
        first = next(pieces, b"")
        if first and not first.startswith(b"{"):
            return False
        lines.add(first)
        for piece in pieces:
            lines.add(piece)
            if lines.longest > DEFAULT.max_event:  # the careful way leaves it out, without holding all of it
                lines.rewind(before)
                return False
        if found:
            lines.rewind(before)
            return False
        lines.end_file()
        return True

    def _append_events(self, lines: EventLines, file: EventFile) -> None:
        key = file.stored.key
        problems = self._problems[key] = []  # anew, if the file is read a second time
        strange = self._strange[key] = Counter()
        for block in read_event_blocks(self._store.stream(key), file=key, problems=problems):
            for event in block:
                renamed = in_camel_case(event, strange)
                if renamed is not None:
                    lines.put(*renamed)

    def _in_batches(self, files: Iterable[EventFile]) -> Iterator[list[EventFile]]:
        batch: list[EventFile] = []
        # The first ones are small: nothing else can be done until they are there.
        rooms = chain((self._batch_bytes // 3, self._batch_bytes // 2), repeat(self._batch_bytes))
        size, room = 0, next(rooms)
        for file in sorted(files, key=_place):
            if batch and (size + _unpacked(file)) * self._heavier > room:
                yield batch
                batch, size, room = [], 0, next(rooms)
            batch.append(file)
            size += _unpacked(file)
        if batch:
            yield batch


def _unpacked(file: EventFile) -> int:
    return file.stored.size * (_UNPACKED if file.stored.key.endswith(".gz") else 1)


def _place(file: EventFile) -> tuple[str, str, int, str]:
    return file.key.job or "", file.key.hour, file.key.created_ns or 0, file.stored.key
