"""What all pages have in common: addresses, themes and the policy."""

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


def test_static_files_are_addressed_by_their_content(server: Served, base: str) -> None:
    addresses = referred(parsed(server.get(base + NOWHERE, BROWSER).body))
    assert len(addresses) == 3
    for address in addresses:
        assert address.startswith(f"{base}/_pages/")
        answer = server.get(address)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
    assert server.get(f"{base}/_pages/style.css").status == 404


def test_pages_have_a_strict_policy_and_nothing_inline(server: Served, base: str) -> None:
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
def test_the_theme_comes_from_the_address_or_the_cookie(
    server: Served, base: str, query: str, cookie: str, expected: str | None
) -> None:
    page = parsed(server.get(base + NOWHERE + query, {**BROWSER, "Cookie": cookie}).body)
    assert page.one("html").attributes.get("data-theme") == expected
