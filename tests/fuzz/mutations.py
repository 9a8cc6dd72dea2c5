"""Makes new inputs out of old ones, the same for the same seed: on bytes, and on the values inside JSON.

JSON is changed value by value, because random bytes mostly break its syntax, and then reach no code behind the decoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), 1e308, -0.0, 0.5),
    *("", " ", "0", "-1", "nan", "inf", "null", "\x00", "\ufeff", "\u202e", "é", "😀", "\ud800", "..", "/", "a/../b"),
    *("%00", "*", "**", "[", "'", '"', "\\", "${x}", "{}", "<script>", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59Z"),
    *("0001-01-01T00:00:00Z", "session_2026-01-31_12-00-00_000000_1", "x" * 300, "password=hunter2"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": []}}),
)
"""Values that other programs do not expect."""
_BYTES = tuple(b'\x00\n\r\t "\\/{}[]<>()*?.,:;=%&#-+_~^$|0189aAzZ\x7f\x80\xbf\xc0\xed\xff')


def mutated(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random, limit: int) -> bytes:
    """A variation of `data`, in which parts of others and words of the format may occur."""
    for _ in range(1 + random.randrange(3)):
        if random.random() < 0.4 and (changed := mutated_json(data, random)) is not None:
            data = changed
        else:
            data = random.choice(_OPERATIONS)(bytearray(data), others, tokens, random)
    return data[:limit]


def _change(data: bytearray, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    for _ in range(1 + random.randrange(4)):
        if data:
            data[random.randrange(len(data))] = (
                random.choice(_BYTES) if random.random() < 0.7 else random.randrange(256)
            )
    return bytes(data)


def _remove(data: bytearray, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    start, end = _range(data, random)
    del data[start:end]
    return bytes(data)


def _repeat(data: bytearray, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    start, end = _range(data, random)
    data[end:end] = data[start:end] * (1 + random.randrange(8))
    return bytes(data)


def _insert(data: bytearray, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    words = tokens or [bytes([byte]) for byte in _BYTES]
    at = random.randrange(len(data) + 1)
    data[at : at + random.choice((0, 0, 1))] = random.choice(words)
    return bytes(data)


def _splice(data: bytearray, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others) if others else b""
    start, end = _range(other, random)
    at = random.randrange(len(data) + 1)
    return bytes(data[:at]) + other[start:end] + bytes(data[at:])


def _cut(data: bytearray, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return bytes(data[: random.randrange(len(data) + 1)])


_OPERATIONS: tuple[Callable[[bytearray, Sequence[bytes], Sequence[bytes], Random], bytes], ...] = (
    *(_change, _change, _remove, _repeat, _insert, _insert, _splice, _cut),
)


def _range(data: bytes | bytearray, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 4, 16, 64, 256)))


def mutated_json(data: bytes, random: Random) -> bytes | None:
    """The JSON with one of its values changed; of JSON lines, in one of the lines; None if it is not JSON."""
    lines = data.split(b"\n")
    number = random.randrange(len(lines))
    try:
        value = json.loads(lines[number] if len(lines) > 1 else data)
    except (ValueError, RecursionError):
        return None
    changed = json.dumps(changed_value(value, random), separators=(",", ":")).encode()
    return b"\n".join([*lines[:number], changed, *lines[number + 1 :]])


def changed_value(value: Any, random: Random) -> Any:
    """A value with one part replaced, removed, repeated or added, the deeper the rarer."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return random.choice(HOSTILE)
    if isinstance(value, list):
        return _changed_list(value, random)
    name = random.choice(list(value))
    match random.randrange(8):
        case 0:
            return {other: part for other, part in value.items() if other != name}
        case 1:
            return {**value, str(random.choice(HOSTILE)): value[name]}
        case _:
            return {**value, name: changed_value(value[name], random)}


def _changed_list(value: list[Any], random: Random) -> list[Any]:
    at = random.randrange(len(value))
    match random.randrange(8):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return value[:at] + [value[at]] * (1 + random.randrange(4)) + value[at:]
        case _:
            return [*value[:at], changed_value(value[at], random), *value[at + 1 :]]


def pumped(data: bytes, random: Random) -> tuple[bytes, bytes, bytes]:
    """What stands before a part that can be repeated, the part, and what stands after it."""
    start = random.randrange(len(data) + 1)
    part = data[start : start + random.choice((1, 2, 3, 5, 8, 16, 64))] or random.choice((b"a", b" ", b"[", b"/", b"("))
    return data[:start], part, data[start + len(part) :]
