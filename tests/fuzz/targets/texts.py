"""Texts of Ray and of users' programs: errors, colours, and marks in logs."""

from __future__ import annotations

from zlib import crc32

from ray_history.server import formatting
from ray_history.server.logs.stream import ANSI, Colours
from ray_history.server.logs.task_marks import Run, assign, find_marks
from ray_history.server.ui.session.tracebacks import parse_traceback
from tests.fuzz.target import MAX_INPUT, target
from tests.support.captured import captured


def _errors() -> list[bytes]:
    texts = {
        row["error_message"]
        for rows in captured().truth.values()
        if isinstance(rows, dict)
        for row in _rows(rows)
        if row.get("error_message")
    }
    real = [text.encode()[:3000] for text in sorted(texts)]
    return [*real[:12], b"ray::f() (pid=1, ip=127.0.0.1)\n  File\nValueError: x\n"]


def _rows(answer: dict[str, object]) -> list[dict[str, str]]:
    data = answer.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    rows = result.get("result") if isinstance(result, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


@target(
    "tracebacks", _errors, tokens=(b"ray::", b"() (pid=", b"\n  ", b"\n\n", b"\x1b[31m", b"Error:", b"\r", b"Traceback")
)
def tracebacks(data: bytes) -> None:
    """The decisive line is one of at most 120 lines without colours, all of which stand in the text."""
    text = data.decode(errors="replace")
    found = parse_traceback(text)
    plain = formatting.plain(text)
    assert len(found.lines) <= 120
    assert found.lines_before >= 0
    assert 0 <= found.decisive < max(1, len(found.lines))
    assert found.decisive_line in plain
    assert found.message in found.decisive_line
    assert all(line in plain and len(line) <= 2000 for line in found.lines)


@target("plain_texts", _errors, tokens=(b"\x1b]", b"\x1b[", b"\x07", "\u202e".encode(), "\x9b".encode(), b"\x1b\x1b"))
def plain_texts(data: bytes) -> None:
    """No character of a plain text is invisible or changes the direction; a clipped one is a short line."""
    text = data.decode(errors="replace")
    plain = formatting.plain(text)
    assert not set(plain) & set("\x1b\x00\x07\x7f\x9b\u202e\u2066")
    assert formatting.plain(plain) == plain
    for most in (10, 200):
        clipped = formatting.clip(text, most)
        assert len(clipped) <= most
        assert "\n" not in clipped
    formatting.shell(text)


@target(
    "colours",
    lambda: [b"\x1b[31mred\x1b[0m", b"\x1b[1;31;42mtext\n", b"plain\x1b"],
    tokens=(b"\x1b[", b"m", b";", b"("),
)
def colours(data: bytes) -> None:
    """Colours are removed wherever pieces end."""
    whole, step = ANSI.sub(b"", data), 1 + len(data) // (1 + crc32(data[:64]) % 300)
    stream = Colours()
    pieces = [stream.remove(data[start : start + step]) for start in range(0, len(data), step)]
    found = b"".join([*pieces, stream.held])
    if ANSI.sub(b"", whole) == whole and max(map(len, data.split(b"\x1b"))) < 64:
        assert found == whole
    assert len(found) <= len(data)


@target(
    "task_marks",
    lambda: [b":task_name:f\noutput\n:task_name:g\nmore", b"output without end:task_name:f\n\n"],
    tokens=(b":task_name:", b":task_name:f\n", b"\n", b":task_na"),
)
def task_marks(data: bytes) -> None:
    """Marks are found wherever pieces end; the parts of tasks are within the file, and none begins before its mark."""
    marks = list(find_marks([data]))
    step = 1 + len(data) // (1 + crc32(data[:64]) % 300)
    if len(data) <= MAX_INPUT:  # names of 64 KiB are found in one piece only
        assert list(find_marks(data[start : start + step] for start in range(0, len(data), step))) == marks
    assert all(data.startswith(b":task_name:" + mark.name + b"\n", mark.at) for mark in marks)
    names = [mark.name.decode(errors="replace") for mark in marks[: crc32(data) % 8]]
    runs = [Run(str(number), 0, name, number % 2 == 0) for number, name in enumerate(names)]
    for part in assign(marks, runs, len(data)).values():
        assert 0 <= part.start <= len(data)
        assert part.end is None or part.start <= part.end <= len(data)
