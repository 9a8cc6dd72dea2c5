"""Dashboards of Grafana's JSON: those of five versions of Ray, and broken ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ray_history.metrics.grafana.dashboard import Dashboard, InvalidDashboard, read_dashboard
from tests.metrics.dashboards import VERSIONS, dashboards, panels


def read(**parts: Any) -> Dashboard:
    return read_dashboard(json.dumps({"uid": "x", "title": "X", **parts}))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_panel_of_ray_is_read(version: str) -> None:
    for name, written in dashboards(version).items():
        found = read_dashboard(json.dumps(written))
        expected = [panel for panel in panels(written["panels"]) if panel["type"] != "row"]
        shown = [panel for row in found.rows for panel in row.panels]
        assert [(panel.number, panel.title) for panel in shown] == [(each["id"], each["title"]) for each in expected], (
            name
        )
        assert not [panel for panel in shown if panel.problem]
        assert [len(panel.targets) for panel in shown] == [len(each["targets"]) for each in expected]
        assert all(panel.targets[0].expr for panel in shown)
        assert found.uid == written["uid"]


def test_the_panels_that_the_frontend_embeds_exist() -> None:
    for version in VERSIONS:
        found = read_dashboard(json.dumps(dashboards(version)["default_grafana_dashboard.json"]))
        assert found.panel(24).title.startswith("Node Count"), version  # type: ignore[union-attr]
        assert "Utilization" in found.panel(41).title, version  # type: ignore[union-attr]


def test_rows_are_those_of_the_page() -> None:
    found = read(
        panels=[
            {"type": "graph", "id": 1, "title": "before"},
            {"type": "row", "title": "closed", "collapsed": True, "panels": [{"type": "graph", "id": 2}]},
            {"type": "row", "title": "open", "panels": []},
            {"type": "graph", "id": 3},
            {"type": "row", "title": "empty", "panels": []},
        ]
    )
    rows = [(row.title, row.is_collapsed, [panel.number for panel in row.panels]) for row in found.rows]
    assert rows == [("", False, [1]), ("closed", True, [2]), ("open", False, [3])]


def test_kinds_units_and_limits() -> None:
    bars = {"type": "graph", "id": 1, "bars": True, "xaxis": {"mode": "series"}, "yaxes": [{"format": "s", "min": "0"}]}
    gauge = {"type": "gauge", "id": 2, "fieldConfig": {"defaults": {"unit": "percent", "max": 100, "min": 5}}}
    found = read(panels=[bars, gauge, {"type": "timeseries", "id": 3}])
    shown = [(panel.kind, panel.unit, panel.least, panel.most) for row in found.rows for panel in row.panels]
    assert shown == [("bars", "s", 0, None), ("gauge", "percent", 5, 100), ("graph", "", None, None)]


def test_a_panel_that_cannot_be_read_costs_no_other() -> None:
    found = read(
        panels=[{"type": "graph", "id": 1, "targets": "no list", "title": "broken"}, {"type": "graph", "id": 2}]
    )
    broken, whole = found.rows[0].panels
    assert "targets" in broken.problem
    assert (broken.number, broken.title, whole.number, whole.problem) == (1, "broken", 2, "")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"uid": NaN}', b"[" * 100_000, b"\xff"])
def test_what_is_no_dashboard_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidDashboard):
        read_dashboard(text)


def test_parts_of_a_wrong_type_are_as_if_absent() -> None:
    for parts in ({"panels": 1}, {"panels": [1, None]}, {"templating": []}, {"templating": {"list": [{"name": 1}, 2]}}):
        found = read(**parts)
        assert (found.rows, found.variables) == ((), ())
