"""From a damaged place in a JSON array to the next event after it.

Invariants:
* reading goes on only where an event certainly begins; `resynchronise` says what makes it certain;
* the search after one damage ends after `_TRIES` places, and looks at `_HORIZON` bytes from each.
"""

from __future__ import annotations

import re

import msgspec

from .elements import MARGIN
from .window import Window

_HORIZON = 64 * 1024
"""Longest event that is recognised as the first one after damage."""
_TRIES = 10_000
"""Places tried after one damage (each 1 to 30 us): a list inside a Ray event has far fewer entries."""
_OBJECT = re.compile(rb"[,}\[][ \t\r\n]*+(?=\{)")


class _Envelope(msgspec.Struct):
    """What an event has and no part of one: the collectors that write arrays refuse events without it."""

    session: str = msgspec.field(name="sessionName")


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def resynchronise(text: Window, skip: int) -> bool:
    """Go to the next certain begin of an event after damage; False when none was found.

    Certain is: a whole object with a session name, as an element of a list. Lists inside events have no such objects,
    and inside a string their quotes would be escaped.
    """
    text.take(skip)
    for _ in range(_TRIES):
        text.fill(_HORIZON)
        end = min(text.at + _HORIZON, len(text.held))
        if _is_event(memoryview(text.held)[text.at : end]):
            return True
        before = _OBJECT.search(text.held, text.at, end)
        if before is None and end == len(text.held) and text.ended:
            text.at = end
            return False
        text.at = before.end() if before else end - MARGIN
    return False


def _is_event(data: memoryview) -> bool:
    try:
        _decode_envelope(data)
    except (RecursionError, UnicodeDecodeError):  # msgspec decodes the name's text without minding the rest
        return False
    except msgspec.DecodeError as error:
        return "trailing characters" in str(error)  # which msgspec only minds after it has decoded the event
    return True
