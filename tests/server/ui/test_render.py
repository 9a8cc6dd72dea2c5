"""What all of our pages have in common: addresses, themes, the policy, and how errors are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from tests.server.serving import Served, served
from tests.support.captured import write_archive

from .markup import Element, parsed

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
NOWHERE = "/s/team/nightly-x8/latest/"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("team", "nightly-x7", "rayjob", "nightly"))
    return folder


@pytest.fixture(scope="module", params=["", "/ray/history"])
def base(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(folder: Path, base: str) -> Iterator[Served]:
    store = open_store(DirectorySettings(folder / "archive"))
    with served(store, folder / "cache", AppConfig(base_path=base)) as running:
        yield running


def referred(page: Element) -> list[str]:
    return [
        element.attributes[name]
        for element in page.all()
        for name in ("href", "src")
        if element.tag in ("link", "script") and name in element.attributes
    ]


def test_a_person_gets_a_page_about_the_error_and_a_program_gets_json(server: Served, base: str) -> None:
    page = parsed(server.get(base + NOWHERE, BROWSER).body)
    assert page.one("p", "errno").text == "404 Not Found"
    assert page.one("h1").text == "No such session"
    assert page.one("p", "wrap-anywhere").text.startswith("There is no session team/nightly-x8/latest")
    for headers in ({}, {"Accept": "application/json"}, {**BROWSER, "Sec-Fetch-Mode": "cors"}):
        answer = server.get(base + NOWHERE, headers)
        assert answer.status == 404
        assert answer.json["result"] is False


def test_the_page_tells_under_which_number_the_server_s_log_has_the_request(server: Served, base: str) -> None:
    answer = server.get(base + NOWHERE, BROWSER)
    told = parsed(answer.body).one("div", "code").one("code").text
    assert told.startswith(f"404 GET {base}{NOWHERE} ")
    assert told.endswith(f"req {answer.headers['x-request-id']}")


def test_what_is_missing_in_a_session_that_exists_is_not_told_as_a_missing_session(server: Served, base: str) -> None:
    page = parsed(server.get(f"{base}/s/team/nightly-x7/latest/no-such-file.html", BROWSER).body)
    assert page.one("h1").text == "Page not found"


def test_the_page_about_a_wrong_name_guesses_the_right_one(server: Served, base: str) -> None:
    page = parsed(server.get(base + NOWHERE, BROWSER).body)
    guess = page.one("ol").one("a")
    assert guess.text == "team/nightly-x7"
    assert guess.attributes["href"].startswith(f"{base}/s/team/nightly-x7/session_")


def test_what_was_asked_for_is_shown_as_text_never_as_markup(server: Served, base: str) -> None:
    name = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27"
    answer = server.get(f"{base}/s/{name}/x/latest/", BROWSER)
    page = parsed(answer.body)
    assert "<script>alert(1)</script>" in page.one("p", "wrap-anywhere").text
    assert len(page.all("script")) == 1


def test_files_are_addressed_by_their_content_and_kept_for_good(server: Served, base: str) -> None:
    addresses = referred(parsed(server.get(base + NOWHERE, BROWSER).body))
    assert len(addresses) == 3
    for address in addresses:
        assert address.startswith(f"{base}/_pages/")
        answer = server.get(address)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
    assert server.get(f"{base}/_pages/style.css").status == 404


def test_pages_may_load_nothing_from_elsewhere_and_run_nothing_inline(server: Served, base: str) -> None:
    answer = server.get(base + NOWHERE, BROWSER)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    page = parsed(answer.body)
    assert [e for e in page.all() if "style" in e.attributes or any(a.startswith("on") for a in e.attributes)] == []
    assert [script.text for script in page.all("script")] == [""]


@pytest.mark.parametrize(
    ("query", "cookie", "expected"),
    [
        ("", "", None),
        ("", "theme=dark", "dark"),
        ("", "theme=auto", None),
        ("?theme=light", "theme=dark", "light"),
        ("?theme=%22x", "theme=nonsense", None),
    ],
)
def test_the_theme_is_the_cookies_unless_the_address_says_otherwise(
    server: Served, base: str, query: str, cookie: str, expected: str | None
) -> None:
    page = parsed(server.get(base + NOWHERE + query, {**BROWSER, "Cookie": cookie}).body)
    assert page.one("html").attributes.get("data-theme") == expected
