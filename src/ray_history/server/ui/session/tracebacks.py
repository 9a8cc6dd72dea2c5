"""Error texts as Ray keeps them: what was raised, which line says so, and whose failure it was in the first place.

A text is what a worker printed (`ray::f() (pid=1, ip=…)`, frames, `ValueError: x`), or Ray's own words about a process
that died. Errors that passed through several tasks hold the marks `ray::…()` of all of them, the origin last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ray_history.server import formatting as texts

MARK = r"ray::([^\n]*?)\(\)[^\n(]{0,9}\(pid="
"""The name of a task in its trace; a colour may stand behind it."""
RAISED = r"(?:\n[ \t][^\n]*|\(pid=[^\n]*)\n+([A-Za-z_][A-Za-z_0-9.]*)(?:\([A-Za-z_0-9]*\))?(?::|\n|$)"
"""An exception's name: at the begin of a line, after the indented lines of a traceback or after a mark."""
NOT_COMPUTED = "input arguments for this task could not be computed"

_NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\(\w*\))?(?::|$)")
_OPENING = re.compile(r"(User exception|System error|Traceback \(most recent call last\)):|.*ray::.*\(pid=|\s*$")
_MOST_LINES = 120
_LONGEST_LINE = 2000


@dataclass(frozen=True, slots=True)
class Trace:
    """An error text to be shown."""

    lines: list[str]
    decisive: int
    """Which line says what happened."""
    lines_before: int = 0
    """Lines that were left out at the begin."""

    @property
    def message(self) -> str:
        """What the decisive line says, without the name of the exception."""
        line = self.lines[self.decisive] if self.lines else ""
        name = _NAME.match(line)
        return (line[name.end() :].strip() or line) if name and name[0].endswith(":") else line


def parse_traceback(text: str) -> Trace:
    """The text without colours, and its decisive line; of a very long one the end."""
    lines = [line[:_LONGEST_LINE] for line in texts.plain(text).strip("\n").split("\n")]
    left_out = max(0, len(lines) - _MOST_LINES)
    lines = lines[left_out:]
    return Trace(lines, _decisive(lines), left_out)


def _decisive(lines: list[str]) -> int:
    told = None
    after = False
    for number, line in enumerate(lines):
        if after and line and not line[0].isspace():
            if _NAME.match(line):
                told = number
            after = False
        if line.startswith((" ", "\t")) or "(pid=" in line:
            after = True
    if told is not None:
        return told
    return next((number for number, line in enumerate(lines) if not _OPENING.match(line)), 0)
