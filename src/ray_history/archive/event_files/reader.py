"""The events of a file, whatever its format: the content decides, never the name."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

from .events import OPEN, SPACE
from .gunzip import LARGE_STEP, decompressed
from .json_arrays import array_events
from .json_lines import line_events
from .problems import DEFAULT, Limits, Problem, Report
from .window import Window


def read_text(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[bytes]:
    """The decompressed text of the file in pieces, unchecked: for a reader that checks the events itself, and leaves
    all of them to `read_events` if there is any problem."""
    return decompressed(Window(chunks), Report(file, problems, limits), limits, LARGE_STEP)


def read_events(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[bytes]:
    """Each event of the file with the body `chunks`; what is wrong with it is added to `problems` while reading."""
    return chain.from_iterable(read_event_blocks(chunks, file=file, problems=problems, limits=limits))


def read_event_blocks(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[list[bytes]]:
    """The same events in lists of up to about one block, never empty: less work per event for who reads many."""
    report = Report(file, problems, limits)
    text = Window(decompressed(Window(chunks), report, limits))
    if text.fill(3) and text.held.startswith(codecs.BOM_UTF8):
        text.at = 3
    blank_lines = text.skip(SPACE)
    if text.peek() == OPEN:
        blocks = array_events(text, report, limits)
    else:
        blocks = line_events(text, blank_lines, report, limits)
    yield from filter(None, blocks)
