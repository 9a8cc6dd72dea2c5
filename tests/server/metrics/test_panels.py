"""Charts over HTTP: the panels of a session, the values of variables, and refusals that say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ray_history.archive import layout
from ray_history.metrics.dashboards import pack
from tests.metrics.dashboards import expressions
from tests.metrics.generated import INSTANCES, INTERVAL, START, cluster
from tests.server.metrics.recorded_sessions import OWNER, PATH, named, write_charted, write_metrics, write_recorded
from tests.server.serving import Answer, Served, served
from tests.server.ui.written_sessions import SESSION, end_long_ago, ran, write_session

SCRAPES = 60
LAST = START + (SCRAPES - 1) * INTERVAL
QUERIES = [query for query in expressions("2.60") if "ray_node_mem_" in query or "ray_node_network_receive" in query]
MEMORY = "grafana/api/dashboards/rayDefaultDashboard/panels/4"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("charted")
    store = write_charted(folder, cluster(QUERIES, scrapes=SCRAPES))
    odd = (
        b'{"uid": "odd", "panels": [{"type": "graph", "id": 1, "targets": [{"refId": "A", "expr": "ray_node_mem_used",'
        b' "legendFormat": "{{instance}}"}], "seriesOverrides": [{"alias": "/^10.*3:8080$/", "hiddenSeries": true}]},'
        b' {"type": "graph", "id": 2, "targets": [{"refId": "A", "expr": "ray_node_mem_used"}],'
        b' "seriesOverrides": [{"alias": "/(a+)+((/"}]}]}'
    )
    extra = {"odd_grafana_dashboard.json": odd}
    write_session(folder, ran(1, "work", START / 1000, START / 1000 + 5), cluster="odd")
    owner = layout.Cluster("default", "odd")
    write_metrics(store, named(cluster(QUERIES, scrapes=4), SESSION), owner)
    store.put(layout.metric_dashboards_key("", owner, SESSION), pack(extra))
    end_long_ago(folder)
    with served(store, folder / "cache") as running:
        yield running


def ask(server: Served, path: str, session: str = PATH, **parameters: Any) -> Answer:
    query = "&".join(f"{name.replace('_', '-')}={quote(str(value), safe='')}" for name, value in parameters.items())
    return server.get(f"{session}/{path}?{query}")


def panel(server: Served, path: str = MEMORY, session: str = PATH, **parameters: Any) -> Any:
    answer = ask(server, path, session, **parameters)
    assert answer.status == 200, answer.body
    return answer.json


def memory_panel(server: Served) -> str:
    """The panel that shows the memory of each node."""
    for number in range(1, 70):
        answer = ask(server, f"grafana/api/dashboards/rayDefaultDashboard/panels/{number}")
        if answer.status == 200 and answer.json["title"].startswith("Node Memory Usage (heap"):
            return f"grafana/api/dashboards/rayDefaultDashboard/panels/{number}"
    raise AssertionError("there is no such panel")


def test_a_panel_has_series_with_units_and_looks(server: Served) -> None:
    shown = panel(server, memory_panel(server))
    assert (shown["kind"], shown["unit"], shown["stacked"], shown["legend"]) == ("graph", "bytes", True, True)
    names = [series["name"] for series in shown["series"]]
    assert any(name.startswith("Memory Used (Host): 10.0.0.1:8080") for name in names), names
    most = next(series for series in shown["series"] if series["name"] == "MAX")
    assert (most["dashed"], most["stacked"], most["color"]) == (True, False, "#1F60C4")
    assert (shown["from_ms"], shown["to_ms"], shown["problems"]) == (START, LAST, [])
    assert shown["start_ms"] + (shown["steps"] - 1) * shown["step_ms"] == LAST
    assert all(len(series["values"]) == shown["steps"] for series in shown["series"])


def test_values_are_those_of_the_api(server: Served) -> None:
    shown = panel(server, memory_panel(server), width=300)
    (most,) = (series for series in shown["series"] if series["name"] == "MAX")
    times = {"start": shown["start_ms"] / 1000, "end": LAST / 1000, "step": shown["step_ms"] / 1000}
    found = panel(
        server,
        "prometheus/api/v1/query_range",
        query='sum(ray_node_mem_total_host{RayNodeType=~"head|worker"})',
        **times,
    )
    values = {float(time): float(value) for time, value in found["data"]["result"][0]["values"]}
    moments = [(shown["start_ms"] + step * shown["step_ms"]) / 1000 for step in range(shown["steps"])]
    assert most["values"] == [values.get(moment) for moment in moments]


def test_all_endpoints_have_values_at_the_end(server: Served) -> None:
    """The endpoints are scraped one after the other; after its last scrape each of them has no values any more."""
    found = panel(server, "prometheus/api/v1/query", query="count(up)")["data"]["result"]
    assert found[0]["value"][1] == str(len(INSTANCES))


def test_a_variable_selects_series(server: Served) -> None:
    path = memory_panel(server)
    for variable, value, expected in (
        ("var_Instance", INSTANCES[1], {INSTANCES[1]}),
        ("var_Instance", "$__all", set(INSTANCES)),
        ("var_SessionName", "another", set()),
    ):
        names = [series["name"] for series in panel(server, path, **{variable: value})["series"]]
        assert {each for each in INSTANCES if any(each in name for name in names)} == expected, value


def test_ranges_are_relative_to_the_end_of_the_session_or_to_the_moment(server: Served) -> None:
    path = memory_panel(server)
    shown = panel(server, path, **{"from": "now-5m", "to": "now"})
    assert (shown["from_ms"], shown["to_ms"]) == (LAST - 300_000, LAST)
    then = START + 400_000
    shown = panel(server, path, **{"from": "now-5m", "to": "now", "at": then})
    assert (shown["from_ms"], shown["to_ms"]) == (then - 300_000, then)
    shown = panel(server, path, at=then)
    assert (shown["from_ms"], shown["to_ms"]) == (START, then)
    shown = panel(server, path, at=START - 1000)
    assert shown["series"] == [], "nothing was recorded before that moment"


def test_a_panel_without_data_in_its_range_can_be_widened_to_the_session(server: Served) -> None:
    path = memory_panel(server)
    gone = {"var-Instance": INSTANCES[0], "from": START - 10_000_000, "to": START - 9_000_000}
    shown = panel(server, path, **gone)
    assert (shown["from_ms"], shown["widened"]) == (START, True), "a range outside of the session is all of it"
    early = {"from": START, "to": START + 1}
    assert panel(server, path, **early)["widened"] is False
    assert panel(server, path, whole=1, **early)["widened"] is False, "there are values at that moment"
    shown = panel(server, path, whole=1, **early, **{"var-SessionName": "another"})
    assert (shown["widened"], shown["series"]) == (True, [])


@pytest.mark.parametrize(
    ("path", "parameters", "status", "words"),
    [
        ("dashboards/nothing/panels/1", {}, 404, "no dashboard 'nothing'"),
        ("dashboards/rayDefaultDashboard/panels/9999", {}, 404, "no panel '9999'"),
        ("dashboards/rayDefaultDashboard/panels/x", {}, 404, "no panel 'x'"),
        ("dashboards/rayDefaultDashboard/panels/24", {"from": "yesterday"}, 400, "invalid time 'yesterday'"),
        ("dashboards/rayDefaultDashboard/panels/24", {"width": "wide"}, 400, "invalid width"),
        ("dashboards/rayDefaultDashboard/variables/nothing", {}, 404, "no variable 'nothing'"),
    ],
)
def test_refusals_say_what_is_wrong(server: Served, path: str, parameters: Any, status: int, words: str) -> None:
    answer = ask(server, f"grafana/api/{path}", **parameters)
    assert (answer.status, answer.json["result"]) == (status, False)
    assert words in answer.json["msg"]


def test_the_values_of_variables(server: Served) -> None:
    variables = "grafana/api/dashboards/rayDefaultDashboard/variables"
    assert panel(server, f"{variables}/Instance") == {"values": list(INSTANCES)}
    assert panel(server, f"{variables}/RayNodeType") == {"values": ["head", "worker"]}
    assert panel(server, f"{variables}/SessionName") == {"values": [SESSION]}


def test_charts_have_the_interval_of_the_scrapes(tmp_path: Path) -> None:
    often = cluster(QUERIES, scrapes=12)
    times = {INTERVAL * number: 2_000 * number for number in range(12)}
    scrapes = {
        instance: [(START + times[(time - START) // INTERVAL * INTERVAL], scrape) for time, scrape in found]
        for instance, found in often.scrapes.items()
    }
    with served(write_charted(tmp_path, replace(often, scrapes=scrapes)), tmp_path / "cache") as server:
        shown = panel(server, "grafana/api/dashboards/rayDefaultDashboard/panels/24")
        assert (shown["step_ms"], shown["steps"]) == (2_000, 12)


def test_the_range_of_the_session(server: Served) -> None:
    assert panel(server, "grafana/api/range") == {"from_ms": START, "to_ms": LAST, "may_grow": False}
    assert panel(server, "grafana/api/health")["database"] == "ok"


def test_patterns_of_a_dashboard_are_re2(server: Served) -> None:
    odd = "/s/default/odd/latest"
    shown = panel(server, "grafana/api/dashboards/odd/panels/1", odd)
    assert {series["name"]: series["hidden"] for series in shown["series"]} == {
        instance: instance.startswith("10.0.0.3") for instance in INSTANCES
    }
    shown = panel(server, "grafana/api/dashboards/odd/panels/2", odd)
    assert "invalid regular expression" in shown["problems"][0]
    assert shown["series"]


def test_a_session_without_metrics_says_how_to_record_them(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "work", 0, 5))
    with served(store, tmp_path / "cache") as server:
        answer = ask(server, MEMORY)
        assert answer.status == 404
        assert "No metrics of this session were recorded" in answer.json["msg"]
        assert "--metrics-interval" in answer.json["msg"]


def test_a_session_without_dashboards_has_no_charts_but_answers_queries(tmp_path: Path) -> None:
    store = write_recorded(tmp_path, cluster(["ray_tasks"], scrapes=3))
    with served(store, tmp_path / "cache") as server:
        assert "no dashboard" in ask(server, MEMORY).json["msg"]
        assert panel(server, "prometheus/api/v1/query", query="up")["data"]["result"]
    assert OWNER.name == "written"
