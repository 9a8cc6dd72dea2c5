"""Error texts from Ray: the exception that was raised, the line that names it, and the task in which it occurred first.

A text is the output of a worker (`ray::f() (pid=1, ip=…)`, frames, `ValueError: x`), or Ray's own message about a
process that died. An error that passed through several tasks contains the marks `ray::…()` of all of them, the origin
last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ray_history.server import formatting

MARK = r"ray::([^\n]*?)\(\)[^\n(]{0,9}\(pid="
"""The name of a task in its traceback; a colour code may follow it."""
RAISED = r"(?:\n[ \t][^\n]*|\(pid=[^\n]*)\n+([A-Za-z_][A-Za-z_0-9.]*)(?:\([A-Za-z_0-9]*\))?(?::|\n|$)"
"""The name of an exception: at the beginning of a line, after the indented lines of a traceback or after a mark."""
NOT_COMPUTED = "input arguments for this task could not be computed"

_NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\(\w*\))?(?::|$)")
_OPENING = re.compile(r"(User exception|System error|Traceback \(most recent call last\)):|.*ray::.*\(pid=|\s*$")
_MOST_LINES = 120
_LONGEST_LINE = 2000


@dataclass(frozen=True, slots=True)
class Traceback:
    """An error text, ready to be shown."""

    lines: list[str]
    decisive: int
    """The index of the line that says what happened."""
    lines_before: int = 0
    """The number of lines left out at the beginning."""

    @property
    def decisive_line(self) -> str:
        return self.lines[self.decisive] if self.lines else ""

    @property
    def message(self) -> str:
        """The decisive line without the name of the exception."""
        line = self.decisive_line
        name = _NAME.match(line)
        return (line[name.end() :].strip() or line) if name and name[0].endswith(":") else line


def parse_traceback(text: str) -> Traceback:
    """Remove colours from an error text, keep the end of a very long one, and find its decisive line."""
    lines = [line[:_LONGEST_LINE] for line in formatting.plain(text).strip("\n").split("\n")]
    lines_before = max(0, len(lines) - _MOST_LINES)
    lines = lines[lines_before:]
    return Traceback(lines, _decisive(lines), lines_before)


def _decisive(lines: list[str]) -> int:
    """The last exception that follows a traceback or a mark; without any, the first line with content."""
    found = None
    after_frames = False
    for number, line in enumerate(lines):
        if after_frames and line and not line[0].isspace():
            if _NAME.match(line):
                found = number
            after_frames = False
        if line.startswith((" ", "\t")) or "(pid=" in line:
            after_frames = True
    if found is not None:
        return found
    return next((number for number, line in enumerate(lines) if not _OPENING.match(line)), 0)
