"""Charts in a real browser: in the real Ray Dashboard, and on pages of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.history.rebuilt import NODE
from tests.metrics.dashboards import expressions
from tests.metrics.generated import INTERVAL, START, cluster
from tests.server.metrics.recorded_sessions import PATH, named, write_charted, write_dashboards, write_metrics
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, end_long_ago, ran, write_session
from tests.support.axe import Axe
from tests.support.captured import captured, write_archive
from tests.support.chromium import Chromium, Page

pytestmark = pytest.mark.xdist_group("browser")

SCRAPES = 80
LAST = START + (SCRAPES - 1) * INTERVAL
WORDS = (
    "ray_node_mem_",
    "ray_node_cpu_",
    "ray_tasks",
    "network_receive",
    "active_nodes",
    "ray_serve_deployment_request",
)
DASHBOARD = f"{PATH}/grafana/d/rayDefaultDashboard/?orgId=1&kiosk=1&refresh=5s&from=now-5m&to=now"
SOLO = f"{PATH}/grafana/d-solo/rayDefaultDashboard/default-dashboard?orgId=1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("charts")
    queries = [query for query in expressions("2.60") if any(word in query for word in WORDS)]
    store = write_charted(folder, cluster(queries, scrapes=SCRAPES))
    with served(store, folder / "cache") as running:
        assert running.get(f"{PATH}/api/version").status == 200
        yield running


@pytest.fixture(scope="module")
def tab(chromium: Chromium) -> Iterator[Page]:
    with chromium.page() as page:
        yield page


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """A tab of normal size; the visited pages must have no errors."""
    resize(tab, 1400, 1000)
    yield tab
    wrong, tab.complaints = tab.complaints, []
    assert wrong == []


def resize(page: Page, width: int, height: int) -> None:
    page.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


def idle(page: Page) -> None:
    """Wait until no panel that is visible is being loaded."""
    page.wait("document.querySelector('[data-drawn], .words') && !document.querySelector('[aria-busy]')")


def panel_number(server: Served, title: str) -> int:
    page = server.get(DASHBOARD).body.decode()
    before = page[: page.index(f'aria-label="{title}')]
    return int(before.rpartition('data-panel="')[2].partition('"')[0])


def answer(server: Served, number: int, query: str = "") -> dict[str, Any]:
    found = server.get(f"{PATH}/grafana/api/dashboards/rayDefaultDashboard/panels/{number}?{query}")
    assert found.status == 200
    body: dict[str, Any] = found.json
    return body


FRAME = "[...document.querySelectorAll('iframe')][{number}]?.contentDocument"
PAINTED = """(page => {
  const canvas = page.querySelector('canvas'), pixels = canvas.getContext('2d');
  const { data } = pixels.getImageData(0, 0, canvas.width, canvas.height), colors = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 200) colors.add([data[at], data[at + 1], data[at + 2]].join());
  }
  return colors.size;
})"""
"""The number of colors in the first chart of a document."""
LEGEND = "[...document.querySelectorAll('.legend tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"


def test_pages_of_the_ray_dashboard_have_charts(page: Page, server: Served) -> None:
    page.open(f"{server.url}{PATH}/#/overview")
    for number in (0, 1):
        frame = FRAME.format(number=number)
        page.wait(f"{frame}.querySelector('[data-drawn]')")
        assert page.value(f"{PAINTED}({frame})") > 4
    assert "No metrics" not in page.value("document.querySelector('.hbar').innerText")
    page.value("location.hash = '#/metrics'")
    frame = FRAME.format(number=0)
    page.wait(f"{frame}.querySelectorAll('[data-drawn] canvas').length > 2")
    assert page.value(f"{frame}.querySelector('h1').textContent") == "Default Dashboard"
    assert page.value("document.querySelector('[data-metrics]')") is None
    page.value("location.hash = '#/serve'")
    page.wait(f"{frame}.querySelector('[data-panel], .words')")


def test_pages_of_serve_and_of_a_job_have_charts(page: Page, tmp_path: Path) -> None:
    """With samples from another time than the job's, so that its chart shows the whole session."""
    words = ("ray_serve_num_", "ray_serve_http_", "autoscaler_")
    queries = [query for query in expressions("2.60") if any(word in query for word in words)]
    owner, session = Cluster("default", "demo"), captured().session
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, owner)
    write_metrics(store, named(cluster(queries, scrapes=20), session), owner, session)
    write_dashboards(store, "2.60", owner, session)
    end_long_ago(tmp_path)
    with served(store, tmp_path / "cache") as server:
        page.open(f"{server.url}/s/default/demo/{session}/#/serve")
        for number in range(3):
            frame = FRAME.format(number=number)
            page.wait(f"{frame}.querySelector('.plot')")
            page.value(f"document.querySelectorAll('iframe')[{number}].scrollIntoView()")
            page.wait(f"{frame}.querySelector('[data-drawn]')")
            assert page.value(f"{PAINTED}({frame})") > 4
        page.value("location.hash = '#/jobs/04000000'")
        frame = FRAME.format(number=0)
        page.wait(f"{frame}.querySelector('h3').textContent === 'Node Count' && {frame}.querySelector('.plot')")
        page.value("document.querySelector('iframe').scrollIntoView()")
        page.wait(f"{frame}.querySelector('[data-drawn]')")
        assert "whole session" in page.value(f"{frame}.querySelector('.note').textContent")
        page.open("about:blank")


def test_charts_end_at_the_moment_of_the_slider(page: Page, server: Served) -> None:
    then = START + 600_000
    page.open(f"{server.url}{PATH}/?at={then}#/metrics")
    frame = FRAME.format(number=0)
    page.wait(f"{frame}.querySelector('[data-drawn]')")
    # In the time zone that the frontend chooses.
    assert page.value(f"{frame}.querySelector('[data-range]').textContent").endswith(":23:20")
    page.wait(f"!{frame}.querySelector('[aria-busy]')")


def test_a_chart_says_that_its_range_is_another(page: Page, server: Served) -> None:
    number = panel_number(server, "Node Memory Usage (heap")
    page.open(f"{server.url}{SOLO}&panelId={number}&from=1600000000000&to=1600000100000&timezone=Nowhere/Land")
    page.wait("document.querySelector('[data-drawn]')")
    assert "this is the whole session" in page.value("document.querySelector('.note').textContent")


def test_numbers_are_those_of_the_queries(page: Page, server: Served) -> None:
    number = panel_number(server, "Node Memory Usage (heap")
    page.open(f"{server.url}{SOLO}&theme=light&panelId={number}&from=now-10m&to=now&timezone=undefined&refresh")
    page.wait("document.querySelector('[data-drawn]')")
    chart = answer(server, number, f"from=now-10m&to=now&width={page.value('innerWidth')}")
    shown = {row[0]: row[1:] for row in page.value(LEGEND)}
    moments = [chart["start_ms"] + step * chart["step_ms"] for step in range(chart["steps"])]
    query = 'sum(ray_node_mem_total_host{RayNodeType=~"head|worker"})'
    values = range_of(server, query, moments[0], moments[-1], chart["step_ms"])
    expected = [max(values), sum(values) / len(values), values[-1]]
    assert shown["MAX"] == [page.value(f"writer('bytes')({value!r})") for value in expected]
    assert page.value("document.querySelector('.uplot canvas').clientHeight") > 100


def range_of(server: Served, query: str, start: int, end: int, step: int) -> list[float]:
    parameters = f"query={quote(query)}&start={start / 1000}&end={end / 1000}&step={step / 1000}"
    found = server.get(f"{PATH}/prometheus/api/v1/query_range?{parameters}").json["data"]["result"]
    return [float(value) for _, value in found[0]["values"]]


def test_a_click_in_the_legend_hides_a_series(page: Page, server: Served) -> None:
    number = panel_number(server, "Node Memory Usage (heap")
    page.open(f"{server.url}{SOLO}&theme=dark&panelId={number}")
    page.wait("document.querySelector('[data-drawn]')")
    colors = page.value(f"{PAINTED}(document)")
    hidden = "document.querySelectorAll('.legend .off').length"
    before = page.value(hidden)
    page.click(".legend [aria-pressed=true]")
    page.wait(f"{hidden} === {before + 1}")
    assert page.value(f"{PAINTED}(document)") != colors
    assert page.value("document.activeElement.matches('.legend button')"), "the focus stays"


def test_dragging_zooms_all_charts_and_one_can_go_back(page: Page, server: Served) -> None:
    page.open(f"{server.url}{DASHBOARD}&timezone=Asia/Tokyo")
    page.wait("document.querySelectorAll('[data-drawn] .u-over').length > 1")
    idle(page)
    assert page.value("document.querySelector('[data-range]').textContent").startswith("21 Sept 2026, 23:13:20")
    x, y, width, height = page.value(
        "(r => [r.x, r.y, r.width, r.height])(document.querySelector('.u-over').getBoundingClientRect())"
    )
    page.drag([(x + width * share, y + height / 2) for share in (0.5, 0.6, 0.75)])
    page.wait("!document.querySelector('[data-back]').hidden")
    idle(page)
    seconds = "(x => Math.round(x.max - x.min))(uPlot.sync('charts').plots[{}].scales.x)"
    assert 290 <= page.value(seconds.format(0)) <= 300, "a quarter of 20 minutes"
    assert page.value(seconds.format(1)) == page.value(seconds.format(0))
    page.click("[data-back]")
    page.wait("document.querySelector('[data-back]').hidden")
    idle(page)
    page.wait(f"{seconds.format(0)} === {round((LAST - START) / 1000)}")
    page.value("document.querySelector('[data-times]').value = 'now-300s now'")
    page.value("document.querySelector('[data-times]').dispatchEvent(new Event('change'))")
    idle(page)
    page.wait(f"{seconds.format(0)} === 300")


def test_the_keyboard_moves_the_cursor_and_zooms(page: Page, server: Served) -> None:
    number = panel_number(server, "Node Memory Usage (heap")
    page.open(f"{server.url}{SOLO}&panelId={number}")
    page.wait("document.querySelector('[data-drawn]')")
    press = (
        "document.querySelector('.plot').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{}', bubbles: true }}))"
    )
    page.value("document.querySelector('.plot').focus()")
    page.value(press.format("Home"))
    page.wait("document.querySelector('.tip').checkVisibility()")
    assert "14:13" in page.value("document.querySelector('.tip').textContent")
    page.value(press.format("ArrowRight"))
    page.value(press.format("+"))
    page.wait("range.earlier.length === 1")
    idle(page)
    page.value(press.format("Escape"))
    page.wait("range.earlier.length === 0")
    idle(page)
    page.click(".quiet")
    page.wait("document.querySelector('.values')")
    chart = answer(server, number, "width=1400")
    assert page.value("document.querySelectorAll('.values tbody tr').length") == chart["steps"]


def test_a_variable_is_picked(page: Page, server: Served) -> None:
    page.open(f"{server.url}{DASHBOARD}")
    picker = "[...document.querySelectorAll('.pickers label')].find(one => one.textContent.startsWith('Instance'))"
    page.wait(f"{picker}?.querySelectorAll('option').length === 4")
    page.value(f"{picker}.querySelector('select').value = '10.0.0.2:8080'")
    page.value(f"{picker}.querySelector('select').dispatchEvent(new Event('change'))")
    idle(page)
    shown = page.value("document.querySelector('main').textContent")
    assert "10.0.0.2:8080" in shown
    assert "10.0.0.1:8080" not in shown


def test_charts_are_drawn_while_observers_are_silent(chromium: Chromium, server: Served) -> None:
    """As in a tab in the background."""
    silent = "class { observe() {} unobserve() {} disconnect() {} }"
    script = f"window.IntersectionObserver = window.ResizeObserver = {silent}; window.requestAnimationFrame = () => 0;"
    with chromium.page() as page:
        page.command("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.open(f"{server.url}{DASHBOARD}")
        page.wait("document.querySelectorAll('[data-drawn]').length > 2")
        assert page.complaints == []


def test_a_session_that_is_written_is_drawn_again(page: Page, tmp_path: Path) -> None:
    now = time.time()
    ledger = {"role": "head", "started": now - 60, "alive_until": now + 3600, "ended": None}
    store = write_session(tmp_path, ran(1, "work", now - 60, now - 50), ledgers={NODE: ledger})
    recorded = named(cluster([query for query in expressions("2.60") if "ray_tasks" in query], scrapes=40), SESSION)
    beginning = {instance: scrapes[:20] for instance, scrapes in recorded.scrapes.items()}
    write_metrics(store, replace(recorded, scrapes=beginning))
    write_dashboards(store, "2.60")
    with served(store, tmp_path / "cache", recheck=0.1) as server:
        page.open(f"{server.url}{SOLO}&panelId=26")
        end = "uPlot.sync('charts').plots[0].scales.x.max"
        page.wait(f"{end} === {(START + 19 * INTERVAL) / 1000}")
        write_metrics(store, recorded)
        look = "document.dispatchEvent(new Event('visibilitychange'))"
        page.wait(f"({look}, {end} === {(START + 39 * INTERVAL) / 1000})")
        page.open("about:blank")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_pages_are_accessible_and_fit(page: Page, axe: Axe, server: Served, theme: str, width: int) -> None:
    resize(page, width, 900)
    page.open(f"{server.url}{DASHBOARD}&theme={theme}")
    page.wait(
        "document.querySelectorAll('[data-drawn]').length > 0 && document.querySelector('.pickers select option')"
    )
    idle(page)
    assert axe.grave_findings(page) == []
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    columns = (
        "new Set([...document.querySelectorAll('.panel')].slice(0, 4).map(one => one.getBoundingClientRect().x)).size"
    )
    assert page.value(columns) == (1 if width == 390 else 2)


def test_units_are_written_as_in_grafana(page: Page, server: Served) -> None:
    page.open(f"{server.url}{SOLO}&panelId=24")
    for unit, value, text in (
        ("bytes", 1536, "1.5 KiB"),
        ("bytes", 0, "0 B"),
        ("Bps", 12_345_678, "12.35 MB/s"),
        ("GBs", 1.5, "1.5 GB/s"),
        ("s", 0.0125, "12.5 ms"),
        ("s", 90, "1.5 min"),
        ("ms", 1500, "1.5 s"),
        ("percent", 33.3333, "33.33%"),
        ("%", 100, "100%"),
        ("percentunit", 0.256, "25.6%"),
        ("celsius", 54, "54 °C"),
        ("mwatt", 250_000, "250 W"),
        ("short", 1_234_567, "1.235 Mil"),
        ("none", 1_234_567, "1234567"),
        ("tasks", 12, "12 tasks"),
        ("cores", 1500, "1.5 K cores"),
        ("ops", 3, "3 ops/s"),
        ("constructor", 1, "1 constructor"),
        ("", -2.5, "-2.5"),
    ):
        assert page.value(f"writer({json.dumps(unit)})({value})") == text
    page.wait("document.querySelector('[data-drawn], .words')")


def test_gaps_add_nothing_to_a_stack(page: Page, server: Served) -> None:
    page.open(f"{server.url}{SOLO}&panelId=24")
    series = """[[1, null, null, 2], [null, 5, null, 5], [7, 7, 7, 7]].map((values, number) => ({
        values, isStacked: number < 2, isHidden: false }))"""
    assert page.value(f"heights({series}, 4)") == [[1, 0, None, 2], [1, 5, None, 7], [7, 7, 7, 7]]
    page.wait("document.querySelector('[data-drawn], .words')")


def test_what_is_missing_is_said_in_words(tab: Page, server: Served) -> None:
    tab.open(f"{server.url}{SOLO}&panelId=24&var-SessionName=another")
    tab.wait("document.querySelector('.words')?.textContent === 'No data'")
    tab.open(f"{server.url}{SOLO}&panelId=24&from=yesterday")
    tab.wait("document.querySelector('.words')?.textContent.includes(\"invalid time 'yesterday'\")")
    assert tab.value("document.querySelector('.words button').textContent") == "Try again"
    tab.open(f"{server.url}{SOLO}&panelId=9999")
    assert "no panel 9999" in tab.value("document.querySelector('.words').textContent")
    tab.complaints.clear()
