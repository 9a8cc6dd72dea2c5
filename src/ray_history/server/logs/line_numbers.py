"""The numbers of lines in a log, whose windows are found by bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

from ray_history.archive.log_files import LogFile, LogReader
from ray_history.server.sessions.open_session import OpenSession

_BLOCK = 4 << 20
MOST_BLOCKS = 64
"""Counted for one request. Behind that, lines have no number until further requests have counted on."""


class LineNumbers:
    """The number of line ends before each block of a log, counted when they are needed."""

    def __init__(self) -> None:
        self._before = [0]
        self._lock = threading.Lock()

    def at(self, reader: LogReader, offset: int) -> int | None:
        """The number of the line that begins at `offset`, from 1 on; None if too much is not counted yet."""
        block = offset // _BLOCK
        with self._lock:
            if not self._count_until(reader, lambda: len(self._before) > block):
                return None
            return self._before[block] + _line_ends(reader, block * _BLOCK, offset) + 1

    def offset_of(self, reader: LogReader, number: int) -> int | None:
        """Where the line with this number begins; the end of the log if it has fewer, None if that is not known yet."""
        ends = number - 1
        with self._lock:
            is_found = self._count_until(
                reader, lambda: self._before[-1] >= ends or (len(self._before) - 1) * _BLOCK >= reader.size
            )
            if not is_found:
                return None
            if ends > self._before[-1]:
                return reader.size
            block = next((n for n, count in enumerate(self._before[1:]) if count >= ends), 0)
            return _after_line_ends(reader, block * _BLOCK, ends - self._before[block])

    def _count_until(self, reader: LogReader, is_enough: Callable[[], bool]) -> bool:
        """Count block by block; False if that is not enough."""
        for _ in range(MOST_BLOCKS):
            if is_enough():
                return True
            start = (len(self._before) - 1) * _BLOCK
            self._before.append(self._before[-1] + _line_ends(reader, start, start + _BLOCK))
        return is_enough()


def _pieces(reader: LogReader, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The bytes from `start` to `end` with their offsets, without gaps."""
    gaps = [gap for gap in reader.gaps if gap[0] < end and gap[1] > start]
    for gap_start, gap_end in [*gaps, (end, end)]:
        if gap_start > start:
            yield start, reader.read(start, gap_start)
        start = max(start, gap_end)


def _line_ends(reader: LogReader, start: int, end: int) -> int:
    return sum(piece.count(b"\n") for _, piece in _pieces(reader, start, end))


def _after_line_ends(reader: LogReader, start: int, ends: int) -> int:
    """The offset after so many line ends of a block."""
    for offset, piece in _pieces(reader, start, min(start + _BLOCK, reader.size)):
        position = 0
        while ends and (found := piece.find(b"\n", position)) >= 0:
            position, ends = found + 1, ends - 1
        if not ends:
            return offset + position
    return start


_numbers: WeakKeyDictionary[OpenSession, dict[tuple[str, str, int], LineNumbers]] = WeakKeyDictionary()


def line_numbers(session: OpenSession, file: LogFile) -> LineNumbers:
    """The line numbers of a log; those of a log that has grown are counted anew."""
    return _numbers.setdefault(session, {}).setdefault((file.node, file.name, file.size), LineNumbers())
