"""Sessions without events, with a slow head and killed, in a real browser: on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.server.ui.poor_sessions import KILLED, SESSION, SILENT, SLOW, write_poor_sessions
from tests.server.ui.session.test_session_in_browser import CUT, TEXT
from tests.support.chromium import Chromium, Page
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("browser")

ON_PAGE = {
    SILENT: (
        "Stopped",
        "Nothing recorded",
        "as far as the dashboard reported them",
        "export RAY_",
    ),
    SLOW: ("Stopped", "Ray's GCS gave up exporting events"),
    KILLED: ("Killed", "Ray was killed: its processes could not send"),
}
IN_LIST = {SILENT: "nothing recorded", SLOW: "GCS exported no events", KILLED: "killed"}
IN_BAR = {SILENT: "nothing recorded", SLOW: "stopped", KILLED: "killed"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("poor")
    store = open_store(DirectorySettings(folder / "archive"))
    write_poor_sessions(store)
    with served(store, folder / "cache") as running:
        for cluster in ON_PAGE:
            assert running.get(f"{path(cluster)}/api/version").status == 200
        until(lambda: len(list(store.list(layout.SUMMARIES))) == len(ON_PAGE))
        yield running


def path(cluster: Cluster) -> str:
    return f"/s/{cluster.namespace}/{cluster.name}/{SESSION}"


def assert_fits(page: Page, width: int) -> None:
    assert page.value(CUT) == []
    assert page.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1400, 390])
def test_what_is_unknown_or_was_killed_looks_so(chromium: Chromium, server: Served, width: int) -> None:
    with chromium.page(width) as page:
        page.open(f"{server.url}/select_cluster")
        page.wait("document.querySelector('[data-fleet]')?.dataset.again !== '1'")
        for cluster, words in IN_LIST.items():
            row = f"[...document.querySelectorAll('tr')].find(row => row.innerText.includes('{cluster.name}'))"
            assert words in page.value(f"{row}.innerText")
            assert "100%" not in page.value(f"{row}.innerText")
        assert_fits(page, width)
        for cluster, texts in ON_PAGE.items():
            page.open(f"{server.url}{path(cluster)}/_session")
            shown = page.value("document.querySelector('main').innerText")
            assert [text for text in texts if text not in shown] == [], (cluster.name, shown)
            assert "100%" not in shown
            assert_fits(page, width)
        for cluster, word in IN_BAR.items():
            page.open(f"{server.url}{path(cluster)}/#/cluster")
            page.wait(f"{TEXT}.includes('DEAD') && !{TEXT}.includes('ALIVE')")
            bar = page.value("document.querySelector('.hbar').innerText")
            assert word in bar
            assert "100%" not in bar
        assert page.complaints == []
