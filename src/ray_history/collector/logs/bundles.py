"""The bundles of one node: writing the next, knowing which generation of a path is the newest, deleting the oldest.

Keeps the invariants of `archive/tails.py`:
* A sequence is used once. A put that failed may have arrived: that bundle is reckoned with, and deleted in its turn,
  but positions do not move and its bytes are shipped again. After a start, sequences go on behind the last one there.
* Once bytes of a newer generation of a path are shipped, none of an older one are (`goes_on`).
* Bundles are deleted from the oldest to the first that is needed. A request may delete many in any order, so a request
  never spans a barrier: a bundle in which a path's generation grows.
* A session of weeks has few bundles: runs of small ones are put together (`merge_small`), and deleted a minute later,
  so that whoever has just listed them can still read them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from ray_history.archive.log_tails import MAX_ENTRY, BundleWriter, CorruptBundle, Entry, Tail, parse_header, read_entry

from ...archive.errors import NotFound
from ...archive.log_files import LogFiles
from ...archive.stores import ObjectInfo
from ..destination import Destination
from .scanner import disk_path
from .state import Followed, Mark, Positions, Stream


class Bundles:
    """The bundles of one node and session."""

    many = 64
    """So many small bundles in a row are put together."""
    small = 2 << 20
    """Bytes; what is larger stays as it is."""
    grace = 60.0
    """Seconds that they stay beside the new one."""

    def __init__(self, destination: Destination, session: str, node: str, positions: Positions) -> None:
        self._destination = destination
        self._store = destination.store
        self._session, self._node = session, node
        self._positions = positions
        self._live: list[int] = []
        self._sizes: dict[int, int] = {}
        self._retired: list[tuple[float, int, list[int]]] = []
        """Since when, the bundle that has their content, and the bundles."""
        self._highest: dict[str, int] = {}
        self._begin()

    # Writing

    @property
    def raw_size(self) -> int:
        """Log bytes in the bundle that is being written."""
        return self._writer.raw_size

    def newest(self, path: str) -> int:
        """The newest generation of a path in live bundles; 0 when there is none."""
        return self._positions.paths.get(path, (0, 0))[0]

    def goes_on(self, stream: Stream) -> bool:
        """Whether more bytes of this stream may be shipped."""
        return stream.generation >= max(self.newest(stream.path), self._highest.get(stream.path, 0))

    def look_over(self) -> None:
        """Note the newest generation of each path, also of those whose bundles are deleted already."""
        self._highest.clear()
        for stream in self._positions.streams():
            self._highest[stream.path] = max(stream.generation, self._highest.get(stream.path, 0))

    def next_generation(self) -> int:
        """Larger than all there were, of any path."""
        self._positions.next_generation += 1
        return self._positions.next_generation - 1

    def add(self, file: Followed, stream: Stream, offset: int, data: bytes, mark: Mark) -> None:
        """Take bytes of a file into the bundle; its position moves when the bundle is put."""
        self._writer.add(disk_path(stream.path), stream.generation, offset, data)
        self._taken.append((file, stream, offset + len(data), mark))

    def discard(self) -> None:
        """Forget the bundle that is being written."""
        self._begin()

    def put(self) -> None:
        """Put the bundle, if it holds anything, then move the positions and save them."""
        if not self._taken:
            return
        sequence, taken, body = self._positions.next_sequence, self._taken, self._writer.finish()
        self._begin()
        self._positions.next_sequence = sequence + 1
        self._live.append(sequence)
        for file, stream, end, mark in taken:
            file.mark = mark
            stream.extent = max(stream.extent, end)
            stream.since = sequence if stream.since is None else stream.since
            self._note(sequence, stream.path, stream.generation)
        self._sizes[sequence] = len(body)
        self._store.put(self._key(sequence), body)
        counters = self._positions.counters
        for file, stream, end, _ in taken:
            stored = file.stored
            stream.sent = end
            counters.bytes_stored += max(0, file.stored - stored)
        counters.bundles += 1
        counters.bytes_uploaded += len(body)
        self._positions.save()

    # Reading

    def list(self) -> dict[int, ObjectInfo]:
        """The bundles that are in the store, by sequence."""
        prefix = self._destination.tails(self._session, self._node)
        found = {info.key.removeprefix(prefix + "/"): info for info in self._store.list(prefix)}
        return {int(name): info for name, info in sorted(found.items()) if name.isascii() and name.isdecimal()}

    def tails(self, bundles: Iterable[ObjectInfo]) -> tuple[LogFiles, Sequence[tuple[int, Tail]]]:
        """What bundles hold, in the order it was shipped, and the reader of it."""
        files = LogFiles(self._store, (), ((self._node, info) for info in bundles))
        listed = [file for node in files.nodes() for file in files.list(node)]
        found = [(int(tail.bundle.rpartition("/")[2]), tail) for file in listed for tail in file.tails]
        return files, sorted(found, key=lambda item: (item[0], item[1].entry.generation, item[1].entry.offset))

    def tails_of(self, streams: Sequence[Stream]) -> tuple[LogFiles, Sequence[Tail]]:
        """All tails of one file, told as one generation: its offsets are the same under each of its names."""
        first = min((stream.since for stream in streams if stream.since is not None), default=None)
        if first is None:
            return LogFiles(self._store, (), ()), ()
        files, tails = self.tails(info for sequence, info in self.list().items() if sequence >= first)
        wanted = {(stream.path, stream.generation) for stream in streams}
        return files, [
            Tail(tail.bundle, msgspec.structs.replace(tail.entry, generation=1))
            for _, tail in tails
            if (tail.entry.path, tail.entry.generation) in wanted
        ]

    # Catching up, and deleting

    def adopt(self, listed: Mapping[int, ObjectInfo], unknown: Sequence[tuple[int, Tail]]) -> None:
        """After a start: the bundles there are, and the content of those that were put and not remembered."""
        self._live = sorted(listed)
        self._sizes = {sequence: info.size for sequence, info in listed.items()}
        positions = self._positions
        positions.next_sequence = max([positions.next_sequence, *(sequence + 1 for sequence in self._live[-1:])])
        for sequence, entries in groupby(unknown, key=lambda item: item[0]):
            newest: dict[str, int] = defaultdict(int)
            for _, tail in entries:
                newest[tail.entry.path] = max(newest[tail.entry.path], tail.entry.generation)
            for path, generation in newest.items():
                self._note(sequence, path, generation)
                positions.next_generation = max(positions.next_generation, generation + 1)

    def delete_superseded(self) -> None:
        """Delete the bundles before the first that has bytes which stand in no whole object."""
        positions = self._positions
        needed = [stream.since for stream in positions.streams() if stream.since is not None]
        floor = min(needed, default=positions.next_sequence)
        self._delete_retired(floor)
        while self._live and self._live[0] < floor:
            barrier = next((b for b in sorted(positions.barriers) if b > self._live[0]), floor)
            count = bisect_left(self._live, min(barrier, floor))
            self._store.delete_many([self._key(sequence) for sequence in self._live[:count]])
            for sequence in self._live[:count]:
                self._sizes.pop(sequence, None)
            del self._live[:count]
        positions.barriers[:] = [barrier for barrier in positions.barriers if barrier >= floor]
        for path in [path for path, (_, last) in positions.paths.items() if last < floor]:
            del positions.paths[path]

    @property
    def count(self) -> int:
        """Bundles in the store."""
        return len(self._live) + sum(len(run) for _, _, run in self._retired)

    # Putting together

    def merge_small(self) -> None:
        """Put the oldest long run of small bundles together in a new one."""
        run = self._small_run()
        moved: list[int] = []
        kept: dict[tuple[str, int], list[tuple[Entry, bytes]]] = defaultdict(list)
        for sequence in run:
            try:
                frames = self._frames_to_keep(sequence)
            except CorruptBundle:
                self._sizes[sequence] = self.small  # it stays where it is, for readers to tell of it
                break
            if frames is None:
                break
            for entry, frame in frames:
                kept[entry.path, entry.generation].append((entry, frame))
            moved.append(sequence)
        if len(moved) < 2:
            return
        positions, body = self._positions, _put_together(kept)
        sequence = positions.next_sequence
        positions.next_sequence = sequence + 1
        self._live.append(sequence)
        self._sizes[sequence] = len(body)
        for path, generation in kept:
            self._note(sequence, path, generation)
        self._store.put(self._key(sequence), body)
        positions.counters.bytes_uploaded += len(body)
        behind = self._live[bisect_left(self._live, moved[-1]) + 1]
        for stream in positions.streams():
            if stream.since is not None and moved[0] <= stream.since <= moved[-1]:
                stream.since = behind
        positions.save()
        self._live = [each for each in self._live if not moved[0] <= each <= moved[-1]]
        self._retired.append((time.monotonic(), sequence, moved))

    def _small_run(self) -> Sequence[int]:
        run: list[int] = []
        total = 0
        for sequence in self._live:
            size = self._sizes.get(sequence, 0)
            if size >= self.small:
                run, total = [], 0
                continue
            run.append(sequence)
            total += size
            if len(run) >= self.many or (total >= 2 * self.small and len(run) > 1):
                return run
        return []

    def _frames_to_keep(self, sequence: int) -> Sequence[tuple[Entry, bytes]] | None:
        """Entries of a bundle with their bytes, without what stands in whole objects for good.

        None when it has bytes of an older generation that do not yet: they may not be moved behind newer ones.
        """
        try:
            body = self._store.get(self._key(sequence))
        except NotFound:
            return []  # it was never there: its put failed
        needed = {(s.path, s.generation) for s in self._positions.streams() if s.since is not None}
        found = []
        for entry in parse_header(body):
            if entry.generation >= self.newest(entry.path):
                frame = body[entry.position : entry.position + entry.size]
                read_entry(entry, frame)  # what is damaged is not shipped again
                found.append((entry, frame))
            elif (entry.path, entry.generation) in needed:
                return None
        return found

    def _delete_retired(self, floor: int) -> None:
        now = time.monotonic()
        while self._retired and (self._retired[0][0] + self.grace <= now or self._retired[0][1] < floor):
            self._store.delete_many([self._key(sequence) for sequence in self._retired[0][2]])
            del self._retired[0]

    def _note(self, sequence: int, path: str, generation: int) -> None:
        known = self.newest(path)
        if known and generation != known and sequence not in self._positions.barriers:
            self._positions.barriers.append(sequence)
        self._positions.paths[path] = (max(known, generation), sequence)

    def _begin(self) -> None:
        self._writer = BundleWriter()
        self._taken: list[tuple[Followed, Stream, int, Mark]] = []

    def _key(self, sequence: int) -> str:
        return self._destination.tail(self._session, self._node, sequence)


def _put_together(kept: Mapping[tuple[str, int], Sequence[tuple[Entry, bytes]]]) -> bytes:
    """A bundle in which bytes that follow each other in a file are one entry."""
    writer = BundleWriter()
    for (path, generation), frames in kept.items():
        start, data = 0, b""
        for entry, frame in sorted(frames, key=lambda item: item[0].offset):
            if entry.end <= start + len(data):
                continue
            if entry.offset > start + len(data) or len(data) >= MAX_ENTRY:
                writer.add_portable(path, generation, start, data)
                start, data = max(entry.offset, start + len(data)), b""
            data += read_entry(entry, frame)[start + len(data) - entry.offset :]
        writer.add_portable(path, generation, start, data)
    return writer.finish()
