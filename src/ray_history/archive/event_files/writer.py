"""Writes the body of an event file: JSON lines, compressed or not.

Invariants:
* equal events give equal bytes, at any time and on any CPU;
* each event is one line, unchanged except for white space outside its strings.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from .window import DEFAULT


def encode_events(events: Iterable[bytes], *, compress: bool = True) -> bytes:
    """The body of an event file as in layout generation C."""
    return b"".join(encode_event_chunks(events, compress=compress))


def encode_event_chunks(events: Iterable[bytes], *, compress: bool = True) -> Iterator[bytes]:
    """The same body in pieces, for `Store.put_stream`: only about a block is held in memory."""
    # zlib writes no time into the gzip header and the same bytes on every CPU; isal may not, and compresses 30 % less.
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16) if compress else None
    lines = bytearray()
    for event in events:
        lines += event.replace(b"\n", b" ")  # in valid JSON a bare line feed is only white space between tokens
        lines += b"\n"
        if len(lines) >= DEFAULT.block:
            yield packer.compress(lines) if packer else bytes(lines)
            lines.clear()
    yield packer.compress(lines) + packer.flush() if packer else bytes(lines)
