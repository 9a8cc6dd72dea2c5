"""Events between download and tables: JSON lines on the local disk, sorted by type.

Nearly all events of a session are about tasks. Each type of them has its own file, and all others share one: reading
events of one shape takes half the time. The type is guessed from a few bytes of each line; readers of the files must
check it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from operator import itemgetter
from pathlib import Path

from ray_history.history.events import TASK_EVENTS

OTHERS = "OTHERS"
"""The file of all types without their own."""
FILES = (*TASK_EVENTS, OTHERS)

_PLACES = {name: place for place, name in enumerate(TASK_EVENTS)}
_MARK = 7
"""Bytes that distinguish a type from the others."""
_MARKS = {name[:_MARK].encode(): place for name, place in _PLACES.items()}
_KEY, _TIGHT_KEY = b'"eventType": "', b'"eventType":"'
_BLOCK = 1 << 20
"""Bytes of lines that are collected before they are written; few enough for the processor's cache."""
_SKELETON, _SHORTEST = 465, 400
"""Bytes that all events of a type have in common; the least that a row of a table weighs."""


class EventLines:
    """The files of one batch, named `<stem>.<type>`."""

    def __init__(self, stem: Path) -> None:
        self.files = {name: stem.with_name(f"{stem.name}.{name}") for name in FILES}
        self._partial: list[bytes] = []
        """The pieces of a line without its end."""
        self.longest = 0
        """Bytes of the longest line of this event file, among those that came in several pieces."""
        self._sorted = [list[bytes]() for _ in FILES]
        self._size = 0
        self._lines = self._bytes = 0
        self._at = 0
        """The position of the type in the last event."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Replace the content of the files with what is added inside the block."""
        self._lines = 0
        with ExitStack() as stack:
            self._out = [stack.enter_context(file.open("wb")) for file in self.files.values()]
            yield
            self.end_file()
            self._bytes = sum(self.position()[1:])

    @property
    def load(self) -> int:
        """The weight in memory, in bytes of ordinary events. Half of those are keys and punctuation, which tables do
        not hold; but a row has a minimum weight, however short the event."""
        return max(2 * (self._bytes - self._lines * _SKELETON), self._lines * _SHORTEST)

    def add(self, text: bytes) -> None:
        """Add any piece of a file of lines."""
        lines = BytesIO(text).readlines()  # takes half the time of `split`
        if lines and self._partial:
            self._partial.append(lines[0])
            self.longest = max(self.longest, sum(map(len, self._partial)))
            if not lines[0].endswith(b"\n"):
                return
            lines[0], self._partial = b"".join(self._partial), []
        if lines and not lines[-1].endswith(b"\n"):
            self._partial = [lines.pop()]
        self._sort(lines)
        self._size += len(text)
        if self._size >= _BLOCK:
            self._write()

    def end_file(self) -> None:
        """Add the last line, which may lack its end."""
        last, self._partial, self.longest = b"".join(self._partial), [], 0
        if last:
            self._sort([last + b"\n"])

    def put(self, kind: str, event: bytes) -> None:
        """Add one event of a known type."""
        self._out[_PLACES.get(kind, -1)].write(event + b"\n")
        self._lines += 1

    def position(self) -> list[int]:
        """The number of lines and the sizes of the files, between two event files."""
        self._write()
        return [self._lines, *(out.tell() for out in self._out)]

    def rewind(self, position: list[int]) -> None:
        """Remove what was added after a position."""
        self._partial, self.longest = [], 0
        self._lines, *ends = position
        for out, lines, end in zip(self._out, self._sorted, ends, strict=True):
            lines.clear()
            out.seek(end)
            out.truncate()

    def remove(self) -> None:
        for file in self.files.values():
            file.unlink(missing_ok=True)

    def _sort(self, lines: Sequence[bytes]) -> None:
        """Sort lines by type. Most events have it at the same position as the previous one: look there first."""
        self._lines += len(lines)
        marks = map(itemgetter(slice(self._at, self._at + _MARK)), lines)
        for line, place in zip(lines, map(_MARKS.get, marks), strict=True):
            self._sorted[self._find_type(line) if place is None else place].append(line)

    def _find_type(self, line: bytes) -> int:
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
