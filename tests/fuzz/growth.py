"""Whether a function takes linear time, judged by how its time grows with its input, not by the time itself."""

from __future__ import annotations

import time
from collections.abc import Callable

SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10)
_NOISE = 0.2
"""Seconds of processor time below which a measurement says nothing about growth."""
_FACTOR = 12
"""Four times the input may take this many times as long: linear time takes 4, with caches that overflow up to 10, and
quadratic time 16."""
_ATTEMPTS = 3


class NotLinear(AssertionError):
    """Four times the input took much more than four times as long."""


def assert_linear(function: Callable[[bytes], object], made: Callable[[int], bytes]) -> None:
    """Call the function with inputs of growing size until one takes long enough to be measured."""
    before = 0.0
    for size in SIZES:
        data = made(size)
        taken = _seconds(function, data)
        if taken >= _NOISE:
            if before and taken > _FACTOR * before:
                _confirm(function, made, size)
            return
        before = max(taken, _NOISE / _FACTOR / 4)


def _confirm(function: Callable[[bytes], object], made: Callable[[int], bytes], size: int) -> None:
    """Measure again: the best of several attempts is hardly disturbed by other processes."""
    small, large = (min(_seconds(function, made(each)) for _ in range(_ATTEMPTS)) for each in (size // 4, size))
    if large > max(_NOISE, _FACTOR * small):
        raise NotLinear(f"{size // 4} bytes take {small:.3f} s, {size} bytes {large:.3f} s: {made(200)[:200]!r}")


def _seconds(function: Callable[[bytes], object], data: bytes) -> float:
    begin = time.thread_time()
    function(data)
    return time.thread_time() - begin
