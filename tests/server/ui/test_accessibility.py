"""The pages have no serious accessibility problems, in light and dark, according to axe-core."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.auth.backends import FileTokens
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import WRONG, rules_file
from tests.server.serving import Served, served
from tests.support.axe import Axe
from tests.support.captured import captured, write_archive
from tests.support.chromium import Chromium, Page

from .fleets import write_fleet
from .session.charted import write_charted
from .written_sessions import SESSION, Slow, ran, write_session

pytestmark = pytest.mark.xdist_group("browser")

S = f"/s/default/demo/{captured().session}"
KNOWN = "document.querySelector('[data-fleet]').dataset.again !== '1'"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("accessible")
    store = open_store(DirectorySettings(folder / "archive"))
    write_fleet(store, 60, time.time())
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, folder / "cache") as running:
        assert running.get(f"{S}/api/version").status == 200
        yield running


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, chromium: Chromium) -> Iterator[Page]:
    with chromium.page() as page:
        wanted = [{"name": "prefers-color-scheme", "value": request.param}]
        page.command("Emulation.setEmulatedMedia", features=wanted)
        yield page


@pytest.mark.parametrize(
    ("query", "width"),
    [("", 1400), ("?failed=1&q=train&sort=failed", 1400), ("?q=nothing-is-called-so", 1400), ("", 390)],
    ids=["full", "filtered", "no match", "phone"],
)
def test_home(axe: Axe, page: Page, fleet: Served, query: str, width: int) -> None:
    page.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    page.open(f"{fleet.url}/{query}")
    page.wait(KNOWN)
    page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert axe.grave_findings(page) == []


def test_home_of_an_empty_archive(axe: Axe, page: Page, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    with served(open_store(DirectorySettings(tmp_path / "archive")), tmp_path / "cache") as server:
        page.open(f"{server.url}/")
        page.wait(KNOWN)
        assert axe.grave_findings(page) == []


def test_a_session(axe: Axe, page: Page, fleet: Served) -> None:
    page.open(f"{fleet.url}{S}/_session")
    page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert axe.grave_findings(page) == []


def test_a_session_with_metrics(axe: Axe, page: Page, tmp_path: Path) -> None:
    with served(write_charted(tmp_path), tmp_path / "cache") as server:
        page.open(f"{server.url}/s/default/written/{SESSION}/_session")
        page.wait("document.querySelector('.mark')")
        assert axe.grave_findings(page) == []


def test_the_bar_above_the_dashboard(axe: Axe, page: Page, fleet: Served) -> None:
    page.open(f"{fleet.url}{S}/?at=2026-11-15T20:57:00Z#/metrics")
    page.wait("!document.querySelector('[data-metrics]').hidden")
    assert axe.grave_findings(page, ".hbar") == []
    assert axe.grave_findings(page, ".hb-note") == []


def test_an_error(axe: Axe, page: Page, fleet: Served) -> None:
    page.open(f"{fleet.url}/s/default/demos/latest/")
    assert page.value("document.querySelector('h1').textContent")
    assert axe.grave_findings(page) == []


def test_a_session_that_is_being_opened(axe: Axe, page: Page, tmp_path: Path) -> None:
    slow = Slow(write_session(tmp_path, ran(1, "fine", 0, 5)))
    with served(slow, tmp_path / "cache") as server:  # type: ignore[arg-type]
        try:
            page.open(f"{server.url}/s/default/written/{SESSION}/")
            page.wait("document.querySelector('.stage.now')")
            assert axe.grave_findings(page) == []
        finally:
            slow.go_on.set()
            page.open("about:blank")  # otherwise the server waits for the requests of the page


def test_signing_in(axe: Axe, page: Page, tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    mode = FileTokens(RulesFile(rules_file(tmp_path)), TrustedPeers())
    with served(store, tmp_path / "cache", AppConfig(auth=mode)) as server:
        page.open(f"{server.url}/login")
        page.value("document.querySelector('details').open = true")
        assert axe.grave_findings(page) == []
        page.type(WRONG)
        page.press("Enter")
        page.wait("document.readyState === 'complete' && document.querySelector('[role=alert]')")
        assert axe.grave_findings(page) == []
