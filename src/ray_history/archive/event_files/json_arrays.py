"""Events out of JSON arrays, one or several one after the other.

Invariants:
* a block with anything wrong in it is read again element by element: the fast way only ever gives what that would;
* an element that is JSON but no event costs only itself; where the array cannot be followed any more, the elements up
  to the next place that certainly begins an event are lost (see `rescue`), and the place is reported;
* a file with more than `Limits.max_rescues` such places, or with one that `rescue` finds no way past, is given up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from .elements import Damage, next_element
from .events import BRACE, CLOSE, COMMA, OPEN, SPACE, fault_of, is_utf8
from .problems import Limits, Report
from .rescue import resynchronise
from .window import Window

_TAIL = 16 * 1024
"""How far from its end a block is searched for the last whole element; Ray's events have 1 to 3 kB."""
_BRACKETS = re.compile(rb"(\}[ \t\r\n]*+,[ \t\r\n]*+(?=\{))|[{}\[\]]")
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def array_events(text: Window, report: Report, limits: Limits) -> Iterator[list[bytes]]:
    """The events of one array, or of several one after the other: block by block while all is well, element by
    element through a block that has something wrong in it."""
    inside, first, rescues, careful_until = False, False, 0, 0
    while not report.given_up:
        text.skip(SPACE)
        byte = text.peek()
        if byte is None:
            break
        if byte == (CLOSE if inside else OPEN):
            if inside and not first:
                report.add("broken", text.offset, "no element between a comma and the closing bracket")
            inside = first = not inside
            text.at += 1
            continue
        first = False
        if inside and text.offset >= careful_until:
            text.fill(limits.block)
            events = _whole_elements(text, limits)
            if events is not None:
                inside = not text.ended
                yield events
                continue
            careful_until = text.offset + text.left
        try:
            if not inside:
                raise Damage("garbage", "something that is no array follows an array")
            offset, element = text.offset, next_element(text, limits)
            fault = fault_of(element)
            if fault is None:
                yield [element]
            else:
                report.add(fault[0], offset, fault[1])
            follows = text.peek()
            if follows not in (COMMA, CLOSE, None):
                raise Damage("broken", "no comma after an element")
            inside = follows != CLOSE
            text.take(1)
        except Damage as damage:
            report.add(damage.kind, text.offset + damage.at, damage.detail)
            rescues += 1
            inside = rescues <= limits.max_rescues and resynchronise(text, damage.skip)
            if not inside and text.fill(1):
                report.give_up(text.offset)
    if inside and not report.given_up:
        report.add("truncated", text.offset, "the file ends before the array does")


def _whole_elements(text: Window, limits: Limits) -> list[bytes] | None:
    """The elements from here to the last one held whole; None when they need a closer look."""
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
    """Where the last element seems to begin: after the last `},` before a `{` on the outermost level; -1 for nowhere.

    A guess that ignores strings, to be confirmed by the decoder: brackets in strings nearly always come in pairs.
    """
    level = outermost = 0
    found = -1
    for bracket in _BRACKETS.finditer(text, start):
        level += 1 if bracket[0] in (b"{", b"[") else -1
        if bracket[1] and (found < 0 or level <= outermost):
            outermost, found = level, bracket.end()
    return found
