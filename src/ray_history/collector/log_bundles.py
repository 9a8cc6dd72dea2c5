"""The bundles of one node: writing the next, knowing which generation of a path is the newest, deleting the oldest.

Keeps the invariants of `archive/tails.py`:
* A sequence is used once. A put that failed may have arrived: that bundle is reckoned with, and deleted in its turn,
  but positions do not move and its bytes are shipped again. After a start, sequences go on behind the last one there.
* Once bytes of a newer generation of a path are shipped, none of an older one are (`goes_on`).
* Bundles are deleted from the oldest to the first that is needed. A request may delete many in any order, so a request
  never spans a barrier: a bundle in which a path's generation grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from ..archive.log_files import LogFiles
from ..archive.stores import ObjectInfo
from ..archive.tails import BundleWriter, Tail
from .destination import Destination
from .log_positions import Followed, Mark, Positions, Stream
from .log_tree import disk_path


class Bundles:
    """The bundles of one node and session."""

    def __init__(self, destination: Destination, session: str, node: str, positions: Positions) -> None:
        self._destination = destination
        self._store = destination.store
        self._session, self._node = session, node
        self._positions = positions
        self._live: list[int] = []
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

    def adopt(self, listed: Iterable[int], unknown: Sequence[tuple[int, Tail]]) -> None:
        """After a start: the bundles there are, and the content of those that were put and not remembered."""
        self._live = sorted(listed)
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
        while self._live and self._live[0] < floor:
            barrier = next((b for b in sorted(positions.barriers) if b > self._live[0]), floor)
            count = bisect_left(self._live, min(barrier, floor))
            self._store.delete_many([self._key(sequence) for sequence in self._live[:count]])
            del self._live[:count]
        positions.barriers[:] = [barrier for barrier in positions.barriers if barrier >= floor]
        for path in [path for path, (_, last) in positions.paths.items() if last < floor]:
            del positions.paths[path]

    @property
    def count(self) -> int:
        """Bundles in the store."""
        return len(self._live)

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
