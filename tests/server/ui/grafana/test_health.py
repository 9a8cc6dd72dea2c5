"""What the Ray Dashboard asks first: whether there are charts, and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster
from ray_history.server.app import AppConfig
from tests.metrics.generated import cluster
from tests.server.live.place import place
from tests.server.metrics.recorded_sessions import PATH, named, write_charted, write_dashboards, write_metrics
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, end_long_ago, ran, write_session
from tests.support.kube_stand_in import ray_cluster

QUERIES = ["ray_tasks", "ray_node_mem_used"]
THROUGH_RAY = {"Content-Type": "application/json"}
BARE = "/s/default/bare/latest"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("health")
    store = write_charted(folder, cluster(QUERIES, scrapes=3))
    write_session(folder, ran(1, "work", 0, 5), cluster="bare")
    write_session(folder, ran(1, "work", 0, 5), cluster="undrawn")
    write_metrics(store, named(cluster(QUERIES, scrapes=3), SESSION), Cluster("default", "undrawn"))
    write_dashboards(store, "2.49", Cluster("default", "bare"))
    end_long_ago(folder)
    with served(store, folder / "cache", AppConfig(base_path="/history")) as running:
        yield running


def health(server: Served, path: str, headers: dict[str, str] | None = None) -> Any:
    answer = server.get(path, headers)
    assert answer.status == 200
    return answer.json


def test_charts_are_below_the_session(server: Served) -> None:
    answer = health(server, f"/history{PATH}/api/grafana_health")
    assert (answer["result"], answer["data"]["grafanaHost"]) == (True, f"/history{PATH}/grafana")
    assert answer["data"]["sessionName"] == SESSION
    assert answer["data"]["dashboardUids"]["serveLlmSglang"] == "rayServeLlmSglangDashboard"
    assert answer["data"]["dashboardUids"]["default"] == "rayDefaultDashboard"
    assert health(server, f"/history{PATH}/api/prometheus_health")["result"] is True


def test_the_path_names_the_session_however_it_was_entered(server: Served) -> None:
    expected = f"/history{PATH}/grafana"
    assert health(server, "/history/s/default/written/latest/api/grafana_health")["data"]["grafanaHost"] == expected
    entered = {"Cookie": f"cluster_name=written; cluster_namespace=default; session_name={SESSION}"}
    assert health(server, "/history/api/grafana_health", entered)["data"]["grafanaHost"] == expected
    assert health(server, f"/history{PATH}/api/grafana_health?at=0")["data"]["grafanaHost"] == expected


def test_a_ray_that_forwards_requests_finds_the_charts_below_its_own_root(server: Served) -> None:
    answer = health(server, f"/history{PATH}/api/grafana_health", THROUGH_RAY)
    assert answer["data"]["grafanaHost"] == "/grafana"


@pytest.mark.parametrize(
    ("name", "words"), [("bare", "No metrics of this session were recorded"), ("undrawn", "can be queried")]
)
def test_a_session_without_charts_is_disabled_with_the_reason(server: Served, name: str, words: str) -> None:
    answer = health(server, f"/history/s/default/{name}/latest/api/grafana_health")
    assert (answer["result"], answer["data"]["grafanaHost"]) == (True, "DISABLED")
    assert words in answer["msg"]
    assert health(server, f"/history/s/default/{name}/latest/api/prometheus_health")["result"] is False


def test_pages_may_be_embedded_by_this_server_only(server: Served) -> None:
    for path, status in (
        ("d/rayDefaultDashboard/", 200),
        ("d-solo/rayDefaultDashboard/x?panelId=24", 200),
        ("d/x", 404),
    ):
        answer = server.get(f"/history{PATH}/grafana/{path}")
        assert answer.status == status
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert b"<script>" not in answer.body
        assert b"style=" not in answer.body


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("s/default/written/latest/grafana/d/nothing", "no dashboard nothing"),
        ("s/default/written/latest/grafana/d-solo/rayDefaultDashboard?panelId=9999", "no panel 9999"),
        ("s/default/written/latest/grafana/d-solo/rayDefaultDashboard", "no panel"),
        ("s/default/bare/latest/grafana/d/rayDefaultDashboard", "No metrics of this session were recorded"),
    ],
)
def test_pages_that_do_not_exist_say_so(server: Served, path: str, words: str) -> None:
    answer = server.get(f"/history/{path}")
    assert answer.status == 404
    assert words in answer.body.decode()


def test_titles_cannot_leave_the_page(tmp_path: Path) -> None:
    store = write_charted(tmp_path, cluster(QUERIES, scrapes=3))
    with served(store, tmp_path / "cache") as server:
        page = server.get(f"{PATH}/grafana/d/rayDefaultDashboard?var-x=%3Cscript%3E&theme=%22%3E%3Cscript%3E").body
        assert b"<script>" not in page


def test_a_head_without_grafana_is_replaced_by_the_recorded_metrics(tmp_path: Path) -> None:
    store = write_charted(tmp_path, cluster(QUERIES, scrapes=3))
    with place(store, tmp_path) as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        owner = Cluster("default", "demo")
        write_session(tmp_path, ran(1, "work", 0, 5), cluster="demo")
        write_metrics(store, named(cluster(QUERIES, scrapes=3), SESSION), owner)
        write_dashboards(store, "2.60", owner)
        here.until_known()
        json = {"Content-Type": "application/json"}
        no = (500, json, b'{"result": false, "msg": "Grafana healthcheck failed", "data": {}}')
        yes = (200, json, b'{"result": true, "msg": "", "data": {"grafanaHost": "http://192.0.2.7:3000"}}')
        live = "/s/default/demo/live/api"
        here.head.answers = {"/api/grafana_health": no, "/api/prometheus_health": no}
        answer = here.server.get(f"{live}/grafana_health")
        assert answer.json["data"]["grafanaHost"] == f"/s/default/demo/{SESSION}/grafana"
        assert "has no Grafana" in answer.headers["x-ray-history-note"]
        assert here.server.get(f"{live}/prometheus_health").json["result"] is True
        for other in (b'{"result": true, "data": {"grafanaHost": "DISABLED"}}', b'{"result": "yes"}', b"<html>"):
            here.head.answers = {"/api/grafana_health": (200, json, other)}
            assert here.server.get(f"{live}/grafana_health").json["data"]["grafanaHost"].startswith("/s/default/demo/")
        here.head.answers = {"/api/grafana_health": yes, "/api/prometheus_health": yes}
        assert here.server.get(f"{live}/grafana_health").json["data"]["grafanaHost"] == "http://192.0.2.7:3000"
        assert here.server.get(f"{live}/version").status == 200, "the head is not taken for unreachable"
