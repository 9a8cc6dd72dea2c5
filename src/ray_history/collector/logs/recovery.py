"""Catches up with the archive after a start: it may be ahead of the state file, or the state file may be lost.

Two listings show which bundles and objects exist. Bundles missing in the state file are read (their headers): each run
of bytes in them is matched with a file on the disk by its checksum; without a match it is what is left of a deleted
file. An object is assigned to a file only if its etag, or its first and last bytes, match.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from ray_history.archive.log_tails import Entry, Tail
from ray_history.archive.stores import ObjectInfo

from .bundles import Bundles
from .objects import Objects, StoredObject
from .scanner import Descriptors, Vanished, read_at
from .state import DeletedFile, Fingerprint, LogState, Stream, TrackedFile, WholeObject


class Recovery:
    """Runs once, before the first upload."""

    def __init__(
        self,
        state: LogState,
        bundles: Bundles,
        objects: Objects,
        descriptors: Descriptors,
        reset: Callable[[TrackedFile, int], None],
    ) -> None:
        self._state = state
        self._bundles = bundles
        self._objects = objects
        self._descriptors = descriptors
        self._reset = reset
        self._without_start: set[TrackedFile | DeletedFile] = set()
        """Files whose first bytes are in no bundle, so that a whole object must have them."""
        self._sorted: list[str] = []
        self._by_first_name: dict[str, list[TrackedFile]] = {}

    def run(self) -> list[str]:
        """Catch up; returns problems. Can be repeated after a failure of the store."""
        bundles = self._bundles.list()
        objects = self._objects.list()
        unknown = [info for sequence, info in bundles.items() if sequence >= self._state.known_sequence]
        files, tails = self._bundles.tails(unknown)
        self._objects.by_name = {name: self._stored_object(name, info) for name, info in objects.items()}
        self._reset_changed()
        confirmed = [(holder, self._confirmed_size(holder)) for holder in self._state.holders()]
        for holder, size in sorted(confirmed, key=lambda item: item[1] is None):
            self._confirm(holder, size)
        self._bundles.adopt(bundles, tails)
        self._adopt_streams(tails, bundles)
        self._find_missing(bundles)
        self._state.save()
        return files.problems

    def _find_missing(self, bundles: Mapping[int, ObjectInfo]) -> None:
        """Find the whole objects of files with bytes that are in no bundle any more."""
        for holder in self._state.holders():
            missing = any(s.since is not None and s.since not in bundles for s in holder.streams)
            if holder.whole is None and (missing or holder in self._without_start):
                self._find_whole(holder)
            if isinstance(holder, TrackedFile) and holder.whole is not None:
                holder.covered_by(holder.whole)

    # Objects

    def _stored_object(self, name: str, info: ObjectInfo) -> StoredObject:
        state = self._state
        until = state.remains.get(name, int(info.modified.timestamp()) * 1_000_000_000)
        stale = bool(info.etag) and state.leftovers.get(name) == info.etag
        return StoredObject(info.size, info.etag, None, until, is_identified=False, stale=stale)

    def _confirmed_size(self, holder: TrackedFile | DeletedFile) -> int | None:
        """Bytes of the file in the object that the state file names; None if it is another file's, or unknown."""
        whole = holder.whole
        existing = self._objects.by_name.get(whole.name) if whole else None
        if whole is None or existing is None:
            return None
        if whole.etag is not None and whole.etag == existing.etag and whole.size == existing.size:
            return existing.size
        if isinstance(holder, DeletedFile):
            return None
        return existing.size if self._is_start(whole.name, holder) else None

    def _confirm(self, holder: TrackedFile | DeletedFile, size: int | None) -> None:
        whole = holder.whole
        if whole is None:
            return
        existing = self._objects.by_name.get(whole.name)
        if existing is not None and size is not None:
            existing.owner, existing.is_identified, existing.stale = holder, True, False
            mtime_ns = whole.mtime_ns if size == whole.size else 0
            holder.whole = WholeObject(whole.name, size, mtime_ns, existing.etag)
            if isinstance(holder, TrackedFile):
                self._mark(holder, size)
            return
        holder.whole = None
        if isinstance(holder, DeletedFile):
            self._claim(holder, whole.name)
            return
        for stream in holder.streams:  # the bytes of the object must be uploaded again
            stream.sent = 0

    def _find_whole(self, holder: TrackedFile | DeletedFile) -> None:
        """Find the object with the first bytes of a file; bundles are deleted only if there is one."""
        if isinstance(holder, DeletedFile):
            self._claim(holder, holder.streams[-1].path)
            return
        for name in dict.fromkeys([holder.name, *(stream.path for stream in reversed(holder.streams))]):
            existing = self._objects.by_name.get(name)
            if existing is None or existing.owner is not None or not self._is_start(name, holder):
                continue
            existing.owner, existing.is_identified, existing.stale = holder, True, False
            holder.whole = WholeObject(
                name, existing.size, holder.mtime_ns if existing.size == holder.size else 0, existing.etag
            )
            self._mark(holder, existing.size)
            return
        for stream in holder.streams:
            stream.sent = 0

    def _claim(self, deleted: DeletedFile, name: str) -> None:
        """Assign an object to a deleted file tentatively; preservation compares them (`is_identified` stays False)."""
        existing = self._objects.by_name.get(name)
        if existing is not None and existing.owner is None:
            existing.owner, existing.stale = deleted, False
            deleted.whole = WholeObject(name, existing.size, deleted.mtime_ns)

    def _is_start(self, name: str, file: TrackedFile) -> bool:
        try:
            descriptor = self._descriptors.get(file.identity, file.name)
            size = os.fstat(descriptor).st_size
            return self._objects.is_prefix(name, size, lambda start, end: read_at(descriptor, start, end))
        except (Vanished, OSError):
            return False

    def _reset_changed(self) -> None:
        """Start over with files that were rewritten since the state was saved."""
        for file in list(self._state.files.values()):
            try:
                descriptor = self._descriptors.get(file.identity, file.name)
                if not file.fingerprint.matches(descriptor):
                    self._reset(file, file.size)
            except (Vanished, OSError):
                continue

    # Bundles

    def _adopt_streams(self, tails: Sequence[tuple[int, Tail]], bundles: dict[int, ObjectInfo]) -> None:
        runs: dict[tuple[str, int], list[tuple[int, Entry]]] = defaultdict(list)
        for sequence, tail in tails:
            runs[tail.entry.path, tail.entry.generation].append((sequence, tail.entry))
        streams = {(stream.path, stream.generation): stream for stream in self._state.streams()}
        self._sorted = sorted(self._state.names)
        self._by_first_name = defaultdict(list)
        for file in self._state.files.values():
            self._by_first_name[file.first_name].append(file)
        for (path, generation), found in sorted(runs.items(), key=lambda item: item[0][1]):
            stream = streams.get((path, generation))
            if stream is None:
                stream = Stream(path, generation)
                entries = sorted((entry for _, entry in found), key=lambda entry: entry.offset)
                written = bundles[found[-1][0]].modified
                self._attach(stream, entries, int(written.timestamp()) * 1_000_000_000)
            first = found[0][0]
            stream.since = first if stream.since is None else min(first, stream.since)
            stream.extent = max([stream.extent, *(entry.end for _, entry in found)])

    def _attach(self, stream: Stream, entries: Sequence[Entry], written_ns: int) -> None:
        """Find the file that has these bytes."""
        for file in self._candidates(stream.path, everywhere=entries[0].offset > 0):
            sent = self._matching(file, entries)
            if sent is not None:
                stream.sent = sent
                file.streams = sorted([*file.streams, stream], key=lambda each: each.generation)
                file.first_name = stream.path  # if it has another name now, it was renamed
                if entries[0].offset > 0:
                    self._without_start.add(file)
                return
        headless = entries[0].offset > 0 and self._bundles.newest(stream.path) == stream.generation
        existing = self._objects.by_name.get(stream.path)
        if headless and existing is not None and isinstance(existing.owner, DeletedFile):
            existing.owner.streams.append(stream)  # bytes after the object of a path are of the same file
            return
        deleted = DeletedFile(stream.path, written_ns, [stream])
        self._state.deleted_files.append(deleted)
        if headless:
            self._without_start.add(deleted)

    def _candidates(self, path: str, *, everywhere: bool) -> Iterator[TrackedFile]:
        """Files that may have had this name; all files if `everywhere`."""
        names = self._state.names
        first, last = (bisect_left(self._sorted, path + after) for after in "./")  # `path.1`, `path.2`, ...
        related = [names[name] for name in (path, f"old/{path}", *self._sorted[first:last]) if name in names]
        yield from related
        yield from self._by_first_name.get(path, ())
        if everywhere:
            yield from (file for file in names.values() if file not in related)

    def _matching(self, file: TrackedFile, entries: Sequence[Entry]) -> int | None:
        """How far these runs cover the file from its start; None if they are not its bytes."""
        if file.size < max(entry.end for entry in entries):
            return None
        sent = 0
        try:
            descriptor = self._descriptors.get(file.identity, file.name)
            for entry in entries:
                if zlib.crc32(read_at(descriptor, entry.offset, entry.end)) != entry.crc32:
                    return None
                if entry.offset <= sent:
                    sent = max(sent, entry.end)
        except (Vanished, OSError):
            return None
        self._mark(file, max(entry.end for entry in entries))
        return sent

    def _mark(self, file: TrackedFile, end: int) -> None:
        """Extend the fingerprint of the file to bytes that are in the archive."""
        if end <= file.fingerprint.edge_end:
            return
        try:
            file.fingerprint = Fingerprint.of(self._descriptors.get(file.identity, file.name), end)
        except (Vanished, OSError):
            return
