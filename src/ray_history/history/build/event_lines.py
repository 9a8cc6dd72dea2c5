"""Events on their way into the tables: JSON lines on the local disk, sorted by type.

Each type of task event, nearly all events of a session, has a file of its own, all others share one: reading events
of one shape takes half the time. The sorting looks at a few bytes of each line and may be fooled; who reads the files
makes sure of the types they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from operator import itemgetter
from pathlib import Path

from ray_history.history.events import TASK_EVENTS

OTHERS = "OTHERS"
"""The file of all types that have none of their own."""
FILES = (*TASK_EVENTS, OTHERS)

_PLACES = {name: place for place, name in enumerate(TASK_EVENTS)}
_MARK = 7
"""Bytes of a type that tell it from the others, for a first look."""
_MARKS = {name[:_MARK].encode(): place for name, place in _PLACES.items()}
_KEY, _TIGHT_KEY = b'"eventType": "', b'"eventType":"'
_BLOCK = 1 << 20
"""Lines are written when there is about this much of them, which stays in the processor's cache meanwhile."""
_SKELETON, _SHORTEST = 465, 400
"""Bytes of an event that are the same in all of its type; what a row of a table weighs at least."""


class EventLines:
    """The files of one batch: `stem`, a dot and the type."""

    def __init__(self, stem: Path) -> None:
        self.files = {name: stem.with_name(f"{stem.name}.{name}") for name in FILES}
        self._begun: list[bytes] = []
        """The line whose end is yet to come."""
        self.longest = 0
        """Bytes of the longest line of this file, among those that came in several pieces."""
        self._sorted = [list[bytes]() for _ in FILES]
        self._size = 0
        self._lines = self._bytes = 0
        self._at = 0
        """Where the type of an event was found last."""

    @contextmanager
    def written(self) -> Iterator[None]:
        """What is added inside is in the files afterwards, and nothing else."""
        self._lines = 0
        with ExitStack() as stack:
            self._out = [stack.enter_context(file.open("wb")) for file in self.files.values()]
            yield
            self.end_file()
            self._bytes = sum(self.position()[1:])

    @property
    def load(self) -> int:
        """What was written weighs so much as so many bytes of ordinary events. Half of those is keys and punctuation,
        which are not kept in memory; but there a row takes its place, however short the event."""
        return max(2 * (self._bytes - self._lines * _SKELETON), self._lines * _SHORTEST)

    def add(self, text: bytes) -> None:
        """Any piece of a file of lines."""
        lines = BytesIO(text).readlines()  # in half the time of `split`
        if lines and self._begun:
            self._begun.append(lines[0])
            self.longest = max(self.longest, sum(map(len, self._begun)))
            if not lines[0].endswith(b"\n"):
                return
            lines[0], self._begun = b"".join(self._begun), []
        if lines and not lines[-1].endswith(b"\n"):
            self._begun = [lines.pop()]
        self._sort(lines)
        self._size += len(text)
        if self._size >= _BLOCK:
            self._write()

    def end_file(self) -> None:
        """The last line of a file need not have an end."""
        last, self._begun, self.longest = b"".join(self._begun), [], 0
        if last:
            self._sort([last + b"\n"])

    def put(self, kind: str, event: bytes) -> None:
        """One event whose type is known."""
        self._out[_PLACES.get(kind, -1)].write(event + b"\n")
        self._lines += 1

    def position(self) -> list[int]:
        """How many lines there are and where the files end now, between two files of events."""
        self._write()
        return [self._lines, *(out.tell() for out in self._out)]

    def rewind(self, position: list[int]) -> None:
        """Take back what was added after that."""
        self._begun, self.longest = [], 0
        self._lines, *ends = position
        for out, lines, end in zip(self._out, self._sorted, ends, strict=True):
            lines.clear()
            out.seek(end)
            out.truncate()

    def remove(self) -> None:
        for file in self.files.values():
            file.unlink(missing_ok=True)

    def _sort(self, lines: Sequence[bytes]) -> None:
        """Most events have their type at the same place as the one before: that is looked at first."""
        self._lines += len(lines)
        marks = map(itemgetter(slice(self._at, self._at + _MARK)), lines)
        for line, place in zip(lines, map(_MARKS.get, marks), strict=True):
            self._sorted[self._look_for_type(line) if place is None else place].append(line)

    def _look_for_type(self, line: bytes) -> int:
        for key in (_KEY, _TIGHT_KEY):
            found = line.find(key)
            if found >= 0:
                at = found + len(key)
                place = _MARKS.get(line[at : at + _MARK], -1)
                if place >= 0:
                    self._at = at
                return place
        return -1

    def _write(self) -> None:
        for out, lines in zip(self._out, self._sorted, strict=True):
            if lines:
                out.write(b"".join(lines))
                lines.clear()
        self._size = 0
