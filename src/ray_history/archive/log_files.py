"""The log files of one session: their names per node, and their bytes, stitched from whole objects and tails.

Bundle headers are read when the files of their node are listed (one small range each, 16 at a time), log bytes when
they are read. A reader holds a few blocks of 4 MiB, however long the log or its lines are. Names are looked up among
the listed files, never joined into a key.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import TypeVar

from .errors import ArchiveError, NotFound
from .log_tails import (
    FIRST_READ,
    CorruptBundle,
    Entry,
    Header,
    Segment,
    Tail,
    header_size,
    read_entry,
    read_header,
    stitch,
)
from .stores.interface import READ_CHUNK, ObjectInfo, Store

PARALLEL = 16
"""Concurrent requests of one listing or reader."""

_FIRST_BLOCK = 64 * 1024  # of a backward scan; doubles up to READ_CHUNK
_FRAMES_HELD = (
    2 * READ_CHUNK
)  # decompressed, so that the bytes of a backward scan are not fetched again when they are sent
_FRAMES_AT_ONCE = 4 * PARALLEL  # thousands of small frames would delay the first line

_OLD = "old/"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file of one node, as listed."""

    node: str
    name: str
    """Path below the node's logs directory."""
    size: int
    """Upper bound in bytes; `LogReader.size` is exact, but may cost a read."""
    modified: datetime | None
    whole: ObjectInfo | None
    tails: tuple[Tail, ...]


class LogFiles:
    """The log files of one session."""

    def __init__(
        self, store: Store, whole: Iterable[tuple[str, str, ObjectInfo]], bundles: Iterable[tuple[str, ObjectInfo]]
    ) -> None:
        """`whole` has (node, name, object) of whole objects, `bundles` (node, object) of tail bundles."""
        self.problems: list[str] = []
        """Messages about unreadable objects so far."""
        self._store = store
        self._whole: dict[str, dict[str, ObjectInfo]] = defaultdict(dict)
        for node, name, info in whole:
            other = self._whole[node].get(name)
            if other is None or info.size > other.size:  # a log stored in two layouts
                self._whole[node][name] = info
        self._bundles: dict[str, dict[str, ObjectInfo]] = defaultdict(dict)
        for node, info in bundles:
            self._bundles[node][info.key] = info
        self._loading = {node: Lock() for node in sorted({*self._whole, *self._bundles})}
        self._loaded: dict[str, dict[str, LogFile]] = {}
        self._headers: dict[str, Header] = {}

    @property
    def store(self) -> Store:
        return self._store

    def renewed(
        self, whole: Iterable[tuple[str, str, ObjectInfo]], bundles: Iterable[tuple[str, ObjectInfo]]
    ) -> LogFiles:
        """The log files of a newer listing; bundles never change, so only headers of new ones will be read."""
        newer = LogFiles(self._store, whole, bundles)
        keys = {key for node in newer._bundles.values() for key in node}
        newer._headers = {key: header for key, header in self._headers.copy().items() if key in keys}
        return newer

    def nodes(self) -> Sequence[str]:
        """Sorted ids of the nodes that have logs."""
        return tuple(self._loading)

    def list(self, node: str) -> Sequence[LogFile]:
        """The log files of a node, by name."""
        return tuple(self._files(node).values())

    def find(self, node: str, name: str) -> LogFile:
        """One log file by name, even if Ray moved it.

        Ray's log monitor may move a dead worker's file from `<name>` to `old/<name>` at any time. Names of worker
        files are unique, so both are the same file, and the longer one is complete.
        """
        files = self._files(node)
        moved = name.removeprefix(_OLD) if name.startswith(_OLD) else _OLD + name
        found = [files[either] for either in (name, moved) if either in files]
        if not found:
            raise NotFound(
                f"node {node} has no log file {name[:200]!r}; "
                f"list the node's logs for the names of its {len(files)} files"
            )
        return max(found, key=lambda log_file: log_file.size)

    def earlier(self, log_file: LogFile) -> Sequence[LogFile]:
        """Older files of the same name whose tails still exist, newest first.

        They matter if a node died between a rotation and the upload of the rotated file; otherwise they are whole
        objects under their rotated names.
        """
        by_generation: dict[int, list[Tail]] = defaultdict(list)
        for tail in log_file.tails:
            by_generation[tail.entry.generation].append(tail)
        older = sorted(by_generation, reverse=True)[1:]
        return [self._log_file(log_file.node, log_file.name, None, by_generation[each]) for each in older]

    def open(self, log_file: LogFile) -> LogReader:
        """A reader; costs one range read if only the bytes show whether the whole object and the tails match."""
        return LogReader(self._store, log_file, self._report)

    def _files(self, node: str) -> dict[str, LogFile]:
        if node not in self._loading:
            raise NotFound(f"the session has no logs of node {node[:200]!r}; it has logs of {len(self._loading)} nodes")
        with self._loading[node]:
            if node not in self._loaded:
                self._loaded[node] = self._load(node)
            return self._loaded[node]

    def _load(self, node: str) -> dict[str, LogFile]:
        whole, bundles = self._whole[node], tuple(self._bundles[node].values())
        tails: dict[str, list[Tail]] = defaultdict(list)
        empty: set[str] = set()
        for bundle, header in zip(bundles, _in_parallel(self._header, bundles), strict=True):
            empty.update(header.empty)
            for entry in header.entries:
                tails[entry.path].append(Tail(bundle.key, entry))
        return {
            name: self._log_file(node, name, whole.get(name), tails.get(name, ()))
            for name in sorted({*whole, *tails, *empty})
        }

    def _header(self, bundle: ObjectInfo) -> Header:
        if bundle.key not in self._headers:
            self._headers[bundle.key] = self._fetch_header(bundle)
        return self._headers[bundle.key]

    def _fetch_header(self, bundle: ObjectInfo) -> Header:
        try:
            head = self._store.get_range(bundle.key, 0, min(FIRST_READ, bundle.size)) if bundle.size else b""
            missing = header_size(head) - len(head)
            if missing > 0:
                head += self._store.get_range(bundle.key, len(head), missing)
            header = read_header(head)
            if any(entry.position + entry.size > bundle.size for entry in header.entries):
                raise CorruptBundle("its header names frames beyond its end")
            return header
        except NotFound:
            return Header([])  # deleted since it was listed: whole objects have its bytes now
        except CorruptBundle as error:
            self._report(f"log tails {bundle.key} were not used: {error}")
            return Header([])

    def _log_file(self, node: str, name: str, whole: ObjectInfo | None, tails: Sequence[Tail]) -> LogFile:
        newest = max((tail.entry.generation for tail in tails), default=0)
        ends = [tail.entry.end for tail in tails if tail.entry.generation == newest]
        sources = [self._bundles[node][key] for key in {tail.bundle for tail in tails}]
        if whole is not None:
            ends.append(whole.size)
            sources.append(whole)
        return LogFile(
            node, name, max(ends, default=0), max((s.modified for s in sources), default=None), whole, tuple(tails)
        )

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


class LogReader:
    """The bytes of one log file, at their offsets on the node. Not thread-safe."""

    def __init__(self, store: Store, log_file: LogFile, report: Callable[[str], None]) -> None:
        self._store = store
        self._name = log_file.name
        self._whole_key = log_file.whole.key if log_file.whole else ""
        self._report = report
        self._frames: dict[Tail, bytes] = {}
        self._held = 0
        self._plan = stitch(log_file.whole.size if log_file.whole else None, log_file.tails, self._belongs)

    @property
    def size(self) -> int:
        """Offset after the last byte, gaps included."""
        return self._plan.size

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Ranges (start, end) without bytes: never uploaded, or unreadable."""
        return self._plan.gaps

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, without those in gaps."""
        return b"".join(self.stream(start, end))

    def last_lines(self, count: int) -> Iterator[bytes]:
        """The last `count` lines, in chunks; all lines if `count` is -1."""
        return self.stream(self.line_start(count))

    def stream(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end` without those in gaps, in chunks of at most about `READ_CHUNK`."""
        position = max(start, 0)
        end = self.size if end is None else min(end, self.size)
        while position < end and (batch := self._batch(position, end)):
            if batch[0].tail is None:
                yield from self._from_whole(batch[0].start, batch[0].end)
            elif (pieces := self._from_tails(batch)) is not None:
                yield from pieces
            else:
                continue  # an unreadable frame was removed from the plan
            position = batch[-1].end

    def line_start(self, count: int, end: int | None = None) -> int:
        """Offset of the first of the last `count` lines before `end`; bytes after the last newline count as a line."""
        high, block, at_end = self.size if end is None else min(end, self.size), _FIRST_BLOCK, True
        if count <= 0 or count >= high:  # no line is shorter than a byte
            return high if count == 0 else 0
        while True:
            low, high = self._block_before(high, block)
            data = self.read(low, high)
            if len(data) < high - low:
                continue  # an unreadable frame was removed from the plan
            if not data:
                return 0
            if at_end and data.endswith(b"\n"):
                count += 1  # this newline ends the last line
            at_end = False
            newlines = data.count(b"\n")
            if newlines >= count:
                return low + _newline_from_end(data, count) + 1
            count, high, block = count - newlines, low, min(2 * block, READ_CHUNK)

    def _block_before(self, high: int, block: int) -> tuple[int, int]:
        """The last range below `high`, at most `block` long and without a gap; empty at the start of the file."""
        for start, end in reversed(self.gaps):
            if end < high:
                return max(end, high - block), high
            high = min(start, high)
        return max(0, high - block), high

    def _batch(self, position: int, end: int) -> Sequence[Segment]:
        """The segments to read next: a piece of the whole object, or tails that fit into memory."""
        segments = self._plan.segments
        batch: list[Segment] = []
        held = 0
        for index in range(bisect_right(segments, position, key=lambda segment: segment.end), len(segments)):
            segment = segments[index]
            held += segment.tail.entry.length if segment.tail else 0
            if segment.start >= end or len(batch) == _FRAMES_AT_ONCE or (batch and held > READ_CHUNK):
                break
            batch.append(Segment(max(segment.start, position), min(segment.end, end), segment.tail))
            if segment.tail is None:
                break
        return batch

    def _from_whole(self, start: int, end: int) -> Iterator[bytes]:
        key, left = self._whole_key, end - start
        small = left <= READ_CHUNK
        for chunk in [self._store.get_range(key, start, left)] if small else self._store.stream(key, start):
            yield chunk[:left]
            left -= min(left, len(chunk))
            if not left:
                return
        raise ArchiveError(f"log {self._name} became shorter while it was read; list the logs again")

    def _from_tails(self, batch: Sequence[Segment]) -> Sequence[bytes] | None:
        """The bytes of these segments; None if a frame is unreadable, which is then removed from the plan."""
        parts = [(segment, segment.tail) for segment in batch if segment.tail]
        missing = [tail for _, tail in parts if tail not in self._frames]
        plan = self._plan
        for tail, data in zip(missing, _in_parallel(self._frame, missing), strict=True):
            if data is None:
                self._plan = self._plan.without(tail)
            else:
                self._frames[tail] = data
                self._held += len(data)
        if self._plan is not plan:
            return None
        pieces = [self._frames[tail][s.start - tail.entry.offset : s.end - tail.entry.offset] for s, tail in parts]
        while self._held > _FRAMES_HELD:
            self._held -= len(self._frames.pop(next(iter(self._frames))))
        return pieces

    def _frame(self, tail: Tail) -> bytes | None:
        entry = tail.entry
        try:
            return read_entry(entry, self._store.get_range(tail.bundle, entry.position, entry.size))
        except NotFound:
            raise NotFound(
                f"log {self._name} was uploaded as a whole object while its tails were read; list the logs again"
            ) from None
        except CorruptBundle as error:
            self._report(f"log tails {tail.bundle}: {error}; its bytes {entry.offset} to {entry.end} were not used")
            return None

    def _belongs(self, entry: Entry) -> bool:
        return zlib.crc32(self._store.get_range(self._whole_key, entry.offset, entry.length)) == entry.crc32


def _newline_from_end(data: bytes, count: int) -> int:
    """Position of the newline with `count - 1` newlines after it."""
    position = len(data)
    for _ in range(count):
        position = data.rindex(b"\n", 0, position)
    return position


def _in_parallel(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Sequence[_Result]:
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
        return list(pool.map(function, items))
