"""Values and bodies that no program of ours writes into an archive, and places in its objects where they may stand."""

from __future__ import annotations

from typing import Any

import msgspec

VALUES = {
    "text": b'"abc"',
    "negative": b"-1",
    "fraction": b"1.5e0",
    "huge": b"9" * 400,
    "beyond-float": b"1e400",
    "beyond-64-bits": b"36893488147419103232",
    "not-a-number": b"NaN",
    "year-1": b"-62135596800",
    "year-9999": b"253402300799",
    "list": b"[1]",
    "object": b'{"a":1}',
    "true": b"true",
    "long": b'"%s"' % (b"x" * 20_000),
    "deep": b"[" * 5_000 + b"]" * 5_000,
    "not-UTF-8": b'"\xff\xfe"',
    "half-a-surrogate": b'"\\ud800"',
}
"""JSON, or nearly, in the place of one value."""

BODIES = {
    "empty": b"",
    "not-JSON": b"{torn",
    "a-list": b"[]",
    "null": b"null",
    "a-number": b"7",
    "UTF-16": '{"version": 1}'.encode("utf-16"),
    "binary": bytes(range(256)),
    "deep": b'{"x":' + b"[" * 200_000,
    "10-MB": b'{"node":"%s"}' % (b"x" * 10_000_000),
}
"""In the place of a whole object."""

_MARK = "the place of the value"


def poisoned(body: bytes, place: tuple[str | int, ...], value: bytes) -> bytes:
    """The JSON object with another value in one place, which need not exist."""
    whole = msgspec.json.decode(body)
    inside: Any = whole
    for step in place[:-1]:
        inside = inside[step] if isinstance(step, int) else inside.setdefault(step, {})
    inside[place[-1]] = _MARK
    return msgspec.json.encode(whole).replace(b'"%s"' % _MARK.encode(), value)
