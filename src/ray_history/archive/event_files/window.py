"""What the readers of an event file share: a window on its bytes, the limits, and the report of problems.

Invariants:
* `held[at:]` is the next part of the stream, `offset` the number of bytes already passed;
* chunks are read only when the held bytes do not suffice; an exception of their source is not caught;
* reading more, and `give_back`, may move the held bytes: a position in `held` is valid only until then;
* every problem is counted; the first `Limits.max_problems` are listed in full, the rest as one entry with their number;
* while a file is read, only its report changes the list of problems: it replaces the last entry to update the number;
* a reader stops after the current block or element once its file is given up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

PIECE = 64 * 1024
"""Bytes handled at a time: no call of the decompressor returns more, even for a decompression bomb."""

Kind = Literal[
    "gzip",  # the compressed data are damaged, fail their checksum, or other data follow them
    "truncated",  # the file or its compressed data end in the middle
    "broken",  # not JSON; in an array also a missing comma
    "garbage",  # something other than an array follows an array
    "too long",  # a line or element over `Limits.max_event`
    "not an object",  # JSON, but a number, a string or a list
    "not utf-8",  # JSON, except for its encoding
    "too large",  # the text is longer than `Limits.max_bytes`; the rest was skipped
    "too broken",  # over `Limits.max_faults` or `Limits.max_rescues`; the rest was skipped
    "more",  # problems beyond `Limits.max_problems`, counted in one
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Part of a file that is not an event, with its position."""

    file: str
    kind: Kind
    offset: int  # byte position in the decompressed text
    line: int | None  # from 1; None in arrays, and for the compressed data as a whole
    detail: str

    def __str__(self) -> str:
        place = f"byte {self.offset}" if self.line is None else f"line {self.line} (byte {self.offset})"
        return f"{self.file}: {place}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on memory, output and damage."""

    max_event: int = 16 * 1024 * 1024
    """Longest line or array element. Ray's events have kilobytes, in messages of a few megabytes. An event of 40 MB
    cannot be listed within the memory limit of queries; one of 60 MB cannot be indexed within 512 MiB."""
    max_bytes: int = 16 * 1024**3
    """Longest decompressed text: stops a decompression bomb. No collector writes files near this size."""
    block: int = 1024 * 1024
    """Bytes of text per step. Measured for arrays: 460 MB/s with 256 KiB, 750 with 1 MiB, 520 with 4 MiB."""
    max_problems: int = 100
    """Problems listed per file: enough to see what happened, few for a file that holds no events at all."""
    max_faults: int = 100_000
    """Problems after which a file is given up: about a second of work, and more than any event file has."""
    max_rescues: int = 100
    """Damaged places passed per file of arrays: each costs some milliseconds, and real damage has far fewer."""


DEFAULT = Limits()


class Report:
    """The problems of one file: the first in full, the rest as a number."""

    def __init__(self, file: str, problems: list[Problem], limits: Limits) -> None:
        self._file, self._problems, self._limits, self._count = file, problems, limits, 0
        self.given_up = False

    def add(self, kind: Kind, offset: int, detail: str, line: int | None = None) -> None:
        self._count += 1
        more = self._count - self._limits.max_problems
        if more > 1:
            self._problems.pop()
        if more > 0:
            kind, detail = "more", f"{more} more problems, the last: {kind}: {detail}"
        self._problems.append(Problem(self._file, kind, offset, line, detail))
        if self._count == self._limits.max_faults:
            self.give_up(offset)

    def give_up(self, offset: int) -> None:
        self.given_up = True
        self.add("too broken", offset, "too much damage; the rest of the file was not read")


class Window:
    """A stream of bytes of which only the part being read is held."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._passed = iter(chunks), 0
        self.held, self.at, self.ended = b"", 0, False

    @property
    def offset(self) -> int:
        return self._passed + self.at

    @property
    def left(self) -> int:
        return len(self.held) - self.at

    def fill(self, size: int) -> bool:
        """Hold the next `size` bytes; False if the stream has fewer left."""
        if self.left >= size or self.ended:
            return self.left >= size
        parts, held = [self.held[self.at :]], self.left
        while held < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            parts.append(chunk)
            held += len(chunk)
        self._passed += self.at
        self.held, self.at = b"".join(parts), 0
        return held >= size

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        self.fill(size)
        taken = self.held[self.at : self.at + size]
        self.at += len(taken)
        return taken

    def peek(self) -> int | None:
        """The next byte; None at the end."""
        return self.held[self.at] if self.fill(1) else None

    def give_back(self, data: bytes) -> None:
        """Put back the end of what was taken, even if it is no longer held."""
        if len(data) > self.at:
            self._passed -= len(data) - self.at
            self.held, self.at = data + self.held[self.at :], len(data)
        self.at -= len(data)

    def skip(self, these: bytes) -> int:
        """Move to the next byte that is not one of `these`; returns the number of line ends passed."""
        lines = 0
        while self.peek() in frozenset(these):
            ahead = self.held[self.at : self.at + PIECE]
            passed = len(ahead) - len(ahead.lstrip(these))
            lines += ahead.count(b"\n", 0, passed)
            self.at += passed
        return lines
