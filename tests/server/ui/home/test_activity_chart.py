"""The chart above the list: its intervals, bars, ticks and summary."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.server.ui.home.activity_chart import activity_chart
from ray_history.server.ui.home.query import RANGES, SessionQuery
from ray_history.server.ui.home.rows import Row

NOW = datetime(2026, 11, 19, 15, 4, 5, tzinfo=UTC).timestamp()
HOUR, DAY = 3600, 86400


def row(ago: float, *, failed: int = 0) -> Row:
    return Row(Session(Cluster("ns", "c"), f"s{ago}", int(NOW - ago)), "ended", None, failed=failed)


def test_without_sessions_in_the_range_there_is_no_chart() -> None:
    assert activity_chart([], SessionQuery(), NOW) is None
    assert activity_chart([row(2 * HOUR)], SessionQuery(range="1h"), NOW) is None


@pytest.mark.parametrize(
    ("range_", "step", "count", "ticks"),
    [
        ("1h", 60, 61, ["14:10", "14:20", "14:30", "14:40", "14:50", "15:00"]),
        ("24h", 1800, 49, ["18:00", "00:00", "06:00", "12:00"]),
        ("7d", 7200, 85, ["Fri 13", "Sat 14", "Sun 15", "Mon 16", "Tue 17", "Wed 18", "Thu 19"]),
        ("30d", 43200, 61, ["Oct 22", "Oct 29", "Nov 5", "Nov 12", "Nov 19"]),
    ],
)
def test_a_range_has_round_steps_and_ticks(range_: str, step: int, count: int, ticks: list[str]) -> None:
    chart = activity_chart([row(60)], SessionQuery(range=range_), NOW)
    assert chart is not None
    assert (chart.step, chart.count, [tick.text for tick in chart.ticks]) == (step, count, ticks)
    assert chart.begin % step == 0


def test_without_a_range_the_chart_covers_all_sessions() -> None:
    chart = activity_chart([row(60), row(700 * DAY)], SessionQuery(), NOW)
    assert chart is not None
    assert (chart.step, len(chart.bars)) == (30 * DAY, 2)
    assert chart.begin <= NOW - 700 * DAY


@given(st.lists(st.integers(0, 800 * DAY), min_size=1, max_size=30), st.sampled_from(sorted(RANGES)))
def test_every_session_of_the_range_is_in_one_bar(agos: list[int], range_: str) -> None:
    rows = [row(ago, failed=ago % 2) for ago in agos]
    chart = activity_chart(rows, SessionQuery(range=range_), NOW)
    inside = [each for each in rows if not RANGES[range_] or each.started >= NOW - RANGES[range_]]
    if not inside:
        assert chart is None
        return
    assert chart is not None
    counts = [int(bar.title.split(": ")[1].split()[0]) for bar in chart.bars]
    assert sum(counts) == len(inside)
    assert all(0 <= bar.x < 1 for bar in chart.bars)
    assert all(abs(bar.top + bar.succeeded + bar.failed - chart.height) < 1e-9 for bar in chart.bars)
    assert max(bar.succeeded + bar.failed for bar in chart.bars) == pytest.approx(50)


def test_a_bar_links_to_the_sessions_of_its_interval() -> None:
    query = SessionQuery(q="train", range="24h", after="x")
    chart = activity_chart([row(HOUR, failed=1), row(HOUR + 1)], query, NOW)
    assert chart is not None
    (bar,) = chart.bars
    begin = datetime.fromtimestamp(int(NOW - HOUR) // chart.step * chart.step, UTC)
    assert bar.link.startswith(f"?q=train&range=24h&from={begin:%Y-%m-%dT%H%%3A%M}")
    assert bar.title.endswith(": 2 sessions, 1 with failures")
    assert bar.succeeded == bar.failed == 25


def test_the_summary_names_the_interval_with_most_failures() -> None:
    rows = [row(DAY), row(DAY, failed=1), row(3 * DAY, failed=1), row(3 * DAY, failed=1), row(6 * DAY)]
    chart = activity_chart(rows, SessionQuery(range="7d"), NOW)
    assert chart is not None
    assert chart.summary == "Sessions started per 2 h, 5 in total; most with failures at Mon Nov 16, 14:00: 2"


@pytest.mark.parametrize(
    ("begin", "end", "selected"),
    [
        (None, None, None),
        (NOW - DAY, None, "right part"),
        (None, NOW - DAY, "left part"),
        (NOW + 9 * DAY, None, None),
    ],
)
def test_the_selected_time_range_is_marked(begin: float | None, end: float | None, selected: str | None) -> None:
    chart = activity_chart([row(2 * DAY), row(60)], SessionQuery(range="7d", begin=begin, end=end), NOW)
    assert chart is not None
    match selected:
        case None:
            assert chart.selected is None
        case "right part":
            assert chart.selected is not None
            assert 0 < chart.selected[0] < chart.selected[1] == 1
        case "left part":
            assert chart.selected is not None
            assert 0 == chart.selected[0] < chart.selected[1] < 1
