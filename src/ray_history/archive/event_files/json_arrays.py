"""Events in JSON arrays, one array or several one after the other.

Invariants:
* a block with anything wrong in it is read again element by element: reading by blocks never gives other events;
* an element that is JSON but not an event costs only itself; where the array cannot be followed any more, the elements
  up to the next certain beginning of an event are lost, and the place is reported;
* an element is complete before it is returned: a value near the end of the held text counts only at the end of the
  file; an element is never searched beyond `Limits.max_event`;
* a file with more than `Limits.max_rescues` damaged places, or with no certain event after one of them, is given up;
  the search after one damaged place looks at `_MAX_CANDIDATES` places and `_HORIZON` bytes from each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from .json_lines import BRACE, CLOSE, COMMA, OPEN, SPACE, decode, fault_of, is_utf8
from .window import Kind, Limits, Report, Window

_TAIL = 16 * 1024
"""How far from its end a block is searched for the last complete element; Ray's events have 1 to 3 kB."""
_MARGIN = 64
"""A number, an escape or a gap this near to the end of the held text may look different with the next block."""
_HORIZON = 64 * 1024
"""Longest event that is recognised as the first one after damage."""
_MAX_CANDIDATES = 10_000
"""Places tried after one damage (each 1 to 30 us): lists inside Ray's events have far fewer entries."""

_BRACKETS = re.compile(rb"(\}[ \t\r\n]*+,[ \t\r\n]*+(?=\{))|[{}\[\]]")
_OBJECT = re.compile(rb"[,}\[][ \t\r\n]*+(?=\{)")
_POSITION = re.compile(r"(trailing characters )?\(byte (\d+)\)")
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Envelope(msgspec.Struct):
    """What every event has and no part of one has: the collectors that write arrays refuse events without it."""

    session: str = msgspec.field(name="sessionName")


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


class _Damage(Exception):
    """The array cannot be followed from here; the next event is searched for `skip` bytes further on."""

    def __init__(self, kind: Kind, detail: str, *, at: int = 0, skip: int = 0) -> None:
        self.kind, self.detail, self.at, self.skip = kind, detail, at, skip


def array_events(text: Window, report: Report, limits: Limits) -> Iterator[list[bytes]]:
    """The events of all arrays: in blocks where all is well, one by one in a block that has something wrong in it."""
    return _ArrayReader(text, report, limits).events()


class _ArrayReader:
    def __init__(self, text: Window, report: Report, limits: Limits) -> None:
        self._text, self._report, self._limits = text, report, limits
        self._is_inside = self._is_after_opening = False
        self._rescues = 0
        self._careful_until = 0
        """Offset up to which elements are read one by one."""

    def events(self) -> Iterator[list[bytes]]:
        text = self._text
        while not self._report.given_up:
            text.skip(SPACE)
            byte = text.peek()
            if byte is None:
                break
            if byte == (CLOSE if self._is_inside else OPEN):
                self._pass_bracket()
            elif (block := self._read_block()) is not None:
                yield block
            else:
                yield from self._read_element()
        if self._is_inside and not self._report.given_up:
            self._report.add("truncated", text.offset, "the file ends before the array does")

    def _pass_bracket(self) -> None:
        if self._is_inside and not self._is_after_opening:
            self._report.add("broken", self._text.offset, "no element between a comma and the closing bracket")
        self._is_inside = self._is_after_opening = not self._is_inside
        self._text.at += 1

    def _read_block(self) -> list[bytes] | None:
        """All complete elements of the next block; None if they must be read one by one."""
        self._is_after_opening = False
        text = self._text
        if not self._is_inside or text.offset < self._careful_until:
            return None
        text.fill(self._limits.block)
        elements = _complete_elements(text, self._limits)
        if elements is None:
            self._careful_until = text.offset + text.left
        else:
            self._is_inside = not text.ended
        return elements

    def _read_element(self) -> Iterator[list[bytes]]:
        """The next element if it is an event, or none after moving past damage."""
        text = self._text
        try:
            if not self._is_inside:
                raise _Damage("garbage", "something other than an array follows an array")
            offset, element = text.offset, _next_element(text, self._limits)
            fault = fault_of(element)
            if fault is None:
                yield [element]
            else:
                self._report.add(fault[0], offset, fault[1])
            separator = text.peek()
            if separator not in (COMMA, CLOSE, None):
                raise _Damage("broken", "no comma after an element")
            self._is_inside = separator != CLOSE
            text.take(1)
        except _Damage as damage:
            self._report.add(damage.kind, text.offset + damage.at, damage.detail)
            self._rescues += 1
            self._is_inside = self._rescues <= self._limits.max_rescues and _resynchronise(text, damage.skip)
            if not self._is_inside and text.fill(1):
                self._report.give_up(text.offset)


def _complete_elements(text: Window, limits: Limits) -> list[bytes] | None:
    """The elements from here to the last complete one held; None if they need a closer look."""
    end, bracket = len(text.held), b""  # at the end of the file the closing bracket is in the text
    if not text.ended:
        boundary = _last_boundary(text.held, max(text.at, end - _TAIL))
        end, bracket = text.held.rfind(b",", text.at, max(boundary, text.at)), b"]"
    if end < 0 or end - text.at > limits.max_event:
        return None
    part = b"".join((b"[", memoryview(text.held)[text.at : end], bracket))
    try:
        events = [bytes(element) for element in _decode_list(part)]  # a Raw would keep the whole block in memory
    except (msgspec.DecodeError, RecursionError):
        return None
    if not is_utf8(part) or not all(event[0] == BRACE for event in events):
        return None
    text.at = end + len(bracket)  # past the comma
    return events


def _last_boundary(text: bytes, start: int) -> int:
    """Where the last element seems to begin: after the last `},` before an outermost `{`; -1 if there is none."""
    # A guess that ignores strings and is confirmed by the decoder: brackets in strings nearly always come in pairs.
    level = outermost = 0
    found = -1
    for bracket in _BRACKETS.finditer(text, start):
        level += 1 if bracket[0] in (b"{", b"[") else -1
        if bracket[1] and (found < 0 or level <= outermost):
            outermost, found = level, bracket.end()
    return found


def _next_element(text: Window, limits: Limits) -> bytes:
    """The next element; moves past it and the white space after it, and not at all if it is damaged."""
    while True:
        end, fault = value_end(memoryview(text.held)[text.at :])
        if end > limits.max_event:
            raise _Damage("too long", f"more than {limits.max_event} bytes; skipped", skip=limits.max_event)
        if end > text.left - _MARGIN and not text.ended:
            text.fill(min(2 * text.left, limits.max_event + _MARGIN + 1))
        elif fault is None:
            return text.take(end).strip(SPACE)
        elif end == text.left:
            raise _Damage("truncated", "the file ends inside this element, or this element never ends", skip=1)
        else:
            raise _Damage("broken", fault, at=end, skip=1)


def value_end(data: memoryview) -> tuple[int, str | None]:
    """Where the JSON value at the beginning of `data` ends, or where and why it is broken."""
    # msgspec has the position only in its message; a test checks that it stays there.
    try:
        decode(data)
    except RecursionError:
        return 0, "nested too deeply"
    except msgspec.DecodeError as error:
        position = _POSITION.search(str(error))
        if position is None:  # truncated
            return len(data), str(error)
        if position[1]:
            return int(position[2]) - 1, None  # it counts the first trailing character as read
        return int(position[2]), str(error)
    return len(data), None


def _resynchronise(text: Window, skip: int) -> bool:
    """Move to the next certain beginning of an event after damage; False if there is none."""
    # Certain: a complete object with a session name, as an element of a list. Lists inside events have no such
    # objects, and inside a string their quotes would be escaped.
    text.take(skip)
    for _ in range(_MAX_CANDIDATES):
        text.fill(_HORIZON)
        end = min(text.at + _HORIZON, len(text.held))
        if _is_event(memoryview(text.held)[text.at : end]):
            return True
        before = _OBJECT.search(text.held, text.at, end)
        if before is None and end == len(text.held) and text.ended:
            text.at = end
            return False
        text.at = before.end() if before else end - _MARGIN
    return False


def _is_event(data: memoryview) -> bool:
    try:
        _decode_envelope(data)
    except (RecursionError, UnicodeDecodeError):  # msgspec raises it for the name, before it has read the rest
        return False
    except msgspec.DecodeError as error:
        return "trailing characters" in str(error)  # raised only after the whole event was decoded
    return True
