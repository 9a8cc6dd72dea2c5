"""A cluster that ends while somebody looks at it, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import DirectorySettings
from ray_history.archive.stores import open_store
from ray_history.server.live import heads as heads_module
from ray_history.server.live import view
from tests.captured import captured, write_archive
from tests.kube.place import Place, place
from tests.parts.kube_stand_in import ray_cluster
from tests.server.pages.told_sessions import end_long_ago

chromium = pytest.importorskip("tests.parts.chromium", reason="the browser is not among the parts")

pytestmark = pytest.mark.timeout(300)
STORED = captured().session
LIVE = "/s/default/demo/live/"
NOTE = "document.querySelector('.hb-told:not([hidden])')"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(view, "_STAYS", 10.0**9)  # the stored session is older than an hour
    monkeypatch.setattr(heads_module, "_LEFT_ALONE", 0.0)
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(tmp_path)
    with place(store, tmp_path) as found:
        found.head.session = STORED
        found.kube.put("RayCluster", ray_cluster("default", "demo", owner=("RayJob", "nightly")))
        found.until_known()
        assert found.server.get(f"/s/default/demo/{STORED}/api/version").status == 200
        yield found


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    with chromium.Chromium(tmp_path) as browser, browser.page() as opened:
        yield opened


def reload(page: Any) -> None:
    """Load it again, and wait until it is another page than before."""
    page.value("window.before = true")
    page.command("Page.reload")
    page.wait("document.readyState === 'complete' && !window.before")


def picture(page: Any, name: str) -> None:
    """A look at it, for people who ask for one."""
    if folder := os.environ.get("RAY_HISTORY_TEST_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def test_a_deleted_cluster_is_told_while_one_looks_and_the_next_load_shows_the_archive(here: Place, page: Any) -> None:
    page.open(here.server.url + LIVE)
    page.wait("document.querySelector('.hb-live [data-word]').textContent === 'Live'")
    assert page.value(f"!{NOTE}")
    assert page.value("getComputedStyle(document.querySelector('.hb-dot')).boxShadow") != "none", "the style is there"
    picture(page, "live")
    here.kube.delete("RayCluster", "default", "demo")
    page.wait(f"document.querySelector('.hb-live [data-word]').textContent === 'Not live' && {NOTE}")
    assert "it runs no more" in page.value(f"{NOTE}.textContent")
    picture(page, "live-over")
    reload(page)
    assert page.value("!document.querySelector('.hb-live')")
    assert "History" in page.value("document.querySelector('.hbar').textContent")
    assert "it runs no more" in page.value(f"{NOTE}.textContent")
    assert page.value("location.pathname") == LIVE
    page.wait("document.querySelector('#root').innerText.includes('Jobs')")
    picture(page, "live-from-archive")


def test_a_silent_head_is_told_and_when_it_speaks_again_it_is_shown(here: Place, page: Any) -> None:
    page.open(here.server.url + LIVE)
    here.head.token = "which nobody has"  # it refuses us
    reload(page)
    assert "refuses us with 403" in page.value(f"{NOTE}.textContent")
    here.head.token = None
    reload(page)
    assert page.value("document.querySelector('.hb-live [data-word]').textContent") == "Live"
