"""The body of a file out of its events: JSON lines, packed or not.

Invariants:
* equal events give equal bytes, whatever the time and the CPU;
* each event is one line, and reads back as it was but for white space outside its strings.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from .problems import DEFAULT


def encode_events(events: Iterable[bytes], *, compress: bool = True) -> bytes:
    """The body of a file of JSON lines, as layout generation C has it; equal events give equal bytes."""
    return b"".join(encode_event_chunks(events, compress=compress))


def encode_event_chunks(events: Iterable[bytes], *, compress: bool = True) -> Iterator[bytes]:
    """The same body piece by piece, for `Store.put_stream`: only about a block is held."""
    # zlib writes no time into the gzip header and the same bytes on every CPU; isal may not, and packs 30 % worse.
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16) if compress else None
    lines = bytearray()
    for event in events:
        lines += event.replace(b"\n", b" ")  # in valid JSON a bare line feed is only ever space between tokens
        lines += b"\n"
        if len(lines) >= DEFAULT.block:
            yield packer.compress(lines) if packer else bytes(lines)
            lines.clear()
    yield packer.compress(lines) + packer.flush() if packer else bytes(lines)
