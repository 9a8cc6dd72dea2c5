"""The home page in a real browser, with and without scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.server.ui.fleets import Made, write_fleet
from tests.support.chromium import Chromium, Page

pytestmark = pytest.mark.xdist_group("browser")

SESSIONS = 300
KNOWN = "document.querySelector('[data-fleet]').dataset.again !== '1'"
NAMES = "[...document.querySelectorAll('[data-rows] .name a')].map(a => a.textContent)"
ANNOUNCED = "document.querySelector('[data-fleet]').dataset.announce"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[Made]]]:
    folder = tmp_path_factory.mktemp("browser")
    store = open_store(DirectorySettings(folder / "archive"))
    made = write_fleet(store, SESSIONS, time.time())
    with served(store, folder / "cache") as running:
        yield running, made


@pytest.fixture
def page(chromium: Chromium, fleet: tuple[Served, list[Made]]) -> Iterator[Page]:
    """A tab on the home page that must end without errors."""
    with chromium.page() as page:
        page.open(f"{fleet[0].url}/")
        page.wait(KNOWN)
        yield page
        page.value("1")  # receives the last messages of the browser
        assert page.complaints == []


def test_the_list_updates_while_typing_and_the_back_button_works(page: Page, fleet: tuple[Served, list[Made]]) -> None:
    _, made = fleet
    page.type("/")
    page.wait("document.activeElement.id === 'q'")
    page.type(made[77].submission_id)
    page.wait(f"{ANNOUNCED} === '1 of {SESSIONS} sessions'")
    assert page.value(NAMES) == [made[77].cluster.name]
    assert page.value("new URLSearchParams(location.search).get('q')") == made[77].submission_id
    assert page.value("document.activeElement.id") == "q"
    page.wait("document.querySelector('#live').textContent.startsWith('1 of')")
    page.value("history.back()")
    page.wait(f"location.search === '' && {ANNOUNCED} === '{SESSIONS} of {SESSIONS} sessions'")
    assert page.value("document.querySelector('#q').value") == ""


def test_a_refresh_does_not_cancel_a_search(page: Page, fleet: tuple[Served, list[Made]]) -> None:
    """A busy server answers the search only after the next refresh of the list is due."""
    _, made = fleet
    page.value("window.later = setTimeout; window.setTimeout = (work, ms) => later(work, Math.min(ms, 150)); 1")
    page.value(
        "window.ask = fetch; window.fetch = (url, options) => new Promise(done => "
        "later(done, url.includes('q=') ? 600 : 0)).then(() => ask(url, options)); 1"
    )
    page.value("dispatchEvent(new PopStateEvent('popstate'))")  # begins to refresh at that pace
    page.type("/")
    page.wait("document.activeElement.id === 'q'")
    page.type(made[78].submission_id)
    page.wait(f"{ANNOUNCED} === '1 of {SESSIONS} sessions'", seconds=20)


def test_filters_sorting_and_paging_replace_only_the_list(page: Page, fleet: tuple[Served, list[Made]]) -> None:
    _, made = fleet
    page.value("window.same = true")
    page.click("th.c-tasks a")
    page.wait("location.search === '?sort=failed'")
    failed = {one.cluster.name: one.failed for one in made}
    assert failed[page.value(NAMES)[0]] == max(failed.values())
    page.click(".chips details.menu summary")
    page.click("input[name=namespace][value=data]")
    data = [one for one in made if one.cluster.namespace == "data"]
    page.wait(f"{ANNOUNCED} === '{len(data)} of {SESSIONS} sessions'")
    assert page.value("location.search") == "?sort=failed&namespace=data"
    page.click("a[rel=next]")
    page.wait("new URLSearchParams(location.search).has('after')")
    assert len(page.value(NAMES)) == len(data) - 50
    assert page.value("window.same") is True


def test_keys_move_through_the_rows_and_open_one(page: Page, fleet: tuple[Served, list[Made]]) -> None:
    page.type("jjjk")
    assert page.value("document.activeElement.textContent") == page.value(NAMES)[1]
    page.click("details.menu summary")
    page.wait("document.querySelector('details.menu').open")
    page.press("Escape")
    assert page.value("document.querySelector('details.menu').open") is False
    page.type("kkj")
    page.press("Enter")
    page.wait(f"location.pathname === '{session_link(fleet[1][1])}' && document.querySelector('h1')")


def session_link(one: Made) -> str:
    return f"/s/{one.cluster.namespace}/{one.cluster.name}/{one.session}/_session"


def test_search_filters_and_paging_work_without_scripts(chromium: Chromium, fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    with chromium.page() as page:
        page.command("Emulation.setScriptExecutionDisabled", value=True)
        page.open(f"{server.url}/")
        while page.value("document.querySelector('[data-fleet]').dataset.again === '1'"):
            page.open(f"{server.url}/")
        page.click("a[rel=next]")
        page.wait("new URLSearchParams(location.search).has('after') && document.readyState === 'complete'")
        assert len(page.value(NAMES)) == 50
        page.click("a[rel=prev]")
        page.wait("document.querySelector('a[rel=next]') && !document.querySelector('a[rel=prev]')")
        page.click("th.c-tasks a")
        page.wait("location.search === '?sort=failed' && document.readyState === 'complete'")
        page.click(".chips details.menu summary")
        page.click("input[name=namespace][value=data]")
        page.click(".chips noscript button")
        data = [one for one in made if one.cluster.namespace == "data"]
        page.wait(f"document.querySelector('[data-fleet]')?.dataset.announce === '{len(data)} of {SESSIONS} sessions'")
        page.click("#q")
        page.type(data[7].submission_id)
        page.press("Enter")
        page.wait(f"document.querySelector('[data-fleet]')?.dataset.announce === '1 of {SESSIONS} sessions'")
        query = "new URLSearchParams(location.search)"
        assert page.value(f"[{query}.get('q'), {query}.get('namespace')]") == [data[7].submission_id, "data"]
        page.click("[data-rows] .name a")
        page.wait(f"location.pathname === '{session_link(data[7])}'")
        assert page.complaints == []


def test_dragging_over_the_chart_selects_a_time_range(page: Page) -> None:
    x, y, width = page.value(
        "(() => { const r = document.querySelector('[data-brush]').getBoundingClientRect();"
        "return [r.x, r.y + 20, r.width]; })()"
    )
    page.drag([(x + width * 0.5, y), (x + width * 0.55, y), (x + width * 0.75, y)])
    page.wait("new URLSearchParams(location.search).has('from')")
    page.wait("document.querySelector('.chart .edge')")
    shown = page.value("document.querySelector('.pager .dim').textContent")
    assert 0 < int(shown.split(" of ")[1]) < SESSIONS


def test_the_theme_applies_to_the_next_page(page: Page, fleet: tuple[Served, list[Made]]) -> None:
    page.click("[data-theme-toggle]")
    page.click("[data-theme-toggle]")
    assert page.value("document.documentElement.dataset.theme") == "dark"
    assert page.value("localStorage.themeMode") == "dark"
    assert "theme=dark" in page.value("document.cookie")
    page.click("[data-theme-toggle]")
    assert page.value("'theme' in document.documentElement.dataset") is False
    assert page.value("'themeMode' in localStorage") is False


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1400])
def test_no_width_needs_scrolling_sideways(chromium: Chromium, fleet: tuple[Served, list[Made]], width: int) -> None:
    with chromium.page(width, 800) as page:
        page.open(f"{fleet[0].url}/?failed=1")
        page.wait(KNOWN)
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.complaints == []
