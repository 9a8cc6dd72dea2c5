"""Which part of a worker's log is the output of which task, from the lines that workers write between tasks.

Before each normal task, a worker writes `:task_name:NAME` to its `.out` and to its `.err` file. These marks name no
task id. They are assigned to the attempts that the worker is known to have run, in the order of their start, and only
where no other assignment is possible: an attempt without events leaves a mark that belongs to none of the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

_TOKEN = b":task_name:"
_MAX_NAME = 64 << 10


class Mark(NamedTuple):
    """Where a mark begins, and the first line of the name in it."""

    at: int
    name: bytes


class Run(NamedTuple):
    """An attempt that a worker began, and what events say about its part of the file."""

    task: str
    attempt: int
    name: str
    has_ended: bool
    """Whether the worker itself ended it, and then waited for the next task."""
    start: int | None = None
    end: int | None = None
    is_certain: bool = True
    """Whether the worker began it at all."""

    @property
    def token(self) -> bytes:
        """The mark that Ray writes for it."""
        return _TOKEN + self.name.replace("()", "").encode() + b"\n"

    @property
    def marked_name(self) -> bytes:
        return self.token[len(_TOKEN) :].partition(b"\n")[0]


class Part(NamedTuple):
    """The output of a task in a file."""

    start: int
    end: int | None
    """None for the end of the file."""


class BeforeMark:
    """The output of one task in a file that grows: what stands before the next mark."""

    def __init__(self) -> None:
        self.held = b""
        """The end of a piece, if a mark may begin there."""
        self.is_over = False

    def feed(self, piece: bytes) -> bytes:
        text = self.held + piece
        if found := next(_lines_with_marks(text), None):
            self.held, self.is_over = b"", True
            return text[: found[0]]
        cut = _undecided(text, 0)
        self.held = text[cut:]
        return text[:cut]


def find_marks(pieces: Iterable[bytes]) -> Iterator[Mark]:
    """The marks in a file that comes in pieces. Output that lacks its last newline stands before one, on its line."""
    held, offset = b"", 0
    for piece in pieces:
        text, done = held + piece, 0
        for at, end in _lines_with_marks(text):
            yield Mark(offset + at, text[at + len(_TOKEN) : end])
            done = end + 1
        cut = _undecided(text, done)
        held, offset = text[cut:], offset + cut


def _lines_with_marks(text: bytes) -> Iterator[tuple[int, int]]:
    """Where marks begin, and where their lines end. A pattern would search the end of a line for each mark in it."""
    at = text.find(_TOKEN)
    while at >= 0 and (end := text.find(b"\n", at)) >= 0:
        yield at, end
        at = text.find(_TOKEN, end)


def _undecided(text: bytes, start: int) -> int:
    """Where a mark may begin whose end is not there yet; the length of the text if nowhere."""
    cut = text.find(_TOKEN, max(start, len(text) - _MAX_NAME))  # before that, it would be too long for a name
    if cut >= 0:
        return cut
    longest = min(len(_TOKEN) - 1, len(text) - start)
    return len(text) - next((size for size in range(longest, 0, -1) if text.endswith(_TOKEN[:size])), 0)


def assign(marks: Sequence[Mark], runs: Sequence[Run], size: int) -> dict[tuple[str, int], Part]:
    """The parts of a file of `size` bytes, by task id and attempt, as far as they are certain. `runs` are in the order
    of their start; one that is not certain comes last, and counts only if then every mark has its run."""
    if runs and not runs[-1].is_certain and [mark.name for mark in marks] != [run.marked_name for run in runs]:
        runs = runs[:-1]
    parts = {}
    for index, place in _places(marks, runs).items():
        run, following = runs[index], marks[place + 1].at if place + 1 < len(marks) else None
        end = run.end if run.end is not None else following
        if end is None and run.has_ended:
            end = size
        parts[run.task, run.attempt] = Part(marks[place].at + len(run.token), end)
    return parts


def _places(marks: Sequence[Mark], runs: Sequence[Run]) -> dict[int, int]:
    """The index of the mark of each run, by the run's index."""
    begins = [mark.at for mark in marks]
    known = {
        index: place for index, run in enumerate(runs) if (place := _reported_place(marks, begins, run)) is not None
    }
    fixed = [(-1, -1), *sorted(known.items()), (len(runs), len(marks))]
    if any(later <= earlier for (_, earlier), (_, later) in pairwise(fixed)):
        return known  # the runs were not one after the other
    for (run, mark), (next_run, next_mark) in pairwise(fixed):
        between = _only_places(marks[mark + 1 : next_mark], runs[run + 1 : next_run])
        known |= {run + 1 + index: mark + 1 + place for index, place in between.items()}
    return known


def _reported_place(marks: Sequence[Mark], begins: Sequence[int], run: Run) -> int | None:
    """The mark of a run of which events say where its part begins, or ends."""
    known = run.end if run.start is None else run.start
    if known is None:
        return None
    place = bisect_right(begins, known - len(run.token)) - 1
    return place if place >= 0 and marks[place].name == run.marked_name else None


def _only_places(marks: Sequence[Mark], runs: Sequence[Run]) -> dict[int, int]:
    """The marks that belong to these runs in every possible assignment."""
    written, wanted = [mark.name for mark in marks], [run.marked_name for run in runs]
    first = _first_places(written, wanted)
    if first is None and runs and not runs[-1].has_ended:  # its mark may not be in the archive
        wanted = wanted[:-1]
        first = _first_places(written, wanted)
    last = _first_places(written[::-1], wanted[::-1])
    if first is None or last is None:
        return {}
    latest = [len(written) - 1 - place for place in reversed(last)]
    return {index: place for index, place in enumerate(first) if place == latest[index]}


def _first_places(written: Sequence[bytes], wanted: Sequence[bytes]) -> list[int] | None:
    """The first places at which the wanted names stand in this order."""
    places, place = [], -1
    for name in wanted:
        try:
            place = written.index(name, place + 1)
        except ValueError:
            return None
        places.append(place)
    return places
