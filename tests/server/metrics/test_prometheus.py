"""The API of Prometheus below a session answers like a real Prometheus, and its real client works with it."""

from __future__ import annotations

import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.generated import INTERVAL, START, Cluster, cluster
from tests.server.metrics.recorded_sessions import PATH, write_recorded
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import ran, write_session
from tests.support.prometheus import Prometheus, ask, program
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("prometheus")

SECOND = START // 1000
RANGE = {"start": SECOND, "end": SECOND + 600, "step": 15}


@pytest.fixture(scope="module")
def invented() -> Cluster:
    return cluster(["ray_tasks", "sum by (State)(ray_tasks)", "ray_node_mem_used"], scrapes=60)


@pytest.fixture(scope="module")
def oracle(prometheus: Prometheus, invented: Cluster) -> Prometheus:
    # The server adds the name of the cluster, as KubeRay's pod monitors do.
    prometheus.write([({**labels, "ray_io_cluster": "demo"}, samples) for labels, samples in invented.series()])
    return prometheus


@pytest.fixture(scope="module")
def server(invented: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("recorded")
    with served(write_recorded(folder, invented), folder / "cache") as running:
        yield running


def answers(server: Served, oracle: Prometheus, path: str, **parameters: Any) -> tuple[Any, Any]:
    """Our answer and Prometheus', as status and body."""
    ours = ask(f"{server.url}{PATH}/prometheus/api/v1/{path}", **parameters)
    return ours, oracle.ask(path, **parameters)


def without_up(answer: tuple[int, dict[str, Any]]) -> tuple[int, Any]:
    """Without what a collector adds: the series `up`."""
    status, body = answer
    return status, body | {"data": [each for each in body["data"] if each != "up"]}


def by_metric(answer: tuple[int, dict[str, Any]]) -> tuple[int, Any]:
    """The result in an order that both have."""
    status, body = answer
    result = body["data"]["result"]
    if result and isinstance(result[0], dict):
        body["data"]["result"] = sorted(result, key=lambda series: sorted(series["metric"].items()))
    return status, body


@pytest.mark.parametrize(
    "query",
    [
        "ray_tasks",
        "sum(ray_tasks)",
        "1 / 3",
        "1e20",
        "1e21",
        "1e-7",
        "0 / 0",
        "-1 / 0",
        "time()",
        '"text"',
        "vector(1.5)",
        "vector(1e-7)",
        "vector(1e-6)",
        "vector(123456789e12)",
        "vector(1e21)",
        "vector(-0.1)",
    ],
)
def test_values_are_written_alike(server: Served, oracle: Prometheus, query: str) -> None:
    ours, theirs = answers(server, oracle, "query", query=query, time=SECOND + 300.5)
    assert by_metric(ours) == by_metric(theirs)


@pytest.mark.parametrize("query", ["ray_tasks", "ray_tasks * 2", "1", "nothing"])
def test_ranges_are_written_alike(server: Served, oracle: Prometheus, query: str) -> None:
    ours, theirs = answers(server, oracle, "query_range", query=query, **RANGE)
    assert by_metric(ours) == by_metric(theirs)


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("labels", {}),
        ("labels", {"match[]": "ray_tasks"}),
        ("label/State/values", {}),
        ("label/__name__/values", {}),
        ("label/instance/values", {"match[]": 'ray_tasks{State="RUNNING"}'}),
        ("label/nothing/values", {}),
    ],
)
def test_labels_are_listed_alike(server: Served, oracle: Prometheus, path: str, parameters: dict[str, Any]) -> None:
    if path == "labels":
        ours, theirs = answers(server, oracle, path, **parameters)
    else:  # Prometheus takes only GET here
        query = "&".join(f"{name}={value}" for name, value in parameters.items()).replace('"', "%22")
        got = server.get(f"{PATH}/prometheus/api/v1/{path}?{query}")
        ours, theirs = (got.status, got.json), oracle.get(f"{path}?{query}")
    assert without_up(ours) == theirs


def test_series_are_listed_alike(server: Served, oracle: Prometheus) -> None:
    selectors = ["ray_tasks", "ray_node_mem_used"]
    ours, theirs = answers(server, oracle, "series", **{"match[]": selectors})
    assert ours[0] == theirs[0] == 200
    assert sorted(ours[1]["data"], key=str) == sorted(
        (dict(sorted(series.items())) for series in theirs[1]["data"]), key=str
    )


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("query", {"query": "sum("}),
        ("query", {}),
        ("query", {"query": "1", "time": "yesterday"}),
        ("query_range", {"query": "1", "start": 10, "end": 5, "step": 1}),
        ("query_range", {"query": "1", "start": 5, "end": 10, "step": 0}),
        ("query_range", {"query": "1", "start": 5, "end": 10, "step": "soon"}),
        ("query_range", {"query": "1", "start": 5, "end": 10, "step": "9" * 5000 + "s"}),
        ("query_range", {"query": "1", "start": 5, "end": 1e6, "step": 1}),
        ("query_range", {"query": '"text"', **RANGE}),
        ("query", {"query": "ray_tasks + on(nothing) ray_tasks", "time": SECOND + 300}),
        ("series", {}),
        ("series", {"match[]": "rate(x[1m])"}),
    ],
)
def test_refusals_are_alike(server: Served, oracle: Prometheus, path: str, parameters: dict[str, Any]) -> None:
    ours, theirs = answers(server, oracle, path, **parameters)
    assert ours[0] == theirs[0]
    assert (ours[1]["status"], ours[1]["errorType"]) == (theirs[1]["status"], theirs[1]["errorType"])
    assert ours[1]["error"]


def test_now_is_the_last_scrape(server: Served, invented: Cluster) -> None:
    answer = server.get(f"{PATH}/prometheus/api/v1/query?query=time()").json
    assert answer["data"]["result"][0] == pytest.approx(invented.end / 1000)


def test_now_is_the_moment_that_is_viewed(server: Served) -> None:
    moment = START + 20 * INTERVAL
    answer = server.get(f"{PATH}/prometheus/api/v1/query?query=time()&at={moment}").json
    assert answer["data"]["result"][0] == pytest.approx(moment / 1000)


@pytest.mark.parametrize(
    "arguments",
    [("instant", "vector(1)"), ("range", "sum(ray_tasks)"), ("series", "--match=ray_tasks"), ("labels", "State")],
)
def test_promtool_works(server: Served, arguments: tuple[str, str]) -> None:
    url = f"{server.url}{PATH}/prometheus"
    verb, argument = arguments
    times = [f"--start={SECOND}", f"--end={SECOND + 600}", "--step=1m"] if verb == "range" else []
    places = [url, argument] if verb != "series" else [argument, url]
    done = subprocess.run(
        [program("promtool"), "query", verb, *times, *places], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_session_without_metrics_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("unrecorded")
    with served(write_session(folder, ran(1, "work", SECOND, SECOND + 5)), folder / "cache") as running:
        answer = running.get(f"{PATH}/prometheus/api/v1/query?query=up")
    assert answer.status == 404
    assert answer.json["errorType"] == "not_found"
    assert "no metrics of this session were recorded" in answer.json["error"]


def test_other_posts_are_refused(server: Served) -> None:
    assert server.get(f"{PATH}/prometheus/api/v1/query?query=1", method="POST").status == 405


def test_forms_are_limited(server: Served) -> None:
    status, answer = ask(f"{server.url}{PATH}/prometheus/api/v1/query", query="x" * 20_000)
    assert (status, answer["result"]) == (413, False)


def test_federation_shows_what_has_a_value(server: Served, invented: Cluster) -> None:
    query = urllib.parse.urlencode({"match[]": ["ray_tasks", "up"]}, doseq=True)
    answer = server.get(f"{PATH}/prometheus/federate?{query}")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    _, body = ask(f"{server.url}{PATH}/prometheus/api/v1/query", query='{__name__=~"ray_tasks|up"}')
    assert len(lines) == len(body["data"]["result"]) > 0
    assert all(int(line.rpartition(" ")[2]) <= invented.end for line in lines)
    assert server.get(f"{PATH}/prometheus/federate").status == 400


def test_a_real_prometheus_scrapes_the_federation(server: Served, tmp_path: Path) -> None:
    scrapes = f"""
scrape_configs:
- job_name: history
  scrape_interval: 1s
  honor_labels: true
  honor_timestamps: false
  metrics_path: {PATH}/prometheus/federate
  params: {{"match[]": ["ray_tasks"]}}
  static_configs: [{{targets: ["127.0.0.1:{server.port}"]}}]
"""
    _, ours = ask(f"{server.url}{PATH}/prometheus/api/v1/query", query="ray_tasks")
    with Prometheus(tmp_path, scrapes) as theirs:
        theirs.wait_until_ready()
        until(lambda: bool(theirs.ask("query", query="ray_tasks")[1]["data"]["result"]), "it has scraped")
        _, found = theirs.ask("query", query="ray_tasks")
    assert _values(found) == _values(ours)


def _values(answer: dict[str, Any]) -> dict[frozenset[tuple[str, str]], str]:
    return {frozenset(row["metric"].items()): row["value"][1] for row in answer["data"]["result"]}
