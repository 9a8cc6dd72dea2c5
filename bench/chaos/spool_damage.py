"""Damages the files of a spool, and knows which events are hit, without the product's code.

The format is in the docstring of `collector/ingest/spool/__init__.py`: a header of 20 bytes, then records with a prefix
of 12 bytes.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEADER = 20
_PREFIX = struct.Struct("<III")


class Record(NamedTuple):
    """A record: where it is, and the events in it."""

    start: int
    end: int
    events: set[str]


def records(path: Path) -> Iterator[Record]:
    """The whole records of a segment, as long as they follow each other."""
    content, offset = path.read_bytes(), HEADER
    while offset + _PREFIX.size <= len(content):
        end = offset + _PREFIX.size + _PREFIX.unpack_from(content, offset)[0]
        try:
            events = {each["eventId"] for each in json.loads(content[offset + _PREFIX.size : end])}
        except ValueError:
            return
        yield Record(offset, end, events)
        offset = end


def segments(spool: Path) -> list[Path]:
    return sorted(spool.glob("*.spool"))


def flip_bit(path: Path, chance: random.Random) -> set[str]:
    """Flip one bit of a record; the events of that record."""
    found = list(records(path))
    if not found:
        return set()
    record = chance.choice(found)
    # Prefixes are short, and hitting one is worse than hitting a body.
    flip(
        path,
        chance.randrange(record.start, record.start + _PREFIX.size if chance.random() < 0.3 else record.end),
        chance,
    )
    return record.events


def flip(path: Path, place: int, chance: random.Random) -> None:
    """Flip one bit of the byte at this place."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))


def tear(path: Path, chance: random.Random) -> None:
    """Append what a crash leaves of a write that was not acknowledged: its beginning, or zeros."""
    body = b"[" + b" " * chance.randrange(10_000) + b"]"
    if chance.random() < 0.5:
        torn = bytes(chance.randrange(1, 5000))
    else:
        start = struct.pack("<II", len(body), 0xDEADBEEF)
        torn = (start + struct.pack("<I", zlib.crc32(start)) + body)[: chance.randrange(1, 12 + len(body))]
    with path.open("ab") as file:
        file.write(torn)
