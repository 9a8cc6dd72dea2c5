"""Whose turn it is to be uploaded: no file keeps the new lines of others waiting, however large it is.

In a round each file has one turn, with a share of the bytes that a round may have. Files with few new bytes go first,
then those with a backlog, the one whose last turn is longest ago before the others. A round that takes too long ends
early.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from .scanner import Identity
from .state import TrackedFile

ROUND_BYTES = 64 * 1024 * 1024
"""Log bytes in one round, unless very many files have new lines."""

LEAST_SHARE = 64 * 1024
"""Log bytes of each file in each round, if it has as many. Files with less go first."""

ROUND_SECONDS = 10.0
"""After that a round ends, and new lines go first again."""


class Round:
    """One round."""

    def __init__(self, files: list[TrackedFile]) -> None:
        self.files = files
        """In the order of their turns."""
        self.share = 0
        """Bytes that the file whose turn it is may have."""
        self.is_cut = False
        """Whether some files had no turn."""
        self.backlog: set[Identity] = set()
        """Files that have more than their share."""

    def turns(self) -> Iterator[TrackedFile]:
        """The files, one after the other, until the time is over."""
        over, left = time.monotonic() + ROUND_SECONDS, ROUND_BYTES
        for number, file in enumerate(self.files):
            pending = pending_bytes(file)
            # One file with a backlog has its turn in any case, so that each has one some time.
            if pending > LEAST_SHARE and self.backlog and time.monotonic() >= over:
                self.is_cut = True
                return
            self.share = max(LEAST_SHARE, left // (len(self.files) - number))
            yield file
            left = max(0, left - min(self.share, pending))


class Turns:
    """Remembers who had a turn."""

    def __init__(self) -> None:
        self._number = 0
        self._last: dict[Identity, int] = {}
        """By file with a backlog: the round in which it had its last turn."""

    def begin(self, files: Collection[TrackedFile]) -> Round:
        self._number += 1
        return Round(sorted(files, key=self._order))

    def end(self, ended: Round, unsent: Collection[TrackedFile]) -> None:
        """Note the turns of a round; `unsent` are the files that still have new bytes."""
        waiting = {file.identity for file in unsent} - ended.backlog
        self._last = {each: number for each, number in self._last.items() if each in waiting}
        self._last |= dict.fromkeys(ended.backlog, self._number)

    def _order(self, file: TrackedFile) -> tuple[int, int]:
        pending = pending_bytes(file)
        return (self._last.get(file.identity, 0) + 1 if pending > LEAST_SHARE else 0), pending


def pending_bytes(file: TrackedFile) -> int:
    """Bytes that are not in the archive."""
    return max(0, file.size - file.stored)
