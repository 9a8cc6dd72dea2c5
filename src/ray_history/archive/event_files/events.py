"""What an event is: one valid JSON object in UTF-8, as bytes.

`decode` checks the syntax of a value without building it, and lets its encoding pass: hence `is_utf8` beside it.
"""

from __future__ import annotations

import codecs

import msgspec

from .problems import DEFAULT, Kind

SPACE = b" \t\r\n"
OPEN, CLOSE, BRACE, COMMA = b"[]{,"
decode = msgspec.json.Decoder(msgspec.Raw).decode


def fault_of(data: bytes) -> tuple[Kind, str] | None:
    """What keeps `data` from being an event."""
    try:
        decode(data)
    except msgspec.DecodeError as error:
        return "broken", str(error)
    except RecursionError:
        return "broken", "nested too deeply"
    if data[0] != BRACE:
        return "not an object", f"begins with {chr(data[0])!r}"
    return None if is_utf8(data) else ("not utf-8", "holds bytes that are no UTF-8 text")


def is_utf8(data: bytes) -> bool:
    """msgspec does not look at the encoding of text that it only passes on."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), DEFAULT.block):  # piecewise: one emoji makes a str four times its bytes
            decoder.decode(data[start : start + DEFAULT.block])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
