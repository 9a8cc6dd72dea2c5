"""Event files as bytes: reads every event that a file still holds and reports what it lost.

Invariants:
* the content decides the format, never the name: gzip or plain, then JSON lines or JSON arrays;
* events are returned exactly as stored, without the white space around them, in the file's order; each is one valid
  JSON object in UTF-8; anything else becomes a `Problem` with its position, never an exception;
* only the source of the chunks raises: a failing store is not mistaken for a file that ends early;
* how the body is cut into chunks never changes the result;
* memory stays within a few blocks and a few times the longest event, however large the decompressed file is.

    chunks -> gunzip -> json_lines  -> events        `reader` chooses by the content
                     -> json_arrays -> events
    events -> writer -> chunks
"""

from __future__ import annotations

from .reader import read_event_blocks, read_events, read_text
from .window import DEFAULT, Kind, Limits, Problem
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
