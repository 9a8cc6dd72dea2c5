"""Secrets in log files that Ray itself writes: they contain runtime environments with the values of variables.

These files are redacted line by line. The output of programs is sent unchanged.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.server.redaction.rules import HIDDEN, has_secrets, redacted

_MAX_LINE = 8 << 20
"""Bytes. Longer lines are redacted completely, so that no line of any length is held in memory."""
_TOO_LONG = f"{HIDDEN} (a line of more than {_MAX_LINE >> 20} MiB)".encode()


def _of_json(line: bytes) -> bytes:
    """A redacted line of JSON. A torn line may begin or end inside a secret, so it is redacted completely."""
    try:
        value = msgspec.json.decode(line)
    except DECODING_ERRORS:
        return HIDDEN.encode()
    result = redacted(value) if has_secrets(line) else value
    return line if result == value else msgspec.json.encode(result)


def _of_text(line: bytes) -> bytes:
    text = line.decode(errors="surrogateescape")
    result: str = redacted(text)
    return line if result == text else result.encode(errors="surrogateescape")


RedactLine = Callable[[bytes], bytes]
_WRITTEN_BY_RAY: tuple[tuple[re.Pattern[str], RedactLine], ...] = (
    (re.compile(r"(?:.*/)?(?:export_)?events/[^/]+", re.DOTALL), _of_json),
    (re.compile(r"(?:.*/)?runtime_env_(?:agent|setup)[^/]*", re.DOTALL), _of_text),
)
"""Patterns of file names, and how to redact a line of such a file."""


def written_by_ray(name: str) -> RedactLine | None:
    """How to redact a line of a log file; None if Ray writes no runtime environments into it."""
    plain = posixpath.normpath(name)
    return next((redact_line for pattern, redact_line in _WRITTEN_BY_RAY if pattern.fullmatch(plain)), None)


def without_secrets(name: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a log file without secrets. They must start at the beginning of a line."""
    redact_line = written_by_ray(name)
    if redact_line is None:
        yield from parts
        return
    lines = RedactedLines(redact_line)
    for piece in parts:
        if ready := lines.feed(piece):
            yield ready
    if rest := lines.finish():
        yield rest


class RedactedLines:
    """Redacts bytes that come in pieces. Holds back the incomplete last line."""

    def __init__(self, redact_line: RedactLine) -> None:
        self._redact_line = redact_line
        self._incomplete = bytearray()
        self._too_long = False

    def feed(self, piece: bytes) -> bytes:
        """Take a piece and return the lines that are complete."""
        *complete, rest = piece.split(b"\n")
        ready = bytearray()
        for line in complete:
            self._hold(line)
            ready += self._line() + b"\n"
        self._hold(rest)
        return bytes(ready)

    def finish(self) -> bytes:
        """The last line, without a line end."""
        return self._line()

    def _hold(self, part: bytes) -> None:
        self._incomplete += part
        if len(self._incomplete) > _MAX_LINE:
            self._too_long = True
        if self._too_long:
            self._incomplete.clear()

    def _line(self) -> bytes:
        line, too_long = bytes(self._incomplete), self._too_long
        self._incomplete.clear()
        self._too_long = False
        if too_long:
            return _TOO_LONG
        return self._redact_line(line) if line.strip() else line
