"""The bundles of one node: writes new ones, knows the newest generation of each path, deletes old ones.

Keeps the invariants of `archive/log_tails.py`:
* A sequence number is used once. A failed put may have succeeded: that bundle counts as existing and is deleted in its
  turn, but positions do not move and its bytes are uploaded again. After a start, numbers continue after the last one.
* Once bytes of a newer generation of a path are uploaded, no more of an older one are (`is_current`).
* Bundles are deleted from the oldest to the first that is needed. One request may delete many in any order, so it never
  spans a barrier: a bundle in which the generation of a path grows.
* A session of weeks has few bundles: runs of small ones are merged (`merge_small`) and deleted a minute later, so that
  a reader that has just listed them can still read them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFiles
from ray_history.archive.log_tails import MAX_ENTRY, BundleWriter, CorruptBundle, Entry, Tail, parse_header, read_entry
from ray_history.archive.stores import ObjectInfo
from ray_history.collector.destination import Destination

from .scanner import disk_path
from .state import Fingerprint, LogState, Stream, TrackedFile

BUNDLE_BYTES = 8 * 1024 * 1024
"""Log bytes in one bundle, and in memory."""

PUT_SECONDS = 2.0
"""Bundles are smaller where the store would need longer for one: new lines, and the end of the process, wait for it."""

_LEAST_BYTES = 256 * 1024


class Bundles:
    """The bundles of one node and session."""

    max_run = 64
    """Number of small bundles in a row that are merged."""
    small = 2 << 20
    """Bytes; larger bundles are not merged."""
    grace = 60.0
    """Seconds for which merged bundles stay beside the new one."""

    def __init__(
        self, destination: Destination, session: str, node: str, state: LogState, most_bytes: int = BUNDLE_BYTES
    ) -> None:
        self._destination = destination
        self._store = destination.store
        self._session, self._node = session, node
        self._state = state
        self._most_bytes = self._full_bytes = most_bytes
        self._live: list[int] = []
        self._sizes: dict[int, int] = {}
        self._merged: list[tuple[float, int, list[int]]] = []
        """Time of the merge, the new bundle, and the merged ones."""
        self._highest: dict[str, int] = {}
        self._start_bundle()

    # Writing

    def room(self, least: int = 0) -> int:
        """Log bytes that the bundle being written has room for; that of the next one if it is less than `least`."""
        room = self._full_bytes - self._writer.raw_size
        return room if room >= min(least, self._full_bytes // 2) else self._full_bytes

    def newest(self, path: str) -> int:
        """The newest generation of a path in existing bundles; 0 if there is none."""
        return self._state.paths.get(path, (0, 0))[0]

    def is_current(self, stream: Stream) -> bool:
        """Whether more bytes of this stream may be uploaded."""
        return stream.generation >= max(self.newest(stream.path), self._highest.get(stream.path, 0))

    def note_newest_generations(self) -> None:
        """Note the newest generation of each path, including those without bundles."""
        self._highest.clear()
        for stream in self._state.streams():
            self._highest[stream.path] = max(stream.generation, self._highest.get(stream.path, 0))

    def next_generation(self) -> int:
        """A number larger than all generations so far, of any path."""
        self._state.next_generation += 1
        return self._state.next_generation - 1

    def add(self, file: TrackedFile, stream: Stream, offset: int, data: bytes, fingerprint: Fingerprint) -> None:
        """Add bytes of a file to the bundle; its position moves when the bundle is uploaded."""
        self._writer.add(disk_path(stream.path), stream.generation, offset, data)
        self._added.append((file, stream, offset + len(data), fingerprint))

    def add_empty(self, file: TrackedFile) -> None:
        """Add the name of an empty file, unless the name still has the bytes of another file."""
        if not self.newest(file.name) and file.empty_since is None:
            self._writer.empty.append(file.name)
            self._added_empty.append(file)

    def discard(self) -> None:
        """Drop the bundle being written."""
        self._start_bundle()

    def put(self) -> None:
        """Upload the bundle unless it is empty, then move the positions and save them."""
        if not self._added and not self._added_empty:
            return
        sequence, added, raw_size = self._state.next_sequence, self._added, self._writer.raw_size
        body = self._writer.finish()
        added_empty = self._added_empty
        self._start_bundle()
        self._state.next_sequence = sequence + 1
        self._live.append(sequence)
        for file, stream, end, fingerprint in added:
            file.fingerprint, file.empty_since = fingerprint, None
            stream.extent = max(stream.extent, end)
            stream.since = sequence if stream.since is None else stream.since
            self._note(sequence, stream.path, stream.generation)
        self._sizes[sequence] = len(body)
        began = time.monotonic()
        self._store.put(self._key(sequence), body)
        if raw_size >= self._full_bytes:
            in_time = int(raw_size / max(time.monotonic() - began, 1e-3) * PUT_SECONDS)
            self._full_bytes = min(self._most_bytes, max(_LEAST_BYTES, in_time))
        counters = self._state.counters
        for file in added_empty:
            file.empty_since = sequence
        for file, stream, end, _ in added:
            stored = file.stored
            stream.sent = end
            counters.bytes_stored += max(0, file.stored - stored)
        counters.bundles += 1
        counters.bytes_uploaded += len(body)
        self._state.save()

    # Reading

    def list(self) -> dict[int, ObjectInfo]:
        """The bundles in the store, by sequence number."""
        prefix = self._destination.tails(self._session, self._node)
        found = {info.key.removeprefix(prefix + "/"): info for info in self._store.list(prefix)}
        return {int(name): info for name, info in sorted(found.items()) if name.isascii() and name.isdecimal()}

    def tails(self, bundles: Iterable[ObjectInfo]) -> tuple[LogFiles, Sequence[tuple[int, Tail]]]:
        """The entries of bundles in the order of their upload, and a reader for them."""
        files = LogFiles(self._store, (), ((self._node, info) for info in bundles))
        listed = [file for node in files.nodes() for file in files.list(node)]
        found = [(int(tail.bundle.rpartition("/")[2]), tail) for file in listed for tail in file.tails]
        return files, sorted(found, key=lambda item: (item[0], item[1].entry.generation, item[1].entry.offset))

    def tails_of(self, streams: Sequence[Stream]) -> tuple[LogFiles, Sequence[Tail]]:
        """All tails of one file as one generation: its offsets are the same under each of its names."""
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

    # Recovery and deletion

    def adopt(self, listed: Mapping[int, ObjectInfo], unknown: Sequence[tuple[int, Tail]]) -> None:
        """After a start: take over the listed bundles, and the content of those missing in the state file."""
        self._live = sorted(listed)
        self._sizes = {sequence: info.size for sequence, info in listed.items()}
        state = self._state
        state.next_sequence = max([state.next_sequence, *(sequence + 1 for sequence in self._live[-1:])])
        for sequence, entries in groupby(unknown, key=lambda item: item[0]):
            newest: dict[str, int] = defaultdict(int)
            for _, tail in entries:
                newest[tail.entry.path] = max(newest[tail.entry.path], tail.entry.generation)
            for path, generation in newest.items():
                self._note(sequence, path, generation)
                state.next_generation = max(state.next_generation, generation + 1)

    def delete_superseded(self) -> Sequence[TrackedFile]:
        """Delete the bundles before the first with bytes that no whole object has.

        Returns the empty files that only those bundles named. Bundles with nothing but such names stay.
        """
        state = self._state
        needed = [stream.since for stream in state.streams() if stream.since is not None]
        floor = min(needed, default=state.next_sequence)
        if not any(last < floor for _, last in state.paths.values()):
            floor = min([floor, *(file.empty_since for file in state.files.values() if file.empty_since is not None)])
        self._delete_merged(floor)
        self._delete_before(floor)
        state.barriers[:] = [barrier for barrier in state.barriers if barrier >= floor]
        for path in [path for path, (_, last) in state.paths.items() if last < floor]:
            del state.paths[path]
        unnamed = [file for file in state.files.values() if file.empty_since is not None and file.empty_since < floor]
        for file in unnamed:
            file.empty_since = None
        return unnamed

    def _delete_before(self, floor: int) -> None:
        while self._live and self._live[0] < floor:
            barrier = next((each for each in sorted(self._state.barriers) if each > self._live[0]), floor)
            count = bisect_left(self._live, min(barrier, floor))
            self._store.delete_many([self._key(sequence) for sequence in self._live[:count]])
            for sequence in self._live[:count]:
                self._sizes.pop(sequence, None)
            del self._live[:count]

    @property
    def count(self) -> int:
        """Bundles in the store."""
        return len(self._live) + sum(len(run) for _, _, run in self._merged)

    # Merging

    def merge_small(self) -> None:
        """Merge the oldest long run of small bundles into a new one."""
        run = self._small_run()
        moved: list[int] = []
        by_generation: dict[tuple[str, int], list[tuple[Entry, bytes]]] = defaultdict(list)
        for sequence in run:
            try:
                frames = self._mergeable_frames(sequence)
            except CorruptBundle:
                self._sizes[sequence] = self.small  # it is left for readers to report
                break
            if frames is None:
                break
            for entry, frame in frames:
                by_generation[entry.path, entry.generation].append((entry, frame))
            moved.append(sequence)
        if len(moved) < 2:
            return
        state = self._state
        empty = [file for file in state.files.values() if file.empty_since in moved]
        body = _merge(by_generation, [file.name for file in empty])
        sequence = state.next_sequence
        state.next_sequence = sequence + 1
        self._live.append(sequence)
        self._sizes[sequence] = len(body)
        for path, generation in by_generation:
            self._note(sequence, path, generation)
        self._store.put(self._key(sequence), body)
        state.counters.bytes_uploaded += len(body)
        for file in empty:
            file.empty_since = sequence
        self._advance_streams(moved)
        state.save()
        self._live = [each for each in self._live if not moved[0] <= each <= moved[-1]]
        self._merged.append((time.monotonic(), sequence, moved))

    def _advance_streams(self, moved: Sequence[int]) -> None:
        """Their bytes in the moved bundles are in the new one, which is behind all others."""
        behind = self._live[bisect_left(self._live, moved[-1]) + 1]
        for stream in self._state.streams():
            if stream.since is not None and moved[0] <= stream.since <= moved[-1]:
                stream.since = behind

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
            if len(run) >= self.max_run or (total >= 2 * self.small and len(run) > 1):
                return run
        return []

    def _mergeable_frames(self, sequence: int) -> Sequence[tuple[Entry, bytes]] | None:
        """Entries of a bundle with their frames, without those that whole objects have for good.

        None if it has other bytes of an older generation: they must not be moved behind newer ones.
        """
        try:
            body = self._store.get(self._key(sequence))
        except NotFound:
            return []  # it never existed: its put failed
        needed = {(s.path, s.generation) for s in self._state.streams() if s.since is not None}
        found = []
        for entry in parse_header(body):
            if entry.generation >= self.newest(entry.path):
                frame = body[entry.position : entry.position + entry.size]
                read_entry(entry, frame)  # damaged entries are not uploaded again
                found.append((entry, frame))
            elif (entry.path, entry.generation) in needed:
                return None
        return found

    def _delete_merged(self, floor: int) -> None:
        now = time.monotonic()
        while self._merged and (self._merged[0][0] + self.grace <= now or self._merged[0][1] < floor):
            self._store.delete_many([self._key(sequence) for sequence in self._merged[0][2]])
            del self._merged[0]

    def _note(self, sequence: int, path: str, generation: int) -> None:
        newest = self.newest(path)
        if newest and generation != newest and sequence not in self._state.barriers:
            self._state.barriers.append(sequence)
        self._state.paths[path] = (max(newest, generation), sequence)

    def _start_bundle(self) -> None:
        self._writer = BundleWriter()
        self._added: list[tuple[TrackedFile, Stream, int, Fingerprint]] = []
        self._added_empty: list[TrackedFile] = []

    def _key(self, sequence: int) -> str:
        return self._destination.tail(self._session, self._node, sequence)


def _merge(by_generation: Mapping[tuple[str, int], Sequence[tuple[Entry, bytes]]], empty: Sequence[str] = ()) -> bytes:
    """A bundle in which adjacent bytes of a file are one entry."""
    writer = BundleWriter()
    writer.empty.extend(empty)
    for (path, generation), frames in by_generation.items():
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
