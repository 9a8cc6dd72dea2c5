"""Preserves the content of files that no longer exist, and of objects that another file's content would replace.

A deleted file is stored under its own name unless another file has it, else as `<name>.until-<time of its last write>`.
Bytes in log tails are joined with its whole object, as a reader of the archive would do it.

Some files are rewritten in place: Ray's raylet writes `debug_state.txt` anew every ten seconds, 8,640 contents of 18 KB
a day. Of these, at most `KEPT_REWRITES` are kept per file, equally spaced: when there are more, every second one is
deleted, and the next ones are twice as far apart. So few are ever uploaded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from ray_history.archive.log_files import LogFile
from ray_history.archive.log_tails import Entry, Tail, stitch

from .bundles import Bundles
from .objects import Content, Objects, StoredObject
from .state import DeletedFile, LogState, Rewrites, TrackedFile

KEPT_REWRITES = 8
"""Former contents that are kept of a file that is rewritten in place."""


class Preservation:
    """Moves content within the archive to names where nothing overwrites it."""

    def __init__(
        self,
        state: LogState,
        bundles: Bundles,
        objects: Objects,
        report: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        self._state = state
        self._bundles = bundles
        self._objects = objects
        self._report = report
        self._check = check

    def preserve_object(self, name: str) -> None:
        """Copy an object without owner, or one whose owner cannot be stored under its new name (a circle of names)."""
        existing = self._objects.by_name[name]
        owner = existing.owner
        until = existing.until_ns if owner is None else owner.mtime_ns
        target, done = self._objects.preserved_name(name, until, existing.size, self._objects.content(name))
        if not done:
            self._objects.copy(name, target)
        self._objects.record(
            target,
            StoredObject(existing.size, None, owner, until, is_identified=existing.is_identified or owner is None),
        )
        self._objects.mark_stale(name)
        if owner is not None and owner.whole is not None:
            owner.whole = msgspec.structs.replace(owner.whole, name=target, etag=None)

    def preserve_deleted(self, deleted: DeletedFile) -> None:
        """Store what is left of a deleted file as one object, unless that content is one of too many."""
        whole = deleted.whole
        extent = max((stream.extent for stream in deleted.streams), default=0)
        is_kept = not deleted.rewritten or self._is_due(deleted)
        if is_kept and not (whole is not None and self._has_object(deleted) and whole.size >= extent):
            self._join(deleted)
        existing = self._objects.by_name.get(whole.name) if whole else None
        if whole is not None and existing is not None and existing.owner is deleted:
            if is_kept:
                self._objects.disown(whole.name, deleted.mtime_ns)
            else:
                self._objects.mark_stale(whole.name)
        self._state.deleted_files.remove(deleted)
        self._state.save_soon()

    def _join(self, deleted: DeletedFile) -> None:
        files, tails = self._bundles.tails_of(deleted.streams)
        start = self._find_start(deleted, tails)
        if not tails or (start is None and self._are_stored(tails)):
            return  # a whole object has them: the state file is an older copy
        info = self._objects.info(start) if start is not None else None
        reader = files.open(LogFile("", deleted.name, 0, None, info, tuple(tails)))
        if reader.gaps:
            self._report(f"log {deleted.name} is stored, but {len(reader.gaps)} ranges of it are lost")
        target, done = self.target(deleted, reader.size, reader.read)
        size = reader.size
        if not done:
            size = self._objects.upload(target, self._until_deadline(reader.stream()))
            self._state.counters.bytes_uploaded += size
            self._state.counters.whole_uploads += 1
        for problem in files.problems:
            self._report(problem)
        has_object = self._has_object(deleted)
        self._objects.record(target, StoredObject(size))
        self._objects.disown(target, deleted.mtime_ns)
        if deleted.rewritten and target != deleted.name:
            self._keep(deleted, target)
        if has_object and start is not None and start != target:
            self._objects.mark_stale(start)

    def _is_due(self, deleted: DeletedFile) -> bool:
        rewrites = self._state.rewrites.get(deleted.name)
        return rewrites is None or deleted.mtime_ns - rewrites.kept[-1][0] >= rewrites.gap_ns

    def _keep(self, deleted: DeletedFile, target: str) -> None:
        """Note a former content of a rewritten file, and delete every second one if there are too many."""
        rewrites = self._state.rewrites.setdefault(deleted.name, Rewrites())
        rewrites.kept = sorted([*rewrites.kept, (deleted.mtime_ns, target)])
        if len(rewrites.kept) <= KEPT_REWRITES:
            return
        superseded, rewrites.kept = rewrites.kept[1::2], rewrites.kept[::2]
        rewrites.gap_ns = (rewrites.kept[-1][0] - rewrites.kept[0][0]) // (len(rewrites.kept) - 1)
        for _, name in superseded:
            existing = self._objects.by_name.get(name)
            if existing is not None and existing.owner is None:
                self._objects.mark_stale(name)

    def target(self, file: DeletedFile | TrackedFile, size: int, content: Content) -> tuple[str, bool]:
        """The name for a deleted file, and whether it is stored there already."""
        name = file.name
        existing = self._objects.at(name)
        newest = self._bundles.newest(name)
        own = not newest or any((s.path, s.generation) == (name, newest) for s in file.streams)
        if own and name not in self._state.names and name not in self._objects.reserved:
            if existing is None or existing.stale or (existing.owner is file and existing.is_identified):
                return name, False
            if existing.owner is None and existing.size == size and self._objects.is_prefix(name, size, content):
                return name, True
        return self._objects.preserved_name(name, file.mtime_ns, size, content)

    def _find_start(self, deleted: DeletedFile, tails: Sequence[Tail]) -> str | None:
        """The name of the object with the first bytes of the file, if there is one; searched after a start."""
        if deleted.whole is not None and self._has_object(deleted):
            return deleted.whole.name
        if not stitch(None, tails, lambda _entry: False).gaps:
            return None  # the tails have the first bytes
        for name in dict.fromkeys([*(stream.path for stream in reversed(deleted.streams)), deleted.name]):
            existing = self._objects.at(name)
            if existing is None or existing.stale or existing.owner not in (None, deleted):
                continue
            newest = any((s.path, s.generation) == (name, self._bundles.newest(name)) for s in deleted.streams)
            if not newest and not any(tail.entry.end <= existing.size for tail in tails):
                continue  # nothing to compare, and a newer file had that name: the object is of that file
            if stitch(existing.size, tails, partial(self._contains, name)).whole_end:
                return name
        return None

    def _are_stored(self, tails: Sequence[Tail]) -> bool:
        """Whether tails without first bytes are part of an object of another name, as after an unfinished deletion."""
        entries = [tail.entry for tail in tails]
        if not entries or min(entry.offset for entry in entries) == 0:
            return False
        end = max(entry.end for entry in entries)
        large_enough = [
            name for name, existing in self._objects.by_name.items() if existing.size >= end and not existing.stale
        ]
        return any(all(self._contains(name, entry) for entry in entries) for name in large_enough)

    def _has_object(self, deleted: DeletedFile) -> bool:
        existing = self._objects.by_name.get(deleted.whole.name) if deleted.whole else None
        return existing is not None and existing.owner is deleted and existing.is_identified

    def _contains(self, name: str, entry: Entry) -> bool:
        return zlib.crc32(self._objects.content(name)(entry.offset, entry.end)) == entry.crc32

    def _until_deadline(self, source: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in source:
            self._check()
            yield chunk
