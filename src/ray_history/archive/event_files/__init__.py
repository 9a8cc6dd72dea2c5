"""Event files as bytes: every event a file still holds comes out, everything it lost is named.

Invariants:
* the content decides the format, never the name: gzip or plain, then JSON lines or JSON arrays;
* an event comes out exactly as stored, without the white space around it, in the file's order, and is always one
  valid JSON object in UTF-8; anything else becomes a `Problem` with its position, never an exception, never silence;
* only the source of the chunks raises: a store that fails is not a file that ends early;
* how the body was cut into chunks never changes the result;
* memory stays within a few blocks and a few times the longest event, whatever the file unpacks to.

A file's way through the modules; each says in `problems` what it could not read:

    chunks -> gunzip -> lines  -> events        `reading` looks at the content and chooses the way
                     -> arrays -> events        with `elements` and `rescue` through damage
    events -> writing -> chunks
"""

from __future__ import annotations

from .problems import DEFAULT, Kind, Limits, Problem
from .reader import read_event_blocks, read_events, read_text
from .writer import encode_event_chunks, encode_events

__all__ = [
    "DEFAULT",
    "Kind",
    "Limits",
    "Problem",
    "encode_event_chunks",
    "encode_events",
    "read_event_blocks",
    "read_events",
    "read_text",
]
