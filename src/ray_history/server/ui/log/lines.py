"""Lines of a log as pages show them: colours of terminals, levels, progress bars, marks of Ray."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ray_history.server.logs.windows import Line

MOST_CHARACTERS = 4_000
"""Of a line; the rest is in the raw text."""

Level = Literal["", "debug", "warn", "error"]

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_STYLE = re.compile(r"\x1b\[([0-9;:]{0,64})m")
_OTHER_CONTROL = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]"
)
_LEVEL = re.compile(r"\b(DEBUG|TRACE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\b(\w*Warning):")
_EXCEPTION = re.compile(
    r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b(?:\(\w+\))?(?::|$)|Traceback \(most recent call last\)"
)
_GLOG = re.compile(r"\[[^\]]{1,60} ([IWEFCD]) \d+ \d+\]")
_MARK = re.compile(r":(task|actor|job)_(?:name|id):(.*)")
_LEVELS: dict[str, Level] = {
    "DEBUG": "debug",
    "TRACE": "debug",
    "WARN": "warn",
    "WARNING": "warn",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
    "D": "debug",
    "W": "warn",
    "E": "error",
    "F": "error",
    "C": "error",
}
_LEVEL_WITHIN = 120
"""Characters of a line in which its level is looked for: further on, the word belongs to the message."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a line in one style."""

    text: str
    style: str
    """Names of classes, empty for plain text."""


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line of a page."""

    start: int
    number: int | None
    segments: tuple[Segment, ...]
    level: Level = ""
    note: str = ""
    is_mark: bool = False
    """Whether Ray wrote it to mark what follows, such as the begin of a task."""


def shown(line: Line, number: int | None) -> ShownLine:
    text = line.text.decode(errors="replace").removesuffix("\r")
    note = ""
    if "\r" in text:  # a progress bar writes over itself
        states = [state for state in text.split("\r") if state.strip()]
        note = f"the last of {len(states)} states of this line" if len(states) > 1 else ""
        text = states[-1] if states else ""
    if len(text) > MOST_CHARACTERS:
        note = f"{len(text) - MOST_CHARACTERS:,} more characters: see Raw"
        text = text[:MOST_CHARACTERS]
    segments = _segments(text)
    plain = "".join(segment.text for segment in segments)
    mark = _MARK.fullmatch(plain)
    if mark is not None:
        segments = (Segment(f"{mark[1]} {mark[2]}", ""),)
    return ShownLine(line.start, number, segments, level_of(plain), note, is_mark=mark is not None)


def level_of(text: str) -> Level:
    """The level of a line by the words that Python's logging and Ray's C++ code write."""
    begin = text[:_LEVEL_WITHIN]
    glog = _GLOG.match(begin)
    if glog:
        return _LEVELS.get(glog[1], "")
    found = _LEVEL.search(begin)
    if found and found[1]:
        return _LEVELS[found[1]]
    if _EXCEPTION.match(text):
        return "error"
    return "warn" if found else ""


def _segments(text: str) -> tuple[Segment, ...]:
    segments, style, position = list[Segment](), _Style(), 0
    for found in _STYLE.finditer(text):
        segments.append(Segment(_OTHER_CONTROL.sub("", text[position : found.start()]), style.classes))
        style = style.changed(found[1])
        position = found.end()
    segments.append(Segment(_OTHER_CONTROL.sub("", text[position:]), style.classes))
    return tuple(segment for segment in segments if segment.text)


@dataclass(frozen=True, slots=True)
class _Style:
    """The style that a terminal would use; only bold and the sixteen colours of letters are shown."""

    colour: str = ""
    is_bold: bool = False

    @property
    def classes(self) -> str:
        return " ".join(filter(None, (f"t-{self.colour}" if self.colour else "", "t-bold" if self.is_bold else "")))

    def changed(self, codes: str) -> _Style:
        colour, is_bold = self.colour, self.is_bold
        numbers = [int(code[:4]) for code in re.split("[;:]", codes) if code] or [0]
        if numbers[0] in (38, 48):  # one of 256 colours, or of 16 million
            return self
        for number in numbers:
            if number == 0:
                colour, is_bold = "", False
            elif number in (1, 22):
                is_bold = number == 1
            elif number == 39:
                colour = ""
            elif 30 <= number % 60 <= 37 and number < 98:
                colour = _COLOURS[number % 60 - 30]
        return _Style(colour, is_bold)
