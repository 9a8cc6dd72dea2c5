"""Events on their way into the tables: JSON lines on the local disk, sorted by type.

Each type of task event, nearly all events of a session, has a file of its own, all others share one: reading events
of one shape takes half the time. The sorting looks at a few bytes of each line and may be fooled; who reads the files
makes sure of the types they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .events import TASK_EVENTS

OTHERS = "OTHERS"
"""The file of all types that have none of their own."""
FILES = (*TASK_EVENTS, OTHERS)

_PLACES = {name: place for place, name in enumerate(TASK_EVENTS)}
_MARK = 7
"""Bytes of a type that tell it from the others, for a first look."""
_MARKS = {name[:_MARK].encode(): place for name, place in _PLACES.items()}
_KEY, _TIGHT_KEY = b'"eventType": "', b'"eventType":"'
_BLOCK = 1 << 20
"""Text is sorted in blocks of about this size, which stay in the processor's cache meanwhile."""


class EventLines:
    """The files of one batch: `stem`, a dot and the type."""

    def __init__(self, stem: Path) -> None:
        self.files = {name: stem.with_name(f"{stem.name}.{name}") for name in FILES}
        self._forget()

    @contextmanager
    def written(self) -> Iterator[None]:
        """What is added inside is in the files afterwards, and nothing else."""
        with ExitStack() as stack:
            self._out = [stack.enter_context(file.open("wb")) for file in self.files.values()]
            yield
            self.end_file()

    def add(self, text: bytes) -> None:
        """Any piece of a file of lines."""
        self._begun.append(text)
        self._size += len(text)
        if self._size >= self._enough:
            text = b"".join(self._begun)
            end = text.rfind(b"\n") + 1
            self._sort(text[:end])
            self._forget(text[end:])

    def end_file(self) -> None:
        """The last line of a file need not have an end."""
        self._sort(b"".join(self._begun))
        self._forget()

    def put(self, kind: str, event: bytes) -> None:
        """One event whose type is known."""
        self._out[_PLACES.get(kind, -1)].write(event + b"\n")

    def position(self) -> list[int]:
        """Where the files end now, between two files of events."""
        return [out.tell() for out in self._out]

    def rewind(self, position: list[int]) -> None:
        """Take back what was added after that."""
        self._forget()
        for out, end in zip(self._out, position, strict=True):
            out.seek(end)
            out.truncate()

    def remove(self) -> None:
        for file in self.files.values():
            file.unlink(missing_ok=True)

    def _forget(self, rest: bytes = b"") -> None:
        self._begun, self._size = [rest], len(rest)
        self._enough = max(_BLOCK, 2 * len(rest))  # a line of many blocks is not put together block by block

    def _sort(self, text: bytes) -> None:
        if not text:
            return
        key = _KEY if _KEY in text[:_BLOCK] else _TIGHT_KEY
        length, sorted_lines = len(key), [list[bytes]() for _ in FILES]
        keep = {mark: sorted_lines[place].append for mark, place in _MARKS.items()}.get
        keep_other = sorted_lines[-1].append
        for line in text.removesuffix(b"\n").split(b"\n"):
            begin = line.find(key) + length
            keep(line[begin : begin + _MARK], keep_other)(line)
        for out, lines in zip(self._out, sorted_lines, strict=True):
            if lines:
                lines.append(b"")  # the last one has an end, too
                out.write(b"\n".join(lines))
