"""The bar above the Ray Dashboard, and the moment in its address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.ui.bars import with_bar
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.server.ui.written_sessions import SESSION, end_long_ago, ran, write_session
from tests.support.captured import captured, write_archive

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
S = f"/s/default/demo/{captured().session}"
MIDDLE = "2026-11-15T20:57:00Z"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bar")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(folder)
    other = folder / "dashboards" / "2.49.0"
    other.mkdir(parents=True)
    old = "<!doctype html><html><head><script src='old.js'></script></head><body>old</body></html>"
    (other / "index.html").write_text(old)
    with served(store, folder / "cache", AppConfig(dashboards=(folder / "dashboards",))) as running:
        assert running.get(f"{S}/api/version").status == 200
        yield running


def test_the_bar_comes_before_everything_of_the_dashboard(server: Served) -> None:
    page = parsed(server.get(f"{S}/", BROWSER).body)
    scripts = [script.attributes["src"] for script in page.all("script")]
    assert re.match(r"/_pages/hbar\.[0-9a-f]+\.js", scripts[0])
    assert "defer" not in page.all("script")[0].attributes, "it must run before the dashboard asks for anything"
    assert any("static/js/main" in script for script in scripts[1:])
    body = page.one("body")
    assert body.inside[0].attributes["class"] == "hbar"  # type: ignore[union-attr]
    assert page.one("div", where=lambda found: found.attributes.get("id") == "root")
    for name in [scripts[0], page.all("link")[0].attributes["href"]]:
        assert server.get(name).status == 200


def test_the_bar_shows_the_session_and_its_state(server: Served) -> None:
    bar = parsed(server.get(f"{S}/", BROWSER).body).one("header", "hbar")
    assert "demo" in bar.text
    assert "History, stopped" in bar.text, "its head received SIGTERM"
    links = [link.attributes["href"] for link in bar.all("a")]
    assert "/select_cluster" in links
    assert f"{S}/_session" in links


def test_the_bar_of_a_live_session_says_so(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, tmp_path / "cache") as server:
        assert server.get(f"{S}/api/version").status == 200
        body = server.get(f"{S}/", BROWSER).body
    bar = parsed(body).one("header", "hbar").text
    assert "still live" in bar
    assert "History" not in bar
    assert b'data-now=""' in body, "its clock is the real one"


def test_the_slider_is_at_the_moment_of_the_address(server: Served) -> None:
    page = parsed(server.get(f"{S}/?at={MIDDLE}", BROWSER).body)
    bar = page.one("header", "hbar")
    slider = bar.one("input")
    assert slider.attributes["value"] == "1794776220000"
    assert int(slider.attributes["min"]) < 1794776220000 < int(slider.attributes["max"])
    assert bar.one("output").text == "20:57:00"
    assert page.all("script")[0].attributes["data-now"] == "1794776220000"
    assert parsed(server.get(f"{S}/", BROWSER).body).one("output").text == "End"


def test_an_invalid_moment_is_refused(server: Served) -> None:
    answer = server.get(f"{S}/?at=yesterday")
    assert answer.status == 400
    assert "2026-01-31T12:00:00Z" in answer.json["msg"]


def test_another_version_of_the_dashboard_has_the_bar_too(server: Served) -> None:
    page = parsed(server.get(f"{S}/?dashboard=2.49.0", BROWSER).body)
    assert [option.attributes["value"] for option in page.one("select").all("option")][-1] == "2.49.0"
    assert [o.text for o in page.one("select").all("option") if "selected" in o.attributes] == ["Ray 2.49.0"]
    assert page.all("script")[1].attributes["src"] == "old.js"
    assert server.get(f"{S}/?dashboard=1.0").status == 404


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<html><head><x></head><body class='a'>b", "<html><head>HEAD<x></head><body class='a'>BARb"),
        ("<HEAD lang=x><BODY>", "<HEAD lang=x>HEAD<BODY>BAR"),
        ("<header>h</header>", "<header>h</header>"),
        ("<head></head><body>\\1 \\g<0></body>", "<head>HEAD</head><body>BAR\\1 \\g<0></body>"),
    ],
)
def test_the_bar_goes_where_the_body_begins(page: str, expected: str) -> None:
    assert with_bar(page, "HEAD", "BAR") == expected


def test_answers_are_of_the_requested_moment(server: Served) -> None:
    def statuses(query: str) -> dict[str, str]:
        return {job["submission_id"]: job["status"] for job in server.get(f"{S}/api/jobs/{query}").json}

    assert statuses(f"?at={MIDDLE}")["fx-train"] == "RUNNING"
    assert "fx-fail" not in statuses(f"?at={MIDDLE}")
    assert statuses("")["fx-train"] == "SUCCEEDED"


def test_a_polled_snapshot_is_found_at_any_moment(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "fine", 0, 5), endpoints={"restful__api__custom__thing?x=1": {"fine": 1}})
    with served(store, tmp_path / "cache") as server:
        for query in ("?x=1", f"?x=1&at={MIDDLE}", f"?at={MIDDLE}&x=1"):
            assert server.get(f"/s/default/written/{SESSION}/api/custom/thing{query}").json == {"fine": 1}
