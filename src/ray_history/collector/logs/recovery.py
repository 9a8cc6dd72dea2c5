"""Catching up with the archive after a start: it may be ahead of the state file, or the state file may be lost.

Two listings tell which bundles and objects there are. Bundles the state file does not know are read (their headers):
each run of bytes in them is matched with a file of the disk by its checksum, or else is all that is left of a file that
is no more. An object is taken for a file's only when its etag, or its first and last bytes, say so.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ray_history.archive.log_tails import Entry, Tail

from ...archive.stores import ObjectInfo
from .bundles import Bundles
from .objects import Objects, Standing
from .scanner import Descriptors, Vanished, read_at
from .state import Followed, Former, Mark, Positions, Stream, Whole


class Recovery:
    """Done once, before anything is written."""

    def __init__(
        self,
        positions: Positions,
        bundles: Bundles,
        objects: Objects,
        descriptors: Descriptors,
        renew: Callable[[Followed, int], None],
    ) -> None:
        self._positions = positions
        self._bundles = bundles
        self._objects = objects
        self._descriptors = descriptors
        self._renew = renew
        self._headless: set[Followed | Former] = set()
        """Their first bytes are in no bundle; so a whole object has them."""
        self._sorted: list[str] = []
        self._born: dict[str, list[Followed]] = {}

    def run(self) -> list[str]:
        """Catch up; returns what could not be read. Can be repeated when the store fails."""
        bundles = self._bundles.list()
        objects = self._objects.list()
        unknown = [info for sequence, info in bundles.items() if sequence >= self._positions.known_sequence]
        files, tails = self._bundles.tails(unknown)
        standing = {name: self._standing(name, info) for name, info in objects.items()}
        self._objects.standing = standing
        self._renew_changed()
        confirmed = [(holder, self._confirmed(holder)) for holder in self._positions.holders()]
        for holder, size in sorted(confirmed, key=lambda item: item[1] is None):
            self._confirm(holder, size)
        self._bundles.adopt(bundles, tails)
        self._adopt_streams(tails, bundles)
        for holder in self._positions.holders():
            missing = any(s.since is not None and s.since not in bundles for s in holder.streams)
            if holder.whole is None and (missing or holder in self._headless):
                self._find_whole(holder)
            if isinstance(holder, Followed) and holder.whole is not None:
                holder.covered_by(holder.whole)
        self._positions.save()
        return files.problems

    # Objects

    def _standing(self, name: str, info: ObjectInfo) -> Standing:
        positions = self._positions
        until = positions.remains.get(name, int(info.modified.timestamp()) * 1_000_000_000)
        stale = bool(info.etag) and positions.leftovers.get(name) == info.etag
        return Standing(info.size, info.etag, None, until, known=False, stale=stale)

    def _confirmed(self, holder: Followed | Former) -> int | None:
        """How much of the object the state file tells of is this file's; None when it is another's, or unknown."""
        whole = holder.whole
        there = self._objects.standing.get(whole.name) if whole else None
        if whole is None or there is None:
            return None
        if whole.etag is not None and whole.etag == there.etag and whole.size == there.size:
            return there.size
        if isinstance(holder, Former):
            return None
        return there.size if self._is_begin(whole.name, holder) else None

    def _confirm(self, holder: Followed | Former, size: int | None) -> None:
        whole = holder.whole
        if whole is None:
            return
        there = self._objects.standing.get(whole.name)
        if there is not None and size is not None:
            there.owner, there.known, there.stale = holder, True, False
            mtime_ns = whole.mtime_ns if size == whole.size else 0
            holder.whole = Whole(whole.name, size, mtime_ns, there.etag)
            if isinstance(holder, Followed):
                self._mark(holder, size)
            return
        holder.whole = None
        if isinstance(holder, Former):
            self._claim(holder, whole.name)
            return
        for stream in holder.streams:  # what stood in the object must be shipped again
            stream.sent = 0

    def _find_whole(self, holder: Followed | Former) -> None:
        """Find the object with a file's first bytes; bundles are deleted only when there is one."""
        if isinstance(holder, Former):
            self._claim(holder, holder.streams[-1].path)
            return
        for name in dict.fromkeys([holder.name, *(stream.path for stream in reversed(holder.streams))]):
            there = self._objects.standing.get(name)
            if there is None or there.owner is not None or not self._is_begin(name, holder):
                continue
            there.owner, there.known, there.stale = holder, True, False
            holder.whole = Whole(name, there.size, holder.mtime_ns if there.size == holder.size else 0, there.etag)
            self._mark(holder, there.size)
            return
        for stream in holder.streams:
            stream.sent = 0

    def _claim(self, former: Former, name: str) -> None:
        """This object may be a former file's; that is found out when it is kept (`known` stays False)."""
        there = self._objects.standing.get(name)
        if there is not None and there.owner is None:
            there.owner, there.stale = former, False
            former.whole = Whole(name, there.size, former.mtime_ns)

    def _is_begin(self, name: str, file: Followed) -> bool:
        try:
            descriptor = self._descriptors.get(file.identity, file.name)
            size = os.fstat(descriptor).st_size
            return self._objects.begins(name, size, lambda start, end: read_at(descriptor, start, end))
        except (Vanished, OSError):
            return False

    def _renew_changed(self) -> None:
        """Files that were written anew while nobody looked, before anything of the archive is taken for theirs."""
        for file in list(self._positions.files.values()):
            try:
                descriptor = self._descriptors.get(file.identity, file.name)
                if not file.mark.is_on(descriptor):
                    self._renew(file, file.size)
            except (Vanished, OSError):
                continue

    # Bundles

    def _adopt_streams(self, tails: Sequence[tuple[int, Tail]], bundles: dict[int, ObjectInfo]) -> None:
        runs: dict[tuple[str, int], list[tuple[int, Entry]]] = defaultdict(list)
        for sequence, tail in tails:
            runs[tail.entry.path, tail.entry.generation].append((sequence, tail.entry))
        known = {(stream.path, stream.generation): stream for stream in self._positions.streams()}
        self._sorted = sorted(self._positions.names)
        self._born = defaultdict(list)
        for file in self._positions.files.values():
            self._born[file.born].append(file)
        for (path, generation), found in sorted(runs.items(), key=lambda item: item[0][1]):
            stream = known.get((path, generation))
            if stream is None:
                stream = Stream(path, generation)
                entries = sorted((entry for _, entry in found), key=lambda entry: entry.offset)
                written = bundles[found[-1][0]].modified
                self._attach(stream, entries, int(written.timestamp()) * 1_000_000_000)
            first = found[0][0]
            stream.since = first if stream.since is None else min(first, stream.since)
            stream.extent = max([stream.extent, *(entry.end for _, entry in found)])

    def _attach(self, stream: Stream, entries: Sequence[Entry], written_ns: int) -> None:
        """Find the file these bytes are of."""
        for file in self._candidates(stream.path, everywhere=entries[0].offset > 0):
            sent = self._matching(file, entries)
            if sent is not None:
                stream.sent = sent
                file.streams = sorted([*file.streams, stream], key=lambda each: each.generation)
                file.born = stream.path  # when it has another name now, it was renamed
                if entries[0].offset > 0:
                    self._headless.add(file)
                return
        headless = entries[0].offset > 0 and self._bundles.newest(stream.path) == stream.generation
        there = self._objects.standing.get(stream.path)
        if headless and there is not None and isinstance(there.owner, Former):
            there.owner.streams.append(stream)  # what comes behind the object of a path is of the same file
            return
        former = Former(stream.path, written_ns, [stream])
        self._positions.formers.append(former)
        if headless:
            self._headless.add(former)

    def _candidates(self, path: str, *, everywhere: bool) -> Iterator[Followed]:
        """Files that may have had this name; any when the first bytes stand in an object, maybe under any name."""
        names = self._positions.names
        begin, end = (bisect_left(self._sorted, path + after) for after in "./")  # `path.1`, `path.2`, ...
        related = [names[name] for name in (path, f"old/{path}", *self._sorted[begin:end]) if name in names]
        yield from related
        yield from self._born.get(path, ())
        if everywhere:
            yield from (file for file in names.values() if file not in related)

    def _matching(self, file: Followed, entries: Sequence[Entry]) -> int | None:
        """How far the file is in these runs from its begin on; None when they are not its bytes."""
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

    def _mark(self, file: Followed, end: int) -> None:
        """These bytes of the file were seen in the archive: know it by them from now on."""
        if end <= file.mark.edge_end:
            return
        try:
            file.mark = Mark.at(self._descriptors.get(file.identity, file.name), end)
        except (Vanished, OSError):
            return
