"""Steps and ticks of charts over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.ui.charts import DAY, HOUR, STEPS, Tick, round_step, ticks


@pytest.mark.parametrize(
    ("span", "most", "step"),
    [
        (1, 90, 60),
        (90 * 60, 90, 60),
        (90 * 60 + 1, 90, 120),
        (24 * HOUR, 8, 3 * HOUR),
        (7 * DAY, 90, 2 * HOUR),
        (30 * DAY, 90, 12 * HOUR),
        (90 * 365 * DAY, 90, 365 * DAY),
        (91 * 365 * DAY, 90, -(-91 * 365 * DAY // 90)),
    ],
)
def test_round_step_is_the_shortest_that_gives_few_parts(span: int, most: int, step: int) -> None:
    assert round_step(span, STEPS, most) == step


@given(st.integers(1, 10**12), st.integers(1, 200))
def test_a_step_never_gives_more_parts_than_allowed(span: int, most: int) -> None:
    assert -(-span // round_step(span, STEPS, most)) <= most


def test_ticks_are_at_multiples_of_the_step_within_the_room() -> None:
    assert ticks(25, 125, 20, str, room=0.8) == [
        Tick(0.15, "40"),
        Tick(0.35, "60"),
        Tick(0.55, "80"),
        Tick(0.75, "100"),
    ]
    assert ticks(20, 120, 50, str, room=1.0) == [Tick(0.3, "50"), Tick(0.8, "100")]
    assert ticks(1, 9, 10, str, room=1.0) == []
