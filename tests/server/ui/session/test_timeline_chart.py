"""The timeline: what its bars count, and the geometry of bars and lanes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.ui.session.timeline_chart import MOST_BARS, StepCount, bars_of, lane, round_up, step_for

SECOND = 10**9


@given(st.integers(SECOND, 10**9 * SECOND))
def test_bars_are_few_and_cover_the_session(span: int) -> None:
    step = step_for(span)
    bars = -(-span // step)
    assert 1 <= bars <= MOST_BARS
    assert bars * step >= span


STEPS = st.tuples(
    st.one_of(st.none(), st.integers(-3, 30)),
    st.one_of(st.none(), st.integers(-3, 30)),
    st.booleans(),
    st.integers(1, 9),
)


@given(st.lists(STEPS, max_size=20), st.integers(1, 20 * SECOND))
def test_every_ended_task_is_in_one_bar_and_the_others_run_until_the_end(
    counts: list[tuple[int | None, int | None, bool, int]], span: int
) -> None:
    bars = bars_of([StepCount._make(count) for count in counts], 0, span, SECOND)
    began = sum(tasks for first, _, _, tasks in counts if first is not None)
    ended = [(bad, tasks) for first, last, bad, tasks in counts if first is not None and last is not None]
    assert sum(bar.failed for bar in bars) == sum(tasks for bad, tasks in ended if bad)
    assert sum(bar.finished for bar in bars) == sum(tasks for bad, tasks in ended if not bad)
    assert bars[-1].running == began - sum(tasks for _, tasks in ended)
    assert all(bar.running >= 0 for bar in bars)
    assert sum(bar.width for bar in bars) == pytest.approx(1)
    assert all(bar.begin >= 0 and bar.begin + bar.width <= 1 + 1e-9 for bar in bars)


def test_a_task_is_counted_in_every_interval_in_which_it_ran() -> None:
    counts = [StepCount(0, 2, False, 3), StepCount(1, 1, True, 2), StepCount(3, None, False, 1)]
    bars = bars_of(counts, 0, 5 * SECOND, SECOND)
    assert [(bar.failed, bar.finished, bar.running) for bar in bars] == [
        (0, 0, 3),
        (2, 0, 3),
        (0, 3, 0),
        (0, 0, 1),
        (0, 0, 1),
    ]


@given(st.integers(-100, 200), st.integers(-100, 200))
def test_lanes_stay_within_the_chart_and_are_visible(began: int, ended: int) -> None:
    it = lane("x", "x", began, ended, (0, 100), "f-ok")
    assert 0 <= it.begin < 1
    assert 0 < it.width <= 1 - it.begin + 1e-9


@given(st.integers(0, 10**7))
def test_the_axis_ends_at_a_close_round_number(most: int) -> None:
    top = round_up(most)
    assert top >= most
    assert top <= max(2, most * 2)
