"""Variables, names and styles of series, and ranges."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ray_history.metrics.grafana.dashboard import Dashboard, Override, read_dashboard
from ray_history.metrics.grafana.names import series_name
from ray_history.metrics.grafana.overrides import styles
from ray_history.metrics.grafana.times import InvalidTime, TimeRange, moment, shown_range, step, steps
from ray_history.metrics.grafana.variables import filled_in, texts
from tests.metrics.dashboards import dashboards

HOUR = TimeRange(1_790_000_000_000, 1_790_003_600_000)
NOW = HOUR.end


def with_variables(*variables: dict[str, Any]) -> Dashboard:
    return read_dashboard(json.dumps({"uid": "x", "templating": {"list": list(variables)}}))


def filled(query: str, chosen: dict[str, list[str]], *variables: dict[str, Any]) -> str:
    return filled_in(query, texts(with_variables(*variables), chosen, HOUR, 30_000))


EMPTY = Dashboard("x", "", (), ())
ALL = {"type": "query", "name": "Instance", "includeAll": True, "multi": True, "allValue": ".+"}
NODES = {"type": "custom", "name": "Kind", "includeAll": True, "query": "head, worker"}
WINDOW = {"type": "interval", "name": "window", "query": "30s,1m,5m", "current": {"value": "1m"}}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, '"(.+)"'),
        ({"Instance": ["$__all"]}, '"(.+)"'),
        ({"Instance": ["undefined"]}, '"(.+)"'),
        ({"Instance": ["a"]}, '"(a)"'),
        ({"Instance": ["10.0.0.1:80"]}, r'"(10\\.0\\.0\\.1:80)"'),
        ({"Instance": ["a", "b|c"]}, r'"((a|b\\|c))"'),
        ({"Instance": ['x"} or {y="']}, r'"(x\"\\} or \\{y=\")"'),
    ],
)
def test_values_are_escaped_for_a_regular_expression_in_a_string(chosen: dict[str, list[str]], expected: str) -> None:
    assert filled('"($Instance)"', chosen, ALL) == expected


def test_all_of_a_list_is_each_of_it() -> None:
    assert filled("${Kind:regex} [[Kind]]", {}, NODES) == "(head|worker) (head|worker)"
    assert filled("$Kind", {"Kind": ["head"]}, NODES) == "head"


def test_intervals() -> None:
    query = "x[$window] x[$__interval] x[$__rate_interval] x[$__range] $__interval_ms $nothing"
    assert filled(query, {}, WINDOW) == "x[1m] x[30s] x[60s] x[3600s] 30000 $nothing"
    assert filled("$window", {"window": ["5m"]}, WINDOW) == "5m"


def test_no_variable_of_rays_queries_is_left() -> None:
    for name, written in dashboards("2.60").items():
        found = read_dashboard(json.dumps(written))
        values = texts(found, {}, HOUR, 15_000)
        for row in found.rows:
            for panel in row.panels:
                for target in panel.targets:
                    assert not re.search(r"\$\w", filled_in(target.expr, values)), (name, panel.title, target.expr)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{instance}} ({{ State }})", "a:1 (RUNNING)"),
        ("{{instance, State}}", "a:1, RUNNING"),
        ("{{State, nothing}}", "RUNNING"),
        ("MAX", "MAX"),
        ("", 'm{State="RUNNING", instance="a:1"}'),
        ("__auto", 'm{State="RUNNING", instance="a:1"}'),
    ],
)
def test_series_have_the_names_of_their_legend(template: str, expected: str) -> None:
    assert series_name(template, {"__name__": "m", "instance": "a:1", "State": "RUNNING"}, "m") == expected


def test_a_series_without_labels_has_the_name_of_its_query() -> None:
    assert series_name("", {}, "sum(m)") == "sum(m)"


def test_overrides_are_for_names_and_for_patterns() -> None:
    asked = list[str]()

    def matching(pattern: str, names: object) -> list[bool]:
        asked.append(pattern)
        return [bool(re.search(pattern, name)) for name in names]  # type: ignore[attr-defined]

    overrides = [
        Override("MAX", dashes=True, color="#1F60C4", stack=False, fill=0),
        Override("/FINISHED|FAILED/", hidden_series=True),
        Override("/^done .*[0-9]$/i", color="#000000"),
    ]
    names = ["MAX", "MAX + PENDING", "State: FAILED", "Done 7"]
    first, other, failed, done = styles(overrides, names, matching)
    assert (first.is_dashed, first.color, first.is_stacked, first.fill) == (True, "#1F60C4", False, 0)
    assert other.is_stacked
    assert not other.is_dashed
    assert failed.is_hidden
    assert done.color == "#000000"
    assert asked == ["(?i)^done .*[0-9]$"], "plain words need no regular expression"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("now-5m", NOW - 300_000),
        ("now-2d/d", NOW - 172_800_000),
        ("1790000000000", HOUR.start),
        ("2026-09-21T15:13:20Z", 1_790_003_600_000),
        ("", None),
        ("undefined", None),
    ],
)
def test_moments(text: str, expected: int | None) -> None:
    assert moment(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "now+5m", "5m", "-1", "now-", "9" * 16, "0001-01-01T00:00:00+99:99"])
def test_other_texts_are_no_moments(text: str) -> None:
    with pytest.raises(InvalidTime):
        moment(text, NOW)


def test_a_range_is_within_the_session() -> None:
    assert shown_range("now-5m", "now", HOUR) == TimeRange(NOW - 300_000, NOW)
    assert shown_range("now-30d", "", HOUR) == HOUR
    assert shown_range("1", "2", HOUR) is None
    assert shown_range("now", "now-5m", HOUR) is None
    moment_of_one_scrape = TimeRange(NOW, NOW)
    assert shown_range("now-5m", "now", moment_of_one_scrape) == moment_of_one_scrape


@pytest.mark.parametrize(("points", "expected"), [(10, 600_000), (200, 20_000), (1000, 15_000), (0, 3_600_000)])
def test_steps_are_round_and_end_at_the_end(points: int, expected: int) -> None:
    found = step(HOUR, points)
    times = steps(HOUR, found)
    assert found == expected
    assert times[-1] == HOUR.end
    assert times[0] >= HOUR.start
    assert times[0] - HOUR.start < found


def test_steps_and_rates_follow_the_interval_of_scrapes() -> None:
    assert step(TimeRange(NOW - 60_000, NOW), 200, 5_000) == 5_000
    assert step(HOUR, 1000, 60_000) == 60_000
    assert texts(EMPTY, {}, HOUR, 5_000, 5_000)["__rate_interval"] == "20s"
