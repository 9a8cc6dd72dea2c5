"""Events in JSON lines, and what an event is: one valid JSON object in UTF-8.

Invariants:
* a broken line costs only itself;
* what counts as a line or an event never depends on where a block begins;
* line numbers count every line from 1, including blank, skipped and broken ones.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import msgspec

from .window import DEFAULT, Kind, Limits, Report, Window

SPACE = b" \t\r\n"
OPEN, CLOSE, BRACE, COMMA = b"[]{,"
decode = msgspec.json.Decoder(msgspec.Raw).decode
"""Checks the syntax of a value without building it. It does not check the encoding of strings: see `is_utf8`."""


def line_events(text: Window, number: int, report: Report, limits: Limits) -> Iterator[list[bytes]]:
    """The events of JSON lines; `number` is the number of lines already passed."""
    while text.fill(1) and not report.given_up:
        text.fill(limits.block)
        end = text.held.rfind(b"\n", text.at)
        if end < 0 and text.left > limits.max_event:
            number += 1
            offset, size = text.offset, _skip_line(text)
            report.add("too long", offset, f"{size} bytes, more than {limits.max_event}; skipped", number)
            continue
        if end < 0 and not text.ended:
            text.fill(min(2 * text.left, limits.max_event + 1))
            continue
        block = text.held[text.at : end if end >= 0 else None]
        lines = block.split(b"\n")
        if len(block) <= limits.max_event and is_utf8(block) and _are_events(lines):
            yield lines
        else:
            yield list(_checked_lines(lines, text.offset, number, end < 0, report, limits))
        number += len(lines)
        text.at += len(block) + (end >= 0)


def _skip_line(text: Window) -> int:
    """Move to the next line; returns the length of this one."""
    begin = text.offset
    while text.fill(1):
        end = text.held.find(b"\n", text.at)
        text.at = end + 1 if end >= 0 else len(text.held)
        if end >= 0:
            return text.offset - begin - 1
    return text.offset - begin


def _are_events(lines: list[bytes]) -> bool:
    """Whether each line is exactly one object, as in nearly all files."""
    # msgspec's `decode_lines` is 1.5 times as fast, but accepts two values in a line and one value over two lines:
    # what counts as an event would depend on where blocks begin.
    try:
        lengths = [len(value) for value in map(decode, lines)]
    except (msgspec.DecodeError, RecursionError):
        return False
    return lengths == [len(line) for line in lines] and all(line[0] == BRACE for line in lines)


def _checked_lines(
    lines: list[bytes], offset: int, before: int, torn: bool, report: Report, limits: Limits
) -> Iterator[bytes]:
    """The events among `lines`, which begin at `offset` after `before` others; `torn`: the last has no line end."""
    for number, line in enumerate(lines, before + 1):
        if report.given_up:
            return
        event = line.strip(SPACE)
        if len(line) > limits.max_event:
            report.add("too long", offset, f"{len(line)} bytes, more than {limits.max_event}; skipped", number)
        elif event not in (b"", b"null"):  # null is how Go writes a list of no events
            fault = fault_of(event)
            if fault is None:
                yield event
            elif torn and fault[0] == "broken":
                report.add("truncated", offset, f"the file ends inside this line ({fault[1]})", number)
            else:
                report.add(fault[0], offset, fault[1], number)
        offset += len(line) + 1


def fault_of(data: bytes) -> tuple[Kind, str] | None:
    """Why `data` is not an event; None if it is one."""
    try:
        decode(data)
    except msgspec.DecodeError as error:
        return "broken", str(error)
    except RecursionError:
        return "broken", "nested too deeply"
    if data[0] != BRACE:
        return "not an object", f"begins with {chr(data[0])!r}"
    return None if is_utf8(data) else ("not utf-8", "holds bytes that are not UTF-8")


def is_utf8(data: bytes) -> bool:
    """Whether `data` is valid UTF-8, which msgspec does not check for strings that it does not build."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), DEFAULT.block):  # piecewise: one emoji makes a str four times its bytes
            decoder.decode(data[start : start + DEFAULT.block])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
