"""One file of the spool, as bytes and offsets."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .disk import Disk

MAX_BODY = 1 << 30
"""Bytes of one body, the most that one read returns."""
NAME = re.compile(r"([0-9]{20})\.spool(\.corrupt)?")

_MAGIC = b"RAYSPOL\x01"
_HEADER = struct.Struct("<8sQI")
_PREFIX = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_PREFIX_SIZE = _PREFIX.size + _CHECK.size
_READ_CHUNK = 1 << 20
HEADER_SIZE = _HEADER.size


class Damage(NamedTuple):
    """Bytes that are no record."""

    offset: int
    torn: bool
    """Whether they provably are a write that was never completed."""


class Record(NamedTuple):
    """A body, and where it ends in the file."""

    body: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the spool."""

    sequence: int
    created_ns: int
    path: Path
    size: int
    """Bytes of the file."""
    end: int
    """End of its last readable record; less than `size` if something torn or damaged follows."""
    records: int

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies, and of what is damaged between them."""
        return self.end - _HEADER.size - self.records * _PREFIX_SIZE


def header(created_ns: int) -> bytes:
    start = _HEADER.pack(_MAGIC, created_ns, 0)[: -_CHECK.size]
    return start + _CHECK.pack(zlib.crc32(start))


def frames(bodies: Sequence[bytes]) -> list[bytes]:
    """The records of the bodies, in pieces."""
    found: list[bytes] = []
    for body in bodies:
        if len(body) > MAX_BODY:
            raise ValueError(f"a body of {len(body)} bytes is larger than the limit of the spool ({MAX_BODY})")
        prefix = _PREFIX.pack(len(body), zlib.crc32(body))
        found += (prefix + _CHECK.pack(zlib.crc32(prefix)), body)
    return found


def read_header(disk: Disk, handle: int) -> int | None:
    """The creation time; None if the header is not readable."""
    found = disk.read(handle, 0, _HEADER.size)
    if len(found) < _HEADER.size or found != header(created_ns := _HEADER.unpack(found)[1]):
        return None
    return int(created_ns)


def read_records(
    disk: Disk, handle: int, end: int, start: int = HEADER_SIZE, *, damaged: Callable[[Damage], object]
) -> Iterator[Record]:
    """The records from `start` to `end`; calls `damaged` for what is between or after them."""
    offset: int | None = start
    while offset is not None and offset < end:
        length = _body_length(disk, handle, offset, end)
        if length is None:
            torn = end - offset < _PREFIX_SIZE or is_zero(disk, handle, offset)
            damaged(Damage(offset, torn))
            offset = None if torn else _next_record(disk, handle, offset, end)
            continue
        following = offset + _PREFIX_SIZE + length
        body = _body(disk, handle, offset, length) if following <= end else None
        if body is None:  # the length is right, it has its own checksum
            damaged(Damage(offset, torn=following > end))
        else:
            yield Record(body, following)
        offset = following


def _body_length(disk: Disk, handle: int, offset: int, end: int) -> int | None:
    """The length of the body at this offset; None if there is no prefix with a right checksum."""
    prefix = disk.read(handle, offset, min(_PREFIX_SIZE, end - offset))
    if len(prefix) < _PREFIX_SIZE:
        return None
    if _CHECK.unpack_from(prefix, _PREFIX.size)[0] != zlib.crc32(prefix[: _PREFIX.size]):
        return None
    return int(_PREFIX.unpack_from(prefix)[0])


def _body(disk: Disk, handle: int, offset: int, length: int) -> bytes | None:
    """The body of the record at this offset; None if it is damaged."""
    checksum = _PREFIX.unpack(disk.read(handle, offset, _PREFIX.size))[1]
    body = disk.read(handle, offset + _PREFIX_SIZE, length)
    return body if len(body) == length and zlib.crc32(body) == checksum else None


def _next_record(disk: Disk, handle: int, offset: int, end: int) -> int | None:
    """The offset of the first whole record behind a damaged prefix, whose length is not known."""
    # A length has a last byte that is small, which text does not have: few places need a closer look.
    candidate = re.compile(b"(?s)(?=.{3}[\\x00-\\x%02x])" % min(end - offset >> 24, MAX_BODY >> 24))
    position = offset + 1
    while chunk := disk.read(handle, position, min(_READ_CHUNK, end - position)):
        for found in candidate.finditer(chunk):
            place = position + found.start()
            length = _body_length(disk, handle, place, end)
            if length is None or place + _PREFIX_SIZE + length > end:
                continue
            if _body(disk, handle, place, length) is not None:
                return place
        if position + len(chunk) >= end:
            return None
        position += len(chunk) - _PREFIX.size  # a record may begin in one chunk and end in the next
    return None


def is_zero(disk: Disk, handle: int, offset: int) -> bool:
    """Whether only zeros follow: a length that reached the disk before its bytes."""
    while chunk := disk.read(handle, offset, _READ_CHUNK):
        if chunk.count(0) != len(chunk):
            return False
        offset += len(chunk)
    return True


def corrupt_path(path: Path) -> Path:
    """The name to which a damaged file is renamed."""
    return path.with_name(path.name + ".corrupt")


def damage_message(segment: Segment, damage: Damage) -> str:
    return (
        f"{segment.path} is damaged at byte {damage.offset} of {segment.size}: the other bodies are uploaded, "
        f"the file is renamed to {corrupt_path(segment.path).name}"
    )
