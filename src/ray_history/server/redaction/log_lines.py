"""Secrets in log files that Ray itself writes: runtime environments stand there with the values of their variables.

Such a file is sent line by line without them. What a program printed is the program's own, and is sent as it is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

import msgspec

from ray_history.server.redaction.rules import HIDDEN, has_secrets, redacted

_LONGEST_LINE = 8 << 20
"""Bytes of a line that are looked through; a longer one is hidden whole, so that none is ever held whole."""
_TOO_LONG = f"{HIDDEN} (a line of more than {_LONGEST_LINE >> 20} MiB)".encode()


def _of_json(line: bytes) -> bytes:
    """A line of JSON; one that is none, because it is torn, may begin or end inside a secret."""
    try:
        told = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return HIDDEN.encode()
    shown = redacted(told) if has_secrets(line) else told
    return line if shown == told else msgspec.json.encode(shown)


def _of_text(line: bytes) -> bytes:
    told = line.decode(errors="surrogateescape")
    shown: str = redacted(told)
    return line if shown == told else shown.encode(errors="surrogateescape")


_Shown = Callable[[bytes], bytes]
_WRITTEN_BY_RAY: tuple[tuple[re.Pattern[str], _Shown], ...] = (
    (re.compile(r"(?:.*/)?(?:export_)?events/[^/]+", re.DOTALL), _of_json),
    (re.compile(r"(?:.*/)?runtime_env_(?:agent|setup)[^/]*", re.DOTALL), _of_text),
)
"""Files by their names, and what may be shown of a line."""


def written_by_ray(name: str) -> _Shown | None:
    """How a line of a log file is shown, if Ray itself writes runtime environments into it."""
    plain = posixpath.normpath(name)
    return next((shown for pattern, shown in _WRITTEN_BY_RAY if pattern.fullmatch(plain)), None)


def without_secrets(name: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a log file, from the beginning of a line on, as they may be shown."""
    shown = written_by_ray(name)
    if shown is None:
        yield from parts
        return
    lines = RedactedLines(shown)
    for piece in parts:
        if ready := lines.taken(piece):
            yield ready
    if rest := lines.rest():
        yield rest


class RedactedLines:
    """Takes secrets out of bytes that come in pieces; holds the line that has begun."""

    def __init__(self, shown: _Shown) -> None:
        self._shown = shown
        self._begun = bytearray()
        self._too_long = False

    def taken(self, piece: bytes) -> bytes:
        """What is ready of it: all lines that have ended."""
        *ended, begun = piece.split(b"\n")
        ready = bytearray()
        for line in ended:
            self._hold(line)
            ready += self._line() + b"\n"
        self._hold(begun)
        return bytes(ready)

    def rest(self) -> bytes:
        """A last line without an end."""
        return self._line()

    def _hold(self, part: bytes) -> None:
        self._begun += part
        if len(self._begun) > _LONGEST_LINE:
            self._too_long = True
        if self._too_long:
            self._begun.clear()

    def _line(self) -> bytes:
        line, too_long = bytes(self._begun), self._too_long
        self._begun.clear()
        self._too_long = False
        if too_long:
            return _TOO_LONG
        return self._shown(line) if line.strip() else line
