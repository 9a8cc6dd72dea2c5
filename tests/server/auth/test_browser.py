"""Signing in with a real browser: on the page, and in the Ray Dashboard's own dialog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import FileTokens
from ray_history.server.auth.credentials import COOKIE, TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, SESSION, WRONG, Asking, asking, rules_file
from tests.support.chromium import Chromium, Page

pytestmark = pytest.mark.xdist_group("browser")

S = f"/s/default/demo/{SESSION}/"
READY = "document.activeElement && document.activeElement.id === 'token'"
DIALOG = "document.querySelector('[role=dialog] input')"
DASHBOARD = "document.querySelector('#root') && document.querySelector('#root').innerText.includes('Jobs')"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("browser")
    with asking(folder, FileTokens(RulesFile(rules_file(folder)), TrustedPeers()), store) as running:
        yield running


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    with chromium.page() as opened:
        yield opened


def until(page: Page, condition: str) -> None:
    """Evaluate again if the page navigated meanwhile."""
    while True:
        try:
            page.wait(condition)
            return
        except AssertionError as error:
            if "navigated" not in str(error):
                raise


def at(path: str) -> str:
    return f"document.readyState === 'complete' && location.pathname === {path!r}"


def token_cookies(page: Page) -> list[dict[str, Any]]:
    return [cookie for cookie in page.command("Network.getCookies")["cookies"] if cookie["name"] == COOKIE]


def test_signing_in_on_the_page_leads_back_to_the_dashboard(server: Asking, page: Page) -> None:
    page.command("Page.navigate", url=server.server.url + S)
    until(page, f"{at('/login')} && {READY}")
    assert page.complaints == []
    page.type(WRONG)
    page.press("Enter")
    until(page, f"{at('/login')} && document.querySelector('[role=alert]') && {READY}")
    page.type(ADA)
    page.press("Enter")
    until(page, f"{at(S)} && {DASHBOARD}")
    assert page.value("document.cookie.includes('token')") is False, "scripts do not see it"
    (cookie,) = token_cookies(page)
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")


def test_the_button_of_the_top_bar_signs_out(server: Asking, page: Page) -> None:
    page.command("Network.setCookie", name=COOKIE, value=ADA, url=server.server.url)
    page.open(server.server.url + "/select_cluster")
    assert page.value("document.querySelector('.top .user').textContent") == "ada"
    page.click(".top form[method=post] button")
    until(page, f"{at('/login')} && {READY}")
    assert token_cookies(page) == []
    page.command("Page.navigate", url=server.server.url + "/select_cluster")
    until(page, f"{at('/login')} && location.search === '?next=/select_cluster'")
    assert page.complaints == []


def test_the_dashboards_own_dialog_asks_again_when_the_cookie_has_ended(server: Asking, page: Page) -> None:
    page.command("Network.setCookie", name=COOKIE, value=ADA, url=server.server.url)
    page.command("Page.navigate", url=server.server.url + S)
    until(page, f"{at(S)} && {DASHBOARD}")
    page.command("Network.clearBrowserCookies")
    until(page, DIALOG)
    page.click("[role=dialog] input")
    page.type(ADA)
    page.value("[...document.querySelectorAll('[role=dialog] button')].at(-1).click()")
    until(page, f"!{DIALOG} && {DASHBOARD}")
    assert [cookie["httpOnly"] for cookie in token_cookies(page)] == [True]
