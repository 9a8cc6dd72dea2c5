"""A stream of bytes, read through a window that holds no more of it than is needed.

Invariants:
* `held[at:]` is what comes next in the stream, `offset` how much of it is behind us;
* chunks are asked for only when what is held does not do; what the source of them raises goes through;
* whatever asks for more, and `give_back`, may move what is held: a position in `held` is good until then.
"""

from __future__ import annotations

from collections.abc import Iterable

PIECE = 64 * 1024
"""Bytes looked at or passed on at a time: no call of the decompressor gives more, whatever a bomb holds."""


class Window:
    """The part of a stream of bytes that is being read: chunks come in when needed, what was read is let go."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._gone = iter(chunks), 0
        self.held, self.at, self.ended = b"", 0, False

    @property
    def offset(self) -> int:
        return self._gone + self.at

    @property
    def left(self) -> int:
        return len(self.held) - self.at

    def fill(self, size: int) -> bool:
        """Hold `size` bytes from here on; False when the stream has fewer left."""
        if self.left >= size or self.ended:
            return self.left >= size
        parts, held = [self.held[self.at :]], self.left
        while held < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            parts.append(chunk)
            held += len(chunk)
        self._gone += self.at
        self.held, self.at = b"".join(parts), 0
        return held >= size

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        self.fill(size)
        taken = self.held[self.at : self.at + size]
        self.at += len(taken)
        return taken

    def peek(self) -> int | None:
        return self.held[self.at] if self.fill(1) else None

    def give_back(self, data: bytes) -> None:
        """Undo a `take` in part; `data` may reach back to what was let go since."""
        if len(data) > self.at:
            self._gone -= len(data) - self.at
            self.held, self.at = data + self.held[self.at :], len(data)
        self.at -= len(data)

    def skip(self, these: bytes) -> int:
        """Go to the next byte that is none of `these`; returns the number of line ends passed."""
        lines = 0
        while self.peek() in frozenset(these):
            ahead = self.held[self.at : self.at + PIECE]
            passed = len(ahead) - len(ahead.lstrip(these))
            lines += ahead.count(b"\n", 0, passed)
            self.at += passed
        return lines
