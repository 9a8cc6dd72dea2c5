"""What can be wrong with an event file, and how much of it is put up with.

Invariants:
* every problem is counted; the first `Limits.max_problems` are kept in full, the rest as one with their number;
* while a file is read, only its report changes the list of problems: it replaces the last one to count on;
* once a file is given up, its reader stops after the block or element at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "gzip",  # the compressed data are damaged, fail their checksum or are followed by something else
    "truncated",  # the file, or what was compressed, ends in the middle
    "broken",  # not JSON; in an array also a missing comma
    "garbage",  # something that is no array follows an array
    "too long",  # a line or element over `Limits.max_event`
    "not an object",  # JSON, but a number, a string or a list
    "not utf-8",  # JSON but for its encoding
    "too large",  # the text is longer than `Limits.max_bytes`; the rest was not read
    "too broken",  # over `Limits.max_faults` or `Limits.max_rescues`; the rest was not read
    "more",  # problems beyond `Limits.max_problems`, counted in one
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that is no event, and where."""

    file: str
    kind: Kind
    offset: int  # byte position in the decompressed text
    line: int | None  # from 1; None where there are no lines: in arrays, and for the compressed data as a whole
    detail: str

    def __str__(self) -> str:
        place = f"byte {self.offset}" if self.line is None else f"line {self.line} (byte {self.offset})"
        return f"{self.file}: {place}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Limits:
    max_event: int = 16 * 1024 * 1024
    """Longest line or array element. Ray's have kilobytes, and come in messages of a few megabytes; one of 40 MB cannot
    be listed within the memory that queries have, one of 60 MB not be built within 512 MiB."""
    max_bytes: int = 16 * 1024**3
    """Longest decompressed text: stops a decompression bomb; no collector lets a file grow near it."""
    block: int = 1024 * 1024
    """Text handled at a time, by measurement: arrays at 460 MB/s with 256 KiB, 750 with 1 MiB, 520 with 4 MiB."""
    max_problems: int = 100
    """Problems kept per file: enough to see what happened, little for a file that is no event file at all."""
    max_faults: int = 100_000
    """Problems after which a file is given up: they take about a second, and no event file has as many."""
    max_rescues: int = 100
    """Damaged places passed per file of arrays: each costs some milliseconds, and no real damage has as many."""


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
