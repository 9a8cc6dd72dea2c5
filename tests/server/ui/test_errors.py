"""Errors as pages for browsers and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.requests import Request

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.ui.errors import wants_page
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.support.captured import write_archive

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
NOWHERE = "/s/team/nightly-x8/latest/"


@pytest.fixture(scope="module", params=["", "/ray/history"])
def base(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, base: str) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("errors")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("team", "nightly-x7", "rayjob", "nightly"))
    with served(store, folder / "cache", AppConfig(base_path=base)) as running:
        yield running


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"accept": "text/html,*/*;q=0.8", "sec-fetch-mode": "navigate"}, True),
        ({"accept": "text/html"}, True),
        ({"accept": "text/html", "sec-fetch-mode": "cors"}, False),
        ({"accept": "application/json"}, False),
        ({"accept": "*/*"}, False),
        ({}, False),
    ],
)
def test_only_navigations_of_browsers_get_a_page(headers: dict[str, str], expected: bool) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert wants_page(Request({"type": "http", "headers": pairs})) is expected


def test_browsers_get_an_error_page_and_programs_get_json(server: Served, base: str) -> None:
    page = parsed(server.get(base + NOWHERE, BROWSER).body)
    assert page.one("p", "errno").text == "404 Not Found"
    assert page.one("h1").text == "No such session"
    assert page.one("p", "wrap-anywhere").text.startswith("There is no session team/nightly-x8/latest")
    for headers in ({}, {"Accept": "application/json"}, {**BROWSER, "Sec-Fetch-Mode": "cors"}):
        answer = server.get(base + NOWHERE, headers)
        assert answer.status == 404
        assert answer.json["result"] is False


def test_an_error_page_shows_the_request_id_of_the_log(server: Served, base: str) -> None:
    answer = server.get(base + NOWHERE, BROWSER)
    detail = parsed(answer.body).one("div", "code").one("code").text
    assert detail.startswith(f"404 GET {base}{NOWHERE} ")
    assert detail.endswith(f"req {answer.headers['x-request-id']}")


def test_a_missing_file_of_a_session_is_not_a_missing_session(server: Served, base: str) -> None:
    page = parsed(server.get(f"{base}/s/team/nightly-x7/latest/no-such-file.html", BROWSER).body)
    assert page.one("h1").text == "Page not found"


def test_an_unknown_cluster_gets_a_suggestion(server: Served, base: str) -> None:
    page = parsed(server.get(base + NOWHERE, BROWSER).body)
    guess = page.one("ol").one("a")
    assert guess.text == "team/nightly-x7"
    assert guess.attributes["href"].startswith(f"{base}/s/team/nightly-x7/session_")


def test_names_in_the_address_are_escaped(server: Served, base: str) -> None:
    name = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27"
    answer = server.get(f"{base}/s/{name}/x/latest/", BROWSER)
    page = parsed(answer.body)
    assert "<script>alert(1)</script>" in page.one("p", "wrap-anywhere").text
    assert len(page.all("script")) == 1
