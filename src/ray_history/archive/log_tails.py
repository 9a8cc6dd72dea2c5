"""Log tails: the bundle that a node uploads every interval, and how a log file is assembled from bundles.

Invariants, which collectors keep and `stitch` relies on:
* One collector per node writes bundles, each once, with increasing sequence numbers; no bundle is rewritten. Several
  small ones may be merged into a new one: their entries exist twice until the small ones are deleted.
* The `generation` of a path grows whenever another file takes the path (rotation, replacement, truncation).
* Bytes are uploaded at least once, the generations of a path one after the other. The first entry of a generation
  starts at 0, or where its whole object ends; bytes skipped later (of a flooding log) are a gap.
* A whole object is written only after some bytes of its generation were uploaded, so that `stitch` can identify its
  generation.
* Only the collector (and retention) deletes bundles: oldest first, and only if each entry is part of a whole object,
  of an older generation of its path, or of a newer bundle too. So an old generation never outlives the evidence of a
  newer one.
* Before that, a whole object whose file was replaced is moved to the name under which that file is preserved.
  Otherwise the rest of a half-deleted generation would be appended to the first bytes of another file.
* A crash at any instant leaves bundles, the whole object, or both; every uploaded byte stays readable at its offset.

Format of a bundle, integers little-endian:

    8  magic and version          b"RAYTAIL" 0x01
    4  length of the header
    4  crc32 of the header
    n  header                     JSON {"entries": [{path, generation, offset, length, crc32, position, size}, ...],
                                        "empty": [path, ...]}, the latter without bytes so far
       frames                     one zstd frame per entry, so that one file's bytes are one range of the bundle

Limit: a whole object of an older generation with the same bytes in the range that `stitch` compares is mistaken for
the newest one, until the next line with a timestamp.
"""

from __future__ import annotations

import re
import struct
import sys
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from ray_history.bounds import Count, Key, reason
from ray_history.decoding import DECODING_ERRORS
from ray_history.zstandard import Unpackable, unpacked, zstd

FIRST_READ = 64 * 1024
"""First read of a bundle: large enough for a header of some 300 entries, so that most need no second read."""

MAX_ENTRY = 4 * 1024 * 1024
"""Raw bytes of one entry; the writer splits longer ranges, so a reader never holds more of one frame."""

_MAGIC = b"RAYTAIL\x01"
_PREAMBLE = struct.Struct("<8sII")
_MAX_HEADER = 64 * 1024 * 1024
_MAX_FRAME = MAX_ENTRY + 64 * 1024  # zstd may make incompressible bytes a little longer
_LEVEL = 1  # 790 MB/s on Ray's logs; level 3 has 420 and is no smaller
_EVIDENCE = 64  # bytes; a shorter entry may be a single newline, which any file may have there

_UNPORTABLE = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")


class CorruptBundle(ValueError):
    """The bytes are not a bundle, or a damaged one."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A range of bytes of one log file, and the position of its frame."""

    path: Key
    """Below the logs directory, as `portable_path` writes it."""
    generation: Count
    """Which file had the path: larger is newer."""
    offset: Count
    """Of the first byte, in the original file."""
    length: Annotated[int, msgspec.Meta(ge=1, le=MAX_ENTRY)]
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    """Of the raw bytes."""
    position: Count
    """Of the frame: in the stored header from its end, in a parsed entry from the start of the bundle."""
    size: Annotated[int, msgspec.Meta(ge=1, le=_MAX_FRAME)]
    """Of the frame."""

    @property
    def end(self) -> int:
        return self.offset + self.length


class Header(msgspec.Struct, omit_defaults=True):
    """The header of a bundle."""

    entries: list[Entry]
    empty: list[Key] = []
    """Files without any bytes so far, as `portable_path` writes them; older readers ignore them."""


_decode_header = msgspec.json.Decoder(Header).decode


def portable_path(path: str) -> str:
    r"""A path from disk (`os.fsdecode`) as text for headers and keys: bytes that are not UTF-8 become `\xNN`.

    So do control characters, which stores refuse or users cannot see, and the backslash, so that no two files get the
    same name.
    """
    text = _UNPORTABLE.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()), path)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class BundleWriter:
    """Builds a bundle from appended bytes of a node's log files."""

    def __init__(self) -> None:
        self.raw_size = 0
        """Log bytes added so far; compressed, about a fifth of it."""
        self._entries: list[Entry] = []
        self._frames: list[bytes] = []
        self._position = 0
        self.empty: list[str] = []
        """Portable names of empty files."""

    def add(self, path: str, generation: int, offset: int, data: bytes) -> None:
        """Add bytes of the file at `offset`; `path` as on disk, below the logs directory."""
        self.add_portable(portable_path(path), generation, offset, data)

    def add_portable(self, name: str, generation: int, offset: int, data: bytes) -> None:
        """Like `add`, for a name that is portable already, such as those in other bundles."""
        for start in range(0, len(data), MAX_ENTRY):
            raw = data[start : start + MAX_ENTRY]
            frame = zstd.compress(raw, _LEVEL)
            self._entries.append(
                Entry(name, generation, offset + start, len(raw), zlib.crc32(raw), self._position, len(frame))
            )
            self._frames.append(frame)
            self._position += len(frame)
            self.raw_size += len(raw)

    def finish(self) -> bytes:
        """The bundle."""
        header = msgspec.json.encode(Header(self._entries, self.empty))
        return b"".join((_PREAMBLE.pack(_MAGIC, len(header), zlib.crc32(header)), header, *self._frames))


def header_size(prefix: bytes) -> int:
    """The number of bytes that `parse_header` needs, from the first bytes of the bundle."""
    if len(prefix) < _PREAMBLE.size:
        raise CorruptBundle(f"it has only {len(prefix)} bytes")
    magic, length, _ = _PREAMBLE.unpack_from(prefix)
    if magic[:-1] != _MAGIC[:-1]:
        raise CorruptBundle("it is not a bundle of log tails")
    if magic != _MAGIC:
        raise CorruptBundle(f"it has version {magic[-1]}; this reader supports version {_MAGIC[-1]}")
    if length > _MAX_HEADER:
        raise CorruptBundle(f"its header claims {length} bytes")
    return _PREAMBLE.size + int(length)


def parse_header(prefix: bytes) -> tuple[Entry, ...]:
    """The entries of a bundle, from its first `header_size` bytes or more."""
    return tuple(read_header(prefix).entries)


def read_header(prefix: bytes) -> Header:
    """The header of a bundle, from its first `header_size` bytes or more."""
    needed = header_size(prefix)
    if len(prefix) < needed:
        raise CorruptBundle(f"its header ends after {len(prefix)} of {needed} bytes")
    header = prefix[_PREAMBLE.size : needed]
    if zlib.crc32(header) != _PREAMBLE.unpack_from(prefix)[2]:
        raise CorruptBundle("its header does not match its checksum")
    try:
        stored = _decode_header(header)
    except DECODING_ERRORS as error:
        raise CorruptBundle(f"its header cannot be decoded: {reason(error)}") from error
    entries = [
        Entry(sys.intern(e.path), e.generation, e.offset, e.length, e.crc32, needed + e.position, e.size)
        for e in stored.entries
    ]
    return Header(entries, stored.empty)


def read_entry(entry: Entry, frame: bytes) -> bytes:
    """The log bytes of an entry from its frame; decompresses at most `entry.length` bytes and one more."""
    try:
        data = unpacked(frame, entry.length)
    except Unpackable as error:
        raise CorruptBundle(f"the frame of {entry.path} {error}") from error
    if len(data) != entry.length or zlib.crc32(data) != entry.crc32:
        raise CorruptBundle(f"the frame of {entry.path} does not hold the {entry.length} bytes that were uploaded")
    return data


@dataclass(frozen=True, slots=True)
class Tail:
    """An entry and the key of its bundle."""

    bundle: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes `start` to `end` of the original file, from a tail, or from the whole object if `tail` is None."""

    start: int
    end: int
    tail: Tail | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each byte of one file is stored; offsets are those of the original file."""

    segments: tuple[Segment, ...]
    """In order, without overlap."""
    gaps: tuple[tuple[int, int], ...]
    """Ranges (start, end) that were never uploaded or cannot be read."""
    size: int
    whole_end: int
    """How many bytes of the whole object are used; 0 if it is of another generation."""
    tails: tuple[Tail, ...]

    def without(self, unreadable: Tail) -> Plan:
        """The plan without an unreadable tail: another one takes its place, or its bytes become a gap."""
        return _cover(self.whole_end, tuple(tail for tail in self.tails if tail != unreadable), self.size)


def stitch(whole_size: int | None, tails: Sequence[Tail], belongs: Callable[[Entry], bool]) -> Plan:
    """Plan how to read the newest generation of one path from its whole object and its tails.

    `belongs(entry)` compares the whole object's bytes in the range of the entry with its crc32 (one range read). It is
    called at most once, and only if the whole object and the tails overlap.
    """
    newest = max((tail.entry.generation for tail in tails), default=0)
    current = tuple(tail for tail in tails if tail.entry.generation == newest)
    whole_end = _whole_end(whole_size or 0, [tail.entry for tail in current], belongs)
    return _cover(whole_end, current, max([whole_end, *(tail.entry.end for tail in current)]))


def _whole_end(size: int, entries: Sequence[Entry], belongs: Callable[[Entry], bool]) -> int:
    if not entries:
        return size
    inside = [entry for entry in entries if entry.end <= size]
    if inside:
        # The last one, as files of one kind begin alike (banners, job ids) and differ later.
        witness = max(inside, key=lambda entry: (min(entry.length, _EVIDENCE), entry.end))
        return size if belongs(witness) else 0
    # The bundles with the bytes before the first entry were deleted because the whole object has those bytes.
    return min(size, min(entry.offset for entry in entries))


def _farthest(waiting: deque[Tail], position: int, farthest: Tail | None) -> Tail | None:
    """The tail that reaches farthest of those that start at `position` or before; takes them from `waiting`."""
    while waiting and waiting[0].entry.offset <= position:
        tail = waiting.popleft()
        if farthest is None or tail.entry.end > farthest.entry.end:
            farthest = tail
    return farthest


def _cover(whole_end: int, tails: tuple[Tail, ...], size: int) -> Plan:
    """The whole object up to `whole_end`, then the tails, each as far as it reaches beyond the ones before."""
    segments = [Segment(0, whole_end, None)] if whole_end else []
    gaps: list[tuple[int, int]] = []
    waiting = deque(sorted(tails, key=lambda tail: tail.entry.offset))
    position = whole_end
    farthest: Tail | None = None
    while position < size:
        farthest = _farthest(waiting, position, farthest)
        reach = farthest.entry.end if farthest is not None else 0
        if reach > position:
            segments.append(Segment(position, reach, farthest))
            position = reach
        else:
            resumes = waiting[0].entry.offset if waiting else size
            gaps.append((position, resumes))
            position = resumes
    return Plan(tuple(segments), tuple(gaps), size, whole_end, tails)
