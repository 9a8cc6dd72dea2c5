"""One element of a JSON array at a time, for where blocks of them do not do.

Invariants:
* an element is whole before it comes out: what is near to the end of the held text is only believed at the end of the
  file;
* an element that does not come out leaves the text at its begin, where the search for the next event sets out;
* the end of an element is never waited for beyond `Limits.max_event`.
"""

from __future__ import annotations

import re

import msgspec

from .events import SPACE, decode
from .problems import Kind, Limits
from .window import Window

MARGIN = 64
"""What is this near to the end of the held text may look different with the next block: a number, an escape, a gap."""
_POSITION = re.compile(r"(trailing characters )?\(byte (\d+)\)")


class Damage(Exception):
    """The array cannot be followed from here; the next event is to be looked for from `skip` bytes on."""

    def __init__(self, kind: Kind, detail: str, *, at: int = 0, skip: int = 0) -> None:
        self.kind, self.detail, self.at, self.skip = kind, detail, at, skip


def next_element(text: Window, limits: Limits) -> bytes:
    """The element here; the text is left at what follows it and its white space."""
    while True:
        end, fault = value_end(memoryview(text.held)[text.at :])
        if end > limits.max_event:
            raise Damage("too long", f"more than {limits.max_event} bytes; skipped", skip=limits.max_event)
        if end > text.left - MARGIN and not text.ended:
            text.fill(min(2 * text.left, limits.max_event + MARGIN + 1))
        elif fault is None:
            return text.take(end).strip(SPACE)
        elif end == text.left:
            raise Damage("truncated", "the file ends inside this element, or this element never ends", skip=1)
        else:
            raise Damage("broken", fault, at=end, skip=1)


def value_end(data: memoryview) -> tuple[int, str | None]:
    """Where the JSON value ends that `data` begin with, or where and why it cannot go on.

    msgspec tells it only in its message; the tests hold it to that.
    """
    try:
        decode(data)
    except RecursionError:
        return 0, "nested too deeply"
    except msgspec.DecodeError as error:
        position = _POSITION.search(str(error))
        if position is None:  # truncated
            return len(data), str(error)
        if position[1]:
            return int(position[2]) - 1, None  # it counts the first trailing character as read
        return int(position[2]), str(error)
    return len(data), None
