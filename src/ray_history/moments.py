"""Which moments are believed."""

from __future__ import annotations

EARLIEST, LATEST = 946_684_800, 4_102_444_800
"""The years 2000 to 2099, Unix seconds: clocks that were never set and broken times are outside."""


def is_moment(seconds: float) -> bool:
    """Whether Unix seconds are within the years 2000 to 2099."""
    return EARLIEST <= seconds < LATEST
