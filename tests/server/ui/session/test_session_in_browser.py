"""A session in a real browser: its page, the bar above the dashboard, and the progress page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, Slow, end_long_ago, ran, write_session
from tests.support.captured import captured, write_archive
from tests.support.chromium import Chromium, Page

pytestmark = pytest.mark.xdist_group("browser")

S = f"/s/default/demo/{captured().session}"
MIDDLE = "2026-11-15T20:57:00Z"
ASKED = (
    "performance.getEntriesByType('resource').map(one => new URL(one.name))"
    ".filter(url => /api|nodes/.test(url.pathname))"
)
TEXT = "(document.querySelector('#root')?.innerText ?? '')"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("session-browser")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(folder)
    with served(store, folder / "cache") as running:
        assert running.get(f"{S}/api/version").status == 200
        yield running


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    """A tab that must end without errors."""
    with chromium.page() as page:
        yield page
        page.value("1")  # receives the last messages of the browser
        assert page.complaints == []


def test_a_click_on_the_timeline_opens_the_dashboard_at_that_moment(page: Page, server: Served) -> None:
    page.open(f"{server.url}{S}/_session")
    page.click("svg.plot")
    page.wait("document.querySelector('.hbar')")
    assert page.value("new URLSearchParams(location.search).get('at')").startswith("2026-11-15T20:5")
    assert page.value("location.pathname") == f"{S}/"


def test_the_dashboard_shows_the_moment_of_its_address(page: Page, server: Served) -> None:
    page.open(f"{server.url}{S}/?at={MIDDLE}#/jobs")
    page.wait(f"{TEXT}.includes('fx-train')")
    assert "RUNNING" in page.value(TEXT)
    assert "fx-fail" not in page.value(TEXT), "it was not there yet"
    assert page.value(f"{ASKED}.length") > 1
    assert page.value(f"{ASKED}.every(url => url.searchParams.get('at') === '{MIDDLE}')")
    assert page.value("new Date().toISOString()").startswith("2026-11-15T2"), "the clock of what is running then"
    page.click("[data-end]")
    page.wait(f"location.search === '' && {TEXT}.includes('fx-fail')")
    assert page.value("location.hash") == "#/jobs"


def test_moving_the_slider_selects_a_moment(page: Page, server: Served) -> None:
    page.open(f"{server.url}{S}/#/jobs")
    page.wait(f"{TEXT}.includes('fx-fail')")
    page.value(
        "(() => { const slider = document.querySelector('#hb-at'); slider.value = 1794776220000;"
        "slider.dispatchEvent(new Event('change')); })()"
    )
    page.wait(f"location.search.startsWith('?at=2026-11-15T20') && {TEXT}.includes('fx-train')")
    assert "fx-fail" not in page.value(TEXT)
    assert page.value("location.hash") == "#/jobs"


def test_the_bar_stays_above_the_dashboard_while_scrolling(chromium: Chromium, server: Served) -> None:
    with chromium.page(height=500) as page:
        page.open(f"{server.url}{S}/#/actors")
        page.wait(f"{TEXT}.includes('BadInit') || {TEXT}.includes('Counter')")
        page.value("scrollTo(0, 400)")
        page.wait("scrollY > 100")
        assert page.value("document.querySelector('.hbar').getBoundingClientRect().top") == 0
        page.wait(
            "document.elementFromPoint(100, 24).closest('.hbar')"
            " && !document.elementFromPoint(100, 60).closest('.hbar')"
        )
        fixed = "[...document.querySelectorAll('#root *')].filter(one => getComputedStyle(one).position === 'fixed')"
        assert page.value(f"{fixed}.map(one => one.getBoundingClientRect().top)") == [48]


def test_the_metrics_page_says_that_metrics_are_not_stored(page: Page, server: Served) -> None:
    page.open(f"{server.url}{S}/#/metrics")
    page.wait("!document.querySelector('[data-metrics]').hidden")
    page.wait("document.querySelector('[data-hb-no-metrics]')")
    text = "getComputedStyle(document.querySelector('[data-hb-no-metrics] .MuiAlert-message'), '::before').content"
    assert "no charts" in page.value(text)
    page.value("location.hash = '#/jobs'")
    page.wait("document.querySelector('[data-metrics]').hidden")


CUT = """[...function* () {
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, around = text.parentElement, range = document.createRange();
    if (!text.data.trim() || !around.checkVisibility() || around.closest('.sr, .clip')) continue;
    range.selectNodeContents(text);
    const { left, right } = range.getBoundingClientRect();
    for (let box = around; box; box = box.parentElement) {
      const style = getComputedStyle(box), edge = box.getBoundingClientRect();
      if (style.overflowX === 'auto' || style.overflowX === 'scroll' || style.textOverflow === 'ellipsis') break;
      if (left < edge.left - 1 || right > edge.right + 1) { yield text.data.trim(); break; }
    }
  }
}()]"""
"""Texts that overflow their box, except those with an ellipsis or a scroll bar."""


@pytest.mark.parametrize("width", [1400, 1000, 390])
def test_no_text_is_cut_off_in_a_wide_font(chromium: Chromium, server: Served, width: int) -> None:
    with chromium.page(width) as page:
        page.open(f"{server.url}{S}/_session")
        page.value("document.documentElement.style.setProperty('--sans', 'DejaVu Sans')")
        if folder := os.environ.get("RAY_HISTORY_TEST_PICTURES"):
            page.picture(Path(folder) / f"session-{width}.png")
        assert page.value(CUT) == []
        assert page.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1300, 1000, 390])
def test_no_text_of_a_long_job_is_cut_off(chromium: Chromium, tmp_path: Path, width: int) -> None:
    said = {
        "type": "SUBMISSION",
        "submission_id": "raysubmit_" + "x" * 60,
        "status": "FAILED",
        "entrypoint": "python " + "train.py --steps 7 " * 20,
        "message": "Job entrypoint command failed: " * 10,
        "start_time": 1_794_772_800_000,
        "end_time": 1_794_772_860_000,
    }
    store = write_session(tmp_path, ran(1, "fine", 0, 5), endpoints={"restful__api__jobs__": [said]})
    with served(store, tmp_path / "cache") as server, chromium.page(width) as page:
        server.get(f"/s/default/written/{SESSION}/api/version")
        page.open(f"{server.url}/s/default/written/{SESSION}/_session")
        assert "raysubmit_" in page.value("document.querySelector('.jobs').innerText")
        assert page.value(CUT) == []
        assert page.value("document.documentElement.scrollWidth") <= width


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(write_session(tmp_path, ran(1, "fine", 0, 5)))


@pytest.fixture
def slow_server(slow: Slow, tmp_path: Path) -> Iterator[Served]:
    with served(slow, tmp_path / "cache") as running:  # type: ignore[arg-type]
        yield running
        slow.go_on.set()


def test_the_dashboard_opens_when_the_session_is_ready(slow: Slow, slow_server: Served, page: Page) -> None:
    page.open(f"{slow_server.url}/s/default/written/{SESSION}/?at=2026-11-15T20:00:02Z#/jobs")
    assert page.value("document.querySelector('h1').textContent") == "Opening written"
    page.wait("document.querySelector('.stage.now').dataset.stage === 'reading events'")
    assert page.value("document.querySelector('[data-failure]').checkVisibility()") is False
    slow.go_on.set()
    page.wait("document.querySelector('.hbar')")
    assert page.value("location.search + location.hash") == "?at=2026-11-15T20:00:02Z#/jobs"


def test_a_failed_opening_shows_the_reason(chromium: Chromium, slow: Slow, slow_server: Served) -> None:
    with chromium.page() as page:
        page.open(f"{slow_server.url}/s/default/written/{SESSION}/")
        page.wait("document.querySelector('.stage.now')")
        slow.broken = True
        slow.go_on.set()
        page.wait("document.querySelector('[data-failure]')?.checkVisibility()")
        assert "the bucket is gone" in page.value("document.querySelector('[data-failure]').innerText")


def test_a_page_notices_that_another_tab_entered_another_session(chromium: Chromium, tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "fine", 0, 5), "first")
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(tmp_path)
    other = captured().session
    alert = "document.querySelector('[data-other]')"
    with served(store, tmp_path / "cache") as server, chromium.page() as page, chromium.page(beside=page) as second:
        page.open(f"{server.url}/enter_cluster/default/first/{SESSION}")
        page.open(f"{server.url}/#/jobs")
        page.wait(f"{alert}?.hidden")
        second.open(f"{server.url}/enter_cluster/default/demo/{other}")
        second.open(f"{server.url}/#/jobs")
        second.wait(f"{TEXT}.includes('fx-train') && {alert}.hidden")
        page.command("Page.bringToFront")
        page.wait(f"{alert}.checkVisibility()")
        assert other in page.value(f"{alert}.innerText")
        # As an answer of the first session would that renews its cookies after the second tab entered the other one.
        page.value(f"fetch('/enter_cluster/default/first/{SESSION}').then(answer => answer.ok)")
        page.wait(f"{alert}.hidden")
        second.command("Page.bringToFront")
        second.wait(f"{alert}.checkVisibility()")
        assert SESSION in second.value(f"{alert}.innerText")
        second.click("[data-back]")
        second.wait(f"location.pathname === '/s/default/demo/{other}/' && {TEXT}.includes('fx-train')")
        assert second.value("location.hash") == "#/jobs"


def test_an_ended_session_shows_its_time_and_is_not_polled_again_and_again(page: Page, server: Served) -> None:
    page.open(f"{server.url}{S}/#/jobs")
    page.wait(f"{TEXT}.includes('fx-train')")
    loaded = "document.querySelector('[aria-label^=\"Last successful data load\"]')"
    page.wait(f"getComputedStyle({loaded}, '::before').content.startsWith('\"As of 2026-11-15 20:58')")
    assert page.value("document.querySelector('input[name=refresh]').checkVisibility()") is False
    assert page.value("document.querySelectorAll('[aria-label^=\"Profiling is disabled\"]').length") > 0
    seen = (
        "[...document.querySelectorAll('[aria-label^=\"Profiling is disabled\"]')].some(one => one.checkVisibility())"
    )
    assert page.value(seen) is False, "processes of a finished session cannot be profiled"
    sizes = (
        "performance.getEntriesByType('resource').filter(one => one.name.endsWith('/api/jobs/'))"
        ".map(one => one.transferSize)"
    )
    page.wait(f"{sizes}.length >= 2")
    first, *again = page.value(sizes)
    assert first > 0
    assert set(again) == {0}, "from the cache of the browser"
