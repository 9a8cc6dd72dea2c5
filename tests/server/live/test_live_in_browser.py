"""A cluster that ends while its dashboard is open in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.live import gateway
from ray_history.server.live import heads as heads_module
from tests.server.serving import served
from tests.server.ui.written_sessions import end_long_ago
from tests.support.captured import captured, write_archive
from tests.support.chromium import Chromium, Page
from tests.support.kube_stand_in import ray_cluster
from tests.support.waiting import until

from .place import Place, place

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("browser")]
STORED = captured().session
OLD = "2.49.0"
LIVE = "/s/default/demo/live/"
DASHBOARD = "document.querySelector('#root').innerText.includes('Recent jobs')"
NOTE = "document.querySelector('.hb-alert:not([hidden])')"


@dataclass
class Watched:
    """A cluster with an open dashboard. A server on its archive is a stand-in for the dashboard of its head."""

    place: Place
    address: str

    @property
    def url(self) -> str:
        return self.place.server.url + LIVE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(gateway, "_AVAILABLE_FOR", 10.0**9)  # the stored session is older than an hour
    monkeypatch.setattr(heads_module, "_RETRY_AFTER", 0.1)
    monkeypatch.setattr(heads_module, "_RETRY_MAX", 0.1)
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(tmp_path)
    old = tmp_path / "dashboards" / OLD
    old.mkdir(parents=True)
    (old / "index.html").write_text('<!doctype html><head><link rel="icon" href="data:,"></head><body>old pages</body>')
    choices = {"dashboards": (old.parent,)}
    with (
        served(store, tmp_path / "head") as head,
        place(store, tmp_path, choices=choices, address=lambda _: watched.address) as found,
    ):
        watched = Watched(found, f"{head.url}/s/default/demo/{STORED}")
        found.kube.put("RayCluster", ray_cluster("default", "demo", owner=("RayJob", "nightly")))
        found.until_known()
        assert found.server.get(f"/s/default/demo/{STORED}/api/version").status == 200
        yield watched


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    with chromium.page() as opened:
        yield opened


def reload(page: Page) -> None:
    """Reload, and wait until the new page is there."""
    page.value("window.before = true")
    page.command("Page.reload")
    page.wait("document.readyState === 'complete' && !window.before")


def picture(page: Page, name: str) -> None:
    """Save a screenshot on request."""
    if folder := os.environ.get("RAY_HISTORY_TEST_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def test_an_open_page_reports_a_deleted_cluster_and_reloads_from_the_archive(here: Watched, page: Page) -> None:
    page.open(here.url)
    page.wait("document.querySelector('.hb-live [data-word]').textContent === 'Live'")
    page.wait(DASHBOARD)
    assert page.value(f"!{NOTE}")
    assert page.value("getComputedStyle(document.querySelector('.hb-dot')).boxShadow") != "none", "the style is there"
    assert page.complaints == []
    picture(page, "live")
    here.place.kube.delete("RayCluster", "default", "demo")
    page.wait(f"document.querySelector('.hb-live [data-word]').textContent === 'Not live' && {NOTE}")
    assert "no longer running" in page.value(f"{NOTE}.textContent")
    picture(page, "live-over")
    reload(page)
    assert page.value("!document.querySelector('.hb-live')")
    assert "From the archive" in page.value("document.querySelector('.hbar').textContent")
    assert "no longer running" in page.value(f"{NOTE}.textContent")
    assert page.value("location.pathname") == LIVE
    page.wait(DASHBOARD)
    picture(page, "live-from-archive")


def test_live_and_stored_dashboards_use_the_chosen_version(here: Watched, page: Page) -> None:
    for path in (LIVE, f"/s/default/demo/{STORED}/"):
        page.open(here.place.server.url + path)
        page.wait(DASHBOARD)
        page.value(
            f"const menu = document.querySelector('#hb-version'); menu.value = {OLD!r};"
            "menu.dispatchEvent(new Event('change'))"
        )
        page.wait("document.readyState === 'complete' && document.body.textContent.includes('old pages')")
        assert page.value("location.pathname + location.search") == f"{path}?dashboard={OLD}"
        assert page.value("document.querySelector('#hb-version').value") == OLD
        assert page.complaints == []


def test_an_open_page_reports_an_unreachable_head_until_it_answers(here: Watched, page: Page) -> None:
    page.open(here.url)
    address, here.address = here.address, "http://127.0.0.1:1"
    page.wait(NOTE)
    reload(page)
    assert "its head cannot be reached" in page.value(f"{NOTE}.textContent")
    here.address = address
    until(lambda: not here.place.server.get(f"{LIVE}_status").json["note"])
    reload(page)
    assert page.value("document.querySelector('.hb-live [data-word]').textContent") == "Live"
    assert page.value(f"!{NOTE}")
