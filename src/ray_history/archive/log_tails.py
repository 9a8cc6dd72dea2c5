"""Log bytes on their way: the bundle a node ships every interval, and how a log is put together from bundles.

Invariants. What `stitch` gets right, it gets right because collectors keep these:
* One collector per node writes bundles, each once and whole, with increasing sequence; nothing rewrites a bundle. Many
  small ones may be put together in a new one: then their entries are there twice until the small ones are deleted.
* A path's `generation` grows whenever another file stands behind the path (rotated, replaced, truncated).
* Bytes ship at least once, maybe again, generations of a path one after the other. A generation's first entry starts
  at 0, or where its whole object ends; bytes left out later (a flooding log) are a gap.
* A whole object is put only after some bytes of its generation were shipped, so that `stitch` can tell whose it is.
* Only the collector (and retention) deletes bundles: oldest first, and only when each entry of the bundle stands in a
  whole object or is older than its path's; or when all that is still needed of it stands in a newer bundle too. So an
  old generation never outlives the proof that there is a newer one.
* Before it deletes any, a whole object whose file was replaced is moved to the name that file is kept under; else what
  is left of a half-deleted generation would be put behind a stranger's first bytes.
* A crash at any instant leaves bundles, whole object, or both; every shipped byte stays readable at its own offset.

Format of a bundle, integers little-endian:

    8  magic and version          b"RAYTAIL" 0x01
    4  length of the header
    4  crc32 of the header
    n  header                     JSON {"entries": [{path, generation, offset, length, crc32, position, size}, ...]}
       frames                     one zstd frame per entry, so that one file's bytes are one range of the bundle

Limit: a whole object of an older generation that has the same bytes in the range `stitch` compares is taken for the
newest one; the next line with a timestamp ends that.
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

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FIRST_READ = 64 * 1024
"""Read this much of a bundle first: it holds the header of some 300 entries, so most bundles need no second read."""

MAX_ENTRY = 4 * 1024 * 1024
"""Raw bytes of one entry; the writer splits longer ones, so a reader never holds more than this of one frame."""

_MAGIC = b"RAYTAIL\x01"
_PREAMBLE = struct.Struct("<8sII")
_MAX_HEADER = 64 * 1024 * 1024
_MAX_FRAME = MAX_ENTRY + 64 * 1024  # zstd may make incompressible bytes a little longer
_LEVEL = 1  # 790 MB/s on Ray's logs and no larger than level 3, which does 420
_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}  # a hostile frame claims no gigabytes
_EVIDENCE = 64  # bytes; a shorter entry may be one newline, which any file may have in that place

_UNPORTABLE = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class CorruptBundle(ValueError):
    """These bytes are not a bundle, or no longer the one that was written."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One run of bytes of one log file, and where its frame is."""

    path: str
    """Below the logs directory, as `portable_path` writes it."""
    generation: _Natural
    """Which file stood behind the path: larger is newer."""
    offset: _Natural
    """Of the first byte, in the original file."""
    length: Annotated[int, msgspec.Meta(ge=1, le=MAX_ENTRY)]
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    """Of the raw bytes."""
    position: _Natural
    """Of the frame: in the stored header from its end, in a parsed entry from the start of the bundle."""
    size: Annotated[int, msgspec.Meta(ge=1, le=_MAX_FRAME)]
    """Of the frame."""

    @property
    def end(self) -> int:
        return self.offset + self.length


class _Header(msgspec.Struct):
    entries: list[Entry]


_decode_header = msgspec.json.Decoder(_Header).decode


def portable_path(path: str) -> str:
    r"""A path from disk (`os.fsdecode`) as text for headers and keys: bytes that are not UTF-8 become `\xNN`.

    So do the bytes of control characters, which stores refuse (a newline) or people cannot see, and the backslash, so
    that two files never get one name; every other name stays as it is.
    """
    text = _UNPORTABLE.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()), path)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class BundleWriter:
    """Collects appended bytes of any files of a node into one bundle."""

    def __init__(self) -> None:
        self.raw_size = 0
        """Log bytes taken so far; compressed they are mostly a fifth of it."""
        self._entries: list[Entry] = []
        self._frames: list[bytes] = []
        self._position = 0

    def add(self, path: str, generation: int, offset: int, data: bytes) -> None:
        """Take the bytes that stand at `offset` of the file; `path` as on disk, below the logs directory."""
        self.add_portable(portable_path(path), generation, offset, data)

    def add_portable(self, name: str, generation: int, offset: int, data: bytes) -> None:
        """The same for a name that is portable already, as in the entries of other bundles."""
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
        header = msgspec.json.encode(_Header(self._entries))
        return b"".join((_PREAMBLE.pack(_MAGIC, len(header), zlib.crc32(header)), header, *self._frames))


def header_size(prefix: bytes) -> int:
    """How many bytes of the bundle `parse_header` needs; `prefix` is its start, `FIRST_READ` bytes are plenty."""
    if len(prefix) < _PREAMBLE.size:
        raise CorruptBundle(f"only {len(prefix)} bytes long")
    magic, length, _ = _PREAMBLE.unpack_from(prefix)
    if magic[:-1] != _MAGIC[:-1]:
        raise CorruptBundle("it is not a bundle of log tails")
    if magic != _MAGIC:
        raise CorruptBundle(f"it has version {magic[-1]}, this reader knows version {_MAGIC[-1]}")
    if length > _MAX_HEADER:
        raise CorruptBundle(f"its header claims {length} bytes")
    return _PREAMBLE.size + int(length)


def parse_header(prefix: bytes) -> tuple[Entry, ...]:
    """The entries of a bundle, from its first `header_size` bytes or more."""
    needed = header_size(prefix)
    if len(prefix) < needed:
        raise CorruptBundle(f"its header ends after {len(prefix)} of {needed} bytes")
    header = prefix[_PREAMBLE.size : needed]
    if zlib.crc32(header) != _PREAMBLE.unpack_from(prefix)[2]:
        raise CorruptBundle("its header does not match its checksum")
    try:
        stored = _decode_header(header).entries
    except msgspec.DecodeError as error:
        raise CorruptBundle(f"its header cannot be understood: {error}") from error
    return tuple(
        Entry(sys.intern(e.path), e.generation, e.offset, e.length, e.crc32, needed + e.position, e.size)
        for e in stored
    )


def read_entry(entry: Entry, frame: bytes) -> bytes:
    """The log bytes of an entry from its frame; never decompresses more than the entry says there are."""
    decompressor = zstd.ZstdDecompressor(options=_WINDOW)
    try:
        data = decompressor.decompress(frame, entry.length + 1)  # one more, to see the frame end or run over
    except zstd.ZstdError as error:
        raise CorruptBundle(f"the frame of {entry.path} cannot be decompressed: {error}") from error
    if not decompressor.eof or len(data) != entry.length or zlib.crc32(data) != entry.crc32:
        raise CorruptBundle(f"the frame of {entry.path} does not hold the {entry.length} bytes that were shipped")
    return data


@dataclass(frozen=True, slots=True)
class Tail:
    """An entry and the key of the bundle it is in."""

    bundle: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes `start` to `end` of the original file, from a tail, or from the whole object when `tail` is None."""

    start: int
    end: int
    tail: Tail | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Where every known byte of one file is; offsets are those of the original file."""

    segments: tuple[Segment, ...]
    """In order, without overlap."""
    gaps: tuple[tuple[int, int], ...]
    """Ranges (start, end) that were never shipped or cannot be read."""
    size: int
    whole_end: int
    """How much of the whole object is used; 0 when it is another generation's."""
    tails: tuple[Tail, ...]

    def without(self, unreadable: Tail) -> Plan:
        """The same plan when a tail turned out unreadable: another takes its place, or its bytes become a gap."""
        return _cover(self.whole_end, tuple(tail for tail in self.tails if tail != unreadable), self.size)


def stitch(whole_size: int | None, tails: Sequence[Tail], belongs: Callable[[Entry], bool]) -> Plan:
    """Plan how the newest generation of one path is read from its whole object and its tails.

    `belongs(entry)` compares the whole object's bytes in the entry's range with the entry's crc32 (one range read); it
    is asked at most once, and only when the two overlap so that there is something to compare.
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
        # The last one: files of one kind begin alike (banners, job ids) and differ later.
        witness = max(inside, key=lambda entry: (min(entry.length, _EVIDENCE), entry.end))
        return size if belongs(witness) else 0
    # Bytes before the first entry were deleted with their bundles because the whole object has them.
    return min(size, min(entry.offset for entry in entries))


def _cover(whole_end: int, tails: tuple[Tail, ...], size: int) -> Plan:
    segments = [Segment(0, whole_end, None)] if whole_end else []
    gaps: list[tuple[int, int]] = []
    waiting = deque(sorted(tails, key=lambda tail: tail.entry.offset))
    position = whole_end
    farthest: Tail | None = None
    while position < size:
        while waiting and waiting[0].entry.offset <= position:
            tail = waiting.popleft()
            if farthest is None or tail.entry.end > farthest.entry.end:
                farthest = tail
        reach = farthest.entry.end if farthest is not None else 0
        if reach > position:
            segments.append(Segment(position, reach, farthest))
            position = reach
        else:
            resumes = waiting[0].entry.offset if waiting else size
            gaps.append((position, resumes))
            position = resumes
    return Plan(tuple(segments), tuple(gaps), size, whole_end, tails)
