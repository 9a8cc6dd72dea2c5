"""Windows of a log: the lines around a place in it, so that a file of any size is shown piece by piece.

Invariants:
* a window begins and ends at line ends, except within a line that is longer than a window, which is shown in pieces;
* the end of a window is the start of the next one;
* a window does not cross a gap: bytes that are missing are named before the lines that follow them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.archive.log_files import LogReader
from ray_history.server.redaction.log_lines import RedactLine
from ray_history.server.redaction.rules import HIDDEN

WINDOW = 192 << 10
"""Bytes. A window is one request of the page."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a piece of a very long one."""

    start: int
    """The offset of its first byte in the file."""
    text: bytes
    """Without the line end."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines of a log."""

    start: int
    end: int
    lines: tuple[Line, ...]
    missing: tuple[int, int] | None = None
    """The bytes before `start` that are not in the archive."""


class LogWindows:
    """The windows of a log, or of the part of it from `low` to `high`."""

    def __init__(self, reader: LogReader, low: int, high: int, redact: RedactLine | None) -> None:
        """`redact` takes the secrets out of a complete line."""
        self._reader, self.low, self.high, self._redact = reader, low, max(low, min(high, reader.size)), redact

    def after(self, place: int) -> Window:
        """The window that begins at `place`, the start of a line or the end of another window."""
        start = min(max(place, self.low), self.high)
        gap = next((gap for gap in self._reader.gaps if gap[0] <= start < gap[1]), None)
        if gap is not None:
            start = min(gap[1], self.high)
        limit = self._gap_or_end(start)
        data = self._reader.read(start, min(start + WINDOW, limit))
        if start + len(data) < limit:
            data = data[: data.rfind(b"\n") + 1] or data
        return self._window(start, data, gap)

    def before(self, place: int) -> Window:
        """The window that ends at `place`, the start of another one, or at the end."""
        end = min(max(place, self.low), self.high)
        gap = next((gap for gap in self._reader.gaps if gap[0] < end <= gap[1]), None)
        if gap is not None:
            end = max(gap[0], self.low)
        low = max((gap[1] for gap in self._reader.gaps if gap[1] <= end), default=self.low)
        start = max(low, self.low, end - WINDOW)
        data = self._reader.read(start, end)
        if start > max(low, self.low):
            # The first line begins before the window. Without an end of it, the window is within one long line.
            skipped = data.find(b"\n", 0, len(data) - 1) + 1
            start, data = start + skipped, data[skipped:]
        return self._window(start, data, None)

    def last(self) -> Window:
        return self.before(self.high)

    def around(self, place: int) -> Window:
        """The window with the line at `place`, and lines before it."""
        start = max(self.low, place - WINDOW // 4, *(gap[1] for gap in self._reader.gaps if gap[1] <= place))
        if start > self.low:
            start += self._reader.read(start, place).find(b"\n") + 1
        return self.after(start)

    def _gap_or_end(self, start: int) -> int:
        return min((gap[0] for gap in self._reader.gaps if gap[0] > start), default=self.high)

    def _window(self, start: int, data: bytes, missing: tuple[int, int] | None) -> Window:
        end, lines, position = start + len(data), list[Line](), start
        *complete, rest = data.split(b"\n")
        for text in [*complete, rest] if rest else complete:
            lines.append(Line(position, text))
            position += len(text) + 1
        if self._redact is not None:
            lines = [Line(line.start, self._redacted(line, end, self._redact)) for line in lines]
        return Window(start, end, tuple(lines), missing)

    def _redacted(self, line: Line, end: int, redact: RedactLine) -> bytes:
        """A line without secrets. A piece of one may begin or end inside a secret, so nothing of it is shown."""
        line_end = line.start + len(line.text)
        begins = line.start == 0 or self._reader.read(line.start - 1, line.start) == b"\n"
        ends = line_end < end or line_end >= self._reader.size
        if not (begins and ends):
            return HIDDEN.encode()
        return redact(line.text) if line.text.strip() else line.text
