"""Waiting for conditions instead of for seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT = 240.0
"""Seconds after which a test counts as hanging, a little before pytest says so. It is no measure of speed."""


def until(
    condition: Callable[[], T],
    what: str = "what the test waits for",
    *,
    pause: float = 0.05,
    limit: float | None = None,
) -> T:
    """Return the first true value of the condition; `what` names it in the failure."""
    limit = limit or LIMIT
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit:.0f} s: {what}"
        time.sleep(pause)
    return value
