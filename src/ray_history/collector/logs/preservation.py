"""Keeping what is left of files that are no more, and what stands where another file's content must go.

A file that is gone is kept under its own name while no other file has it, else as `<name>.until-<time of its last
write>`. Bytes that are in tails are put together with its whole object, as a reader of the archive would do it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from ray_history.archive.log_files import LogFile
from ray_history.archive.log_tails import Entry, Tail, stitch

from .bundles import Bundles
from .objects import Content, Objects, Standing
from .state import Followed, Former, Positions


class Keeping:
    """Moves contents inside the archive to names where nothing overwrites them."""

    def __init__(
        self,
        positions: Positions,
        bundles: Bundles,
        objects: Objects,
        report: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        self._positions = positions
        self._bundles = bundles
        self._objects = objects
        self._report = report
        self._check = check

    def keep_object(self, name: str) -> None:
        """Copy nobody's object, or one whose file cannot be stored under its new name now (a circle of names)."""
        there = self._objects.standing[name]
        owner = there.owner
        until = there.until_ns if owner is None else owner.mtime_ns
        kept, done = self._objects.keep_name(name, until, there.size, self._objects.content(name))
        if not done:
            self._objects.copy(name, kept)
        self._objects.take(kept, Standing(there.size, None, owner, until, known=there.known or owner is None))
        self._objects.forsake(name)
        if owner is not None and owner.whole is not None:
            owner.whole = msgspec.structs.replace(owner.whole, name=kept, etag=None)

    def keep_former(self, former: Former) -> None:
        """Store in one object what is left of a file that is no more."""
        whole = former.whole
        extent = max((stream.extent for stream in former.streams), default=0)
        if not (whole is not None and self._is_sure(former) and whole.size >= extent):
            self._put_together(former)
        there = self._objects.standing.get(whole.name) if whole else None
        if whole is not None and there is not None and there.owner is former:
            self._objects.release(whole.name, former.mtime_ns)
        self._positions.formers.remove(former)
        self._positions.save_soon()

    def _put_together(self, former: Former) -> None:
        files, tails = self._bundles.tails_of(former.streams)
        begin = self._begin(former, tails)
        if not tails or (begin is None and self._stand_somewhere(tails)):
            return  # a whole object had them, before an older state file came back
        info = self._objects.info(begin) if begin is not None else None
        reader = files.open(LogFile("", former.name, 0, None, info, tuple(tails)))
        if reader.gaps:
            self._report(f"log {former.name} is kept without {len(reader.gaps)} ranges that are not there")
        target, done = self.target(former, reader.size, reader.read)
        size = reader.size
        if not done:
            size = self._objects.upload(target, self._timed(reader.stream()))
            self._positions.counters.bytes_uploaded += size
            self._positions.counters.whole_uploads += 1
        for problem in files.problems:
            self._report(problem)
        is_sure = self._is_sure(former)
        self._objects.take(target, Standing(size))
        self._objects.release(target, former.mtime_ns)
        if is_sure and begin is not None and begin != target:
            self._objects.forsake(begin)

    def target(self, file: Former | Followed, size: int, content: Content) -> tuple[str, bool]:
        """Where a file that is no more is kept, and whether it stands there already."""
        name = file.name
        there = self._objects.at(name)
        newest = self._bundles.newest(name)
        own = not newest or any((s.path, s.generation) == (name, newest) for s in file.streams)
        if own and name not in self._positions.names and name not in self._objects.reserved:
            if there is None or there.stale or (there.owner is file and there.known):
                return name, False
            if there.owner is None and there.size == size and self._objects.begins(name, size, content):
                return name, True
        return self._objects.keep_name(name, file.mtime_ns, size, content)

    def _begin(self, former: Former, tails: Sequence[Tail]) -> str | None:
        """The object with the file's first bytes, if there is one; after a start that may have to be found out."""
        if former.whole is not None and self._is_sure(former):
            return former.whole.name
        if not stitch(None, tails, lambda _entry: False).gaps:
            return None  # the tails have it all
        for name in dict.fromkeys([*(stream.path for stream in reversed(former.streams)), former.name]):
            there = self._objects.at(name)
            if there is None or there.stale or there.owner not in (None, former):
                continue
            newest = any((s.path, s.generation) == (name, self._bundles.newest(name)) for s in former.streams)
            if not newest and not any(tail.entry.end <= there.size for tail in tails):
                continue  # nothing to compare, and a newer file had that name: its object is not ours
            if stitch(there.size, tails, partial(self._has, name)).whole_end:
                return name
        return None

    def _stand_somewhere(self, tails: Sequence[Tail]) -> bool:
        """Whether bytes whose begin is nowhere to be found are in another name's object, as half-deleted ones are."""
        entries = [tail.entry for tail in tails]
        if not entries or min(entry.offset for entry in entries) == 0:
            return False
        end = max(entry.end for entry in entries)
        large_enough = [name for name, there in self._objects.standing.items() if there.size >= end and not there.stale]
        return any(all(self._has(name, entry) for entry in entries) for name in large_enough)

    def _is_sure(self, former: Former) -> bool:
        there = self._objects.standing.get(former.whole.name) if former.whole else None
        return there is not None and there.owner is former and there.known

    def _has(self, name: str, entry: Entry) -> bool:
        return zlib.crc32(self._objects.content(name)(entry.offset, entry.end)) == entry.crc32

    def _timed(self, source: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in source:
            self._check()
            yield chunk
