"""Reads the events of a file, whatever its format."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

from .gunzip import LARGE_STEP, decompressed
from .json_arrays import array_events
from .json_lines import OPEN, SPACE, line_events
from .window import DEFAULT, Limits, Problem, Report, Window


def read_text(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[bytes]:
    """The decompressed text of the file in pieces.

    For callers that check the events themselves, and read the file again with `read_events` if there is any problem.
    """
    return decompressed(Window(chunks), Report(file, problems, limits), limits, LARGE_STEP)


def read_events(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[bytes]:
    """The events of the file whose body is `chunks`; problems are added to `problems` while it is read."""
    return chain.from_iterable(read_event_blocks(chunks, file=file, problems=problems, limits=limits))


def read_event_blocks(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[list[bytes]]:
    """The same events in non-empty lists of about one block: less work per event than one by one."""
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
