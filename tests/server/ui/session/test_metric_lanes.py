"""The charts of metrics under the timeline, and the memory of a node before something went wrong there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.rebuilt import START, job, job_life
from tests.server.metrics.recorded_sessions import PATH
from tests.server.serving import Served, served
from tests.server.ui.markup import Element, parsed
from tests.server.ui.session.charted import FAILED_AT, LENGTH, write_charted
from tests.server.ui.written_sessions import ran, write_session
from tests.support.chromium import Chromium
from tests.support.prometheus import ask

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
NAMES = ["CPU", "Memory", "GPU", "GPU memory", "Object store", "Tasks", "Network"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("charted")
    with served(write_charted(folder), folder / "cache") as running:
        running.get(f"{PATH}/api/version")
        yield running


@pytest.fixture(scope="module")
def page(server: Served) -> Element:
    answer = server.get(f"{PATH}/_session", BROWSER)
    assert answer.status == 200
    return parsed(answer.body)


def charts(page: Element) -> dict[str, Element]:
    """The charts of metrics by name."""
    labels = {each.attributes.get("aria-label", "").partition(":")[0]: each for each in page.all("svg", "chart")}
    return {name: each for name, each in labels.items() if name in NAMES}


def test_there_is_a_chart_for_each_kind_of_resource(page: Element) -> None:
    found = charts(page)
    assert list(found) == NAMES
    assert found["Memory"].attributes["aria-label"] == "Memory: mean at most 64 %, highest at most 97 %"
    assert found["Tasks"].attributes["aria-label"] == "Tasks: running at most 12, waiting at most 40"


def test_each_of_several_gpus_has_a_line(page: Element) -> None:
    assert [len(charts(page)[name].all("path", "device")) for name in ("GPU", "GPU memory", "CPU")] == [2, 2, 0]
    notes = [each.text for each in page.all("span", "key")]
    assert "192.0.2.3 GPU 0 at most 90 %" in notes
    assert "192.0.2.3 GPU 1 at most 60 %" in notes


def points(chart: Element, look: str) -> list[tuple[float, float]]:
    """The corners of a line, as shares of the chart."""
    (path,) = chart.all("path", look)
    corners = re.findall(r"[ML](\d+) ([\d.]+)", path.attributes["d"])
    return [(int(x) / 1000, 1 - float(y) / 40) for x, y in corners]


def test_lines_are_what_promql_answers(server: Served, page: Element) -> None:
    start = START / 1e9
    for at, share in points(charts(page)["Memory"], "stroke")[::20]:
        moment = start + at * LENGTH
        query = "max(ray_node_mem_used / ray_node_mem_total)"
        status, answer = ask(f"{server.url}{PATH}/prometheus/api/v1/query", query=query, time=moment)
        assert status == 200
        (series,) = answer["data"]["result"]
        assert float(series["value"][1]) == pytest.approx(share, abs=0.05)


def test_the_axis_is_that_of_the_timeline(page: Element) -> None:
    (tracks,) = page.all("div", "tracks")
    first, last = (int(each) for each in tracks.attributes["data-tracks"].split(",")[:2])
    assert (first, last) == (START // 10**6, START // 10**6 + LENGTH * 1000)
    assert max(at for at, _ in points(charts(page)["Memory"], "stroke")) == pytest.approx(
        (LENGTH - 15) / LENGTH, abs=0.01
    )


def test_failures_and_lost_nodes_are_marked_with_the_memory_of_their_node(page: Element) -> None:
    marks = charts(page)["Memory"].all("a", "mark")
    assert [mark.attributes["aria-label"] for mark in marks] == [
        "Node worker 2 was lost at 20:07:30. Memory was at 97 % on worker 2, 40 s before.",
        "OUT_OF_MEMORY in score at 20:06:43. Memory was at 97 % on worker 2, 8 s before.",
    ]
    assert marks[1].all("line", "m-failed")[0].attributes["x1"] == f"{FAILED_AT / LENGTH * 100:.3f}%".replace("0%", "%")
    for chart in charts(page).values():
        assert len(chart.all("line", "m-failed")) == 1
        assert len(chart.all("line", "m-lost")) == 1
        assert len(chart.all("line", "m-job")) >= 1


def test_the_headline_says_that_memory_was_nearly_full(server: Served, page: Element) -> None:
    headline = server.get(f"{PATH}/_digest").json["headline"]
    assert headline["text"].startswith("Memory was at 97 % on worker 2, 40 s before. ")
    assert headline["text"] in page.text
    (failures,) = [each for each in page.all("section") if each.attributes.get("id") == "failures"]
    assert "Memory was at 97 % on worker 2, 8 s before" in failures.text


def test_the_headline_does_not_blame_memory_that_was_free(tmp_path: Path) -> None:
    with served(write_charted(tmp_path, memory=0.6, gpus=False), tmp_path / "cache") as server:
        assert "Memory" not in server.get(f"{PATH}/_digest").json["headline"]["text"]
        page = parsed(server.get(f"{PATH}/_session", BROWSER).body)
    assert list(charts(page)) == [name for name in NAMES if "GPU" not in name]
    assert "60 % on worker 2" in page.text


def test_a_session_without_metrics_says_how_to_record_them(tmp_path: Path) -> None:
    store = write_session(tmp_path, [*ran(1, "work", 1, 5), job(at=1), job_life("CREATED", 1)])
    with served(store, tmp_path / "cache") as server:
        server.get(f"{PATH}/api/version")
        page = parsed(server.get(f"{PATH}/_session", BROWSER).body)
    assert "No metrics of this session were recorded." in page.text
    assert "--metrics-interval" in page.text


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("width", [1400, 390])
def test_a_mark_shows_the_memory_on_focus(chromium: Chromium, server: Served, width: int) -> None:
    tip = "document.querySelectorAll('.mark')[1].querySelector('.tip')"
    with chromium.page(width=width) as page:
        page.open(f"{server.url}{PATH}/_session")
        page.wait("document.querySelector('.mark')")
        assert page.value(f"getComputedStyle({tip}).visibility") == "hidden"
        page.value("document.querySelectorAll('.mark')[1].focus()")
        assert page.value(f"getComputedStyle({tip}).visibility") == "visible"
        assert page.value(f"{tip}.textContent") == "97 % on worker 2, 8 s before"
        box = "document.querySelectorAll('.mark')[1].querySelector('.tip').getBoundingClientRect()"
        assert page.value(f"{box}.left >= 0 && {box}.right <= {width}")
        boxes = "[...document.querySelectorAll('svg.plot')].map(each => each.getBoundingClientRect())"
        assert page.value(f"new Set({boxes}.map(box => box.left + ',' + box.right)).size") == 1
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.complaints == []
