"""One file of the spool, as bytes and offsets."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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


class BadRecord(Exception):
    """The record at `offset` is damaged; `torn` if it provably was never written completely."""

    def __init__(self, offset: int, *, torn: bool) -> None:
        super().__init__(offset)
        self.offset = offset
        self.torn = torn


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the spool."""

    sequence: int
    created_ns: int
    path: Path
    size: int
    """Bytes of the file."""
    end: int
    """End of its readable records; less than `size` if something torn or damaged follows."""
    records: int

    @property
    def body_bytes(self) -> int:
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


def record_size(body: bytes) -> int:
    return _PREFIX_SIZE + len(body)


def read_header(disk: Disk, handle: int) -> int | None:
    """The creation time; None if the header is not readable."""
    found = disk.read(handle, 0, _HEADER.size)
    if len(found) < _HEADER.size or found != header(created_ns := _HEADER.unpack(found)[1]):
        return None
    return int(created_ns)


def read_bodies(disk: Disk, handle: int, end: int, start: int = _HEADER.size) -> Iterator[bytes]:
    """The bodies of the records from `start` to `end`; raises at the first bad one."""
    offset = start
    while offset < end:
        prefix = disk.read(handle, offset, min(_PREFIX_SIZE, end - offset))
        if len(prefix) < _PREFIX_SIZE:
            raise BadRecord(offset, torn=True)
        length, checksum = _PREFIX.unpack_from(prefix)
        if _CHECK.unpack_from(prefix, _PREFIX.size)[0] != zlib.crc32(prefix[: _PREFIX.size]):
            raise BadRecord(offset, torn=is_zero(disk, handle, offset))
        if offset + _PREFIX_SIZE + length > end:
            raise BadRecord(offset, torn=True)
        body = disk.read(handle, offset + _PREFIX_SIZE, length)
        if len(body) != length or zlib.crc32(body) != checksum:
            raise BadRecord(offset, torn=False)
        yield body
        offset += _PREFIX_SIZE + length


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


def damage_message(segment: Segment, damage: BadRecord) -> str:
    return (
        f"{segment.path} is damaged at byte {damage.offset} of {segment.size}: the bodies before it are uploaded, "
        f"the file is renamed to {corrupt_path(segment.path).name}"
    )
