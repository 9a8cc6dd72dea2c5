"""Formatting of numbers, times and texts from Ray."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server import formatting

NOW = datetime(2026, 11, 19, 15, 4, 5, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (formatting.plain, ("a\x1b[31mb\x1b[0m\u202ec\x00",), "abc"),
        (formatting.clip, ("  two\n words ", 20), "two words"),
        (formatting.clip, ("abcdef", 4), "abc…"),
        (formatting.count, (1234567,), "1,234,567"),
        (formatting.count, (2.5,), "2.5"),
        (formatting.plural, (1, "task"), "1 task"),
        (formatting.plural, (0, "task"), "0 tasks"),
        (formatting.plural, (1024, "task"), "1,024 tasks"),
        (formatting.short, (9999,), "9,999"),
        (formatting.short, (61_234,), "61.2 k"),
        (formatting.short, (123_456,), "123 k"),
        (formatting.short, (2_900_000,), "2.9 M"),
        (formatting.size, (999,), "999 bytes"),
        (formatting.size, (1_500,), "1.5 KB"),
        (formatting.size, (250_000_000,), "250 MB"),
        (formatting.size, (10**16,), "10,000.0 TB"),
        (formatting.duration, (-1,), "0 ms"),
        (formatting.duration, (0.25,), "250 ms"),
        (formatting.duration, (59.9,), "59 s"),
        (formatting.duration, (60,), "1 min"),
        (formatting.duration, (96.7,), "1 min 36 s"),
        (formatting.duration, (HOUR - 1,), "59 min 59 s"),
        (formatting.duration, (HOUR + 61,), "1 h 01 min"),
        (formatting.duration, (DAY + 2 * HOUR,), "1 d 2 h"),
        (formatting.ago, (NOW + 1, NOW), "in the future"),
        (formatting.ago, (NOW - 59, NOW), "59 s ago"),
        (formatting.ago, (NOW - 2 * HOUR, NOW), "2 h ago"),
        (formatting.ago, (NOW - 90 * DAY, NOW), "2 months ago"),
        (formatting.ago, (NOW - 730 * DAY, NOW), "2 y ago"),
        (formatting.at, (NOW, NOW), "15:04"),
        (formatting.at, (NOW - DAY, NOW), "Nov 18, 15:04"),
        (formatting.at, (NOW - 365 * DAY, NOW), "Nov 19, 2025"),
        (formatting.clock, (NOW,), "15:04:05"),
        (formatting.day, (NOW,), "Nov 19, 2026"),
        (formatting.iso, (NOW,), "2026-11-19T15:04:05Z"),
        (formatting.utc, (NOW,), "2026-11-19 15:04:05 UTC"),
        (formatting.shell, ("a b'c",), "'a b'\"'\"'c'"),
        (formatting.percent, (1,), "100%"),
        (formatting.percent, (0.99999,), "99.9%"),
        (formatting.percent, (0.5,), "50%"),
        (formatting.pc, (1 / 3,), "33.333%"),
        (formatting.pc, (0.0,), "0%"),
        (formatting.widths, ([("a", 0), ("b", 1), ("c", 3)],), [("b", 0.0, 0.25), ("c", 0.25, 0.75)]),
        (formatting.widths, ([("a", 0)],), []),
    ],
)
def test_formatting(function: Callable[..., Any], arguments: tuple[Any, ...], expected: object) -> None:
    assert function(*arguments) == expected


@given(st.floats(allow_nan=False))
def test_any_moment_can_be_formatted(moment: float) -> None:
    assert formatting.iso(moment).endswith("Z")


@given(st.lists(st.integers(0, 10**9), max_size=5))
def test_the_parts_of_a_bar_fill_its_width(numbers: list[int]) -> None:
    laid_out = formatting.widths([(str(place), number) for place, number in enumerate(numbers)])
    assert sum(width for _, _, width in laid_out) == pytest.approx(1 if any(numbers) else 0)
    assert all(width >= 0.02 for _, _, width in laid_out)
