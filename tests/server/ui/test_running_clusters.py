"""Running clusters: their rows on the home page, and the bars above their dashboards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.auth import AuthSettings, make_backend
from tests.server.live.place import Place, place
from tests.server.ui.fleets import write_fleet
from tests.server.ui.home.test_page import cell, home, names, rows
from tests.server.ui.markup import Element, parsed
from tests.support.captured import captured, write_archive
from tests.support.kube_stand_in import ray_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(180)
STORED = captured().session
BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
LIVE = "/s/default/demo/live"


def opened(folder: Path) -> Store:
    (folder / "archive").mkdir(exist_ok=True)
    return open_store(DirectorySettings(folder / "archive"))


def eventually(page: Callable[[], Element], condition: Callable[[Element], Any]) -> Element:
    """The page once it satisfies the condition; it refreshes its list every few seconds."""
    found: list[Element] = []

    def holds() -> Any:
        found[:] = [page()]
        return condition(found[0])

    until(holds)
    return found[0]


def shown(page: Element) -> list[tuple[str, str, str]]:
    """State, name and dashboard link of every row."""
    return [
        (
            row.one("span", "dot").attributes["aria-label"],
            row.one("td", "c-name").one("a").text,
            row.one("td", "c-open").one("a").attributes["href"],
        )
        for table in page.all("table", "fleet")
        for row in table.all("tr")
        if row.all("td")
    ]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    """A server with an empty archive."""
    with place(opened(tmp_path), tmp_path) as found:
        yield found


# On the home page.


def test_a_running_cluster_without_stored_data_has_a_row(here: Place) -> None:
    here.kube.put("RayCluster", ray_cluster("default", "demo", owner=("RayJob", "nightly")))
    page = eventually(lambda: home(here.server), shown)
    assert shown(page) == [("live", "demo", f"{LIVE}/")]
    (row,) = rows(page)
    assert cell(row, "c-name") == "demo default RayJob nightly"
    assert cell(row, "c-ray") == "2.60.0"
    assert "not stored yet" in cell(row, "c-full")
    assert page.all("tr", "group")[0].text == "Live now 1"
    summary = row.one("td", "c-name").one("a").attributes["href"]
    away = here.server.get(summary, BROWSER)
    assert (away.status, away.headers["location"]) == (307, f"{LIVE}/")
    assert here.server.get(f"{LIVE}/", BROWSER).status == 200
    for query, found in (("?q=nightly", 1), ("?q=live&state=live", 1), ("?q=elsewhere", 0), ("?owner=RayService", 0)):
        assert len(shown(home(here.server, query))) == found, query
    assert [shown(home(here.server, f"?sort={sort}")) for sort in ("cluster", "-duration", "-started", "failed")] == [
        shown(page)
    ] * 4


def test_a_stored_session_of_a_running_cluster_has_one_row_that_opens_the_live_dashboard(
    here: Place, tmp_path: Path
) -> None:
    here.head.session = STORED
    here.kube.put("RayCluster", ray_cluster("default", "demo"))
    eventually(lambda: home(here.server), shown)
    store = opened(tmp_path)
    write_archive(store, Generation.C, Cluster("default", "demo"))
    page = eventually(
        lambda: home(here.server),
        lambda page: "not stored yet" not in page.text and shown(page) == [("live", "demo", f"{LIVE}/")],
    )
    (row,) = rows(page)
    assert row.one("td", "c-name").one("a").attributes["href"] == f"/s/default/demo/{STORED}/_session"


def test_older_sessions_of_a_running_cluster_come_after_it(here: Place, tmp_path: Path) -> None:
    write_archive(opened(tmp_path), Generation.C, Cluster("default", "demo"))
    thing = ray_cluster("default", "demo")
    thing["metadata"]["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    here.kube.put("RayCluster", thing)
    page = eventually(lambda: home(here.server), lambda page: len(shown(page)) == 2)
    assert [link for _, _, link in shown(page)] == [f"{LIVE}/", f"/s/default/demo/{STORED}/"]


def test_without_a_reported_session_the_newest_one_is_taken_for_it(tmp_path: Path) -> None:
    write_archive(opened(tmp_path), Generation.C, Cluster("default", "demo"))
    with place(opened(tmp_path), tmp_path, heads=False) as here:
        here.kube.put("RayCluster", ray_cluster("default", "fresh"))
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        page = eventually(lambda: home(here.server), lambda page: "fresh" in names(page))
        assert sorted(link for _, _, link in shown(page)) == [f"/s/default/demo/{STORED}/", "/s/default/fresh/live/"]


def test_paging_covers_running_and_stored_sessions(tmp_path: Path) -> None:
    made = write_fleet(opened(tmp_path), 60, time.time())
    with place(opened(tmp_path), tmp_path, heads=False) as here:
        for number in range(55):
            here.kube.put("RayCluster", ray_cluster("default", f"runs-{number:02d}"))
        eventually(lambda: home(here.server), lambda page: f"{55 + len(made)} session" in page.one("p", "dim").text)
        for sort in ("started", "-started", "cluster", "-cluster", "duration", "failed"):
            listed: list[str] = []
            query = f"?sort={sort}"
            while query:
                page = home(here.server, query)
                listed += names(page)
                following = page.all("a", where=lambda e: e.attributes.get("rel") == "next")
                query = following[0].attributes["href"] if following else ""
            assert len(listed) == len(set(listed)) == 55 + len(made), sort


def test_missing_permissions_are_shown_on_the_home_page(here: Place) -> None:
    until(lambda: here.kube.watching == 1)
    assert "Some running clusters" not in home(here.server).text
    here.kube.rules.clear()
    here.kube.end_watches()
    page = eventually(lambda: home(here.server), lambda page: "not allowed to list" in page.text)
    assert page.one("section", "note").one("h2").text == "Some running clusters are not shown"


def test_running_clusters_that_the_viewer_may_not_see_are_hidden(tmp_path: Path) -> None:
    rules = [
        {"token": "ann-token-0123456789", "name": "ann", "namespaces": ["default"]},
        {"token": "bob-token-0123456789", "name": "bob", "namespaces": ["team"]},
    ]
    (tmp_path / "tokens.json").write_text(json.dumps(rules))
    mode = make_backend(AuthSettings("token", str(tmp_path / "tokens.json")), lambda: pytest.fail("unexpected request"))
    with place(opened(tmp_path), tmp_path, choices={"auth": mode}) as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.kube.put("RayCluster", ray_cluster("team", "secret", owner=("RayJob", "hidden")))
        ann, bob = (
            lambda token=token: home(here.server, Authorization=f"Bearer {token}-token-0123456789")
            for token in ("ann", "bob")
        )
        assert names(eventually(bob, shown)) == ["secret"]
        page = eventually(ann, shown)
        assert names(page) == ["demo"]
        assert "secret" not in page.text
        assert "hidden" not in page.text
        here.kube.rules.clear()
        here.kube.end_watches()
        page = eventually(ann, lambda page: page.all("section", "note"))
        assert "the log of the server has the reason" in page.one("section", "note").text
        assert "team" not in page.text


# Above the dashboard.


def test_the_live_bar_links_to_the_stored_part(here: Place, tmp_path: Path) -> None:
    here.head.session = STORED
    here.kube.put("RayCluster", ray_cluster("default", "demo", owner=("RayJob", "nightly")))
    here.until_known()
    body = here.server.get(f"{LIVE}/", BROWSER).body
    bar = parsed(body).one("header", "hb-live")
    assert bar.one("span", "hb-pill").text == "Live"
    assert bar.one("span", "hb-dot")
    for word in ("demo", "default", "RayJob nightly", "Ray 2.60.0", "Not stored yet"):
        assert word in bar.text
    assert [link.attributes["href"] for link in bar.all("a")] == ["/select_cluster"]
    assert "hidden" in parsed(body).one("p", "hb-alert").attributes

    write_archive(opened(tmp_path), Generation.C, Cluster("default", "demo"))
    page = eventually(
        lambda: parsed(here.server.get(f"{LIVE}/", BROWSER).body), lambda page: "View from the archive" in page.text
    )
    bar = page.one("header", "hb-live")
    assert [link.attributes["href"] for link in bar.all("a")] == [
        "/select_cluster",
        f"/s/default/demo/{STORED}/_session",
        f"/s/default/demo/{STORED}/",
    ]
    ours = [*page.one("header", "hb-live").walk(), *page.one("p", "hb-alert").walk()]
    assert [e for e in ours if "style" in e.attributes or e.tag in ("script", "style")] == []
    scripts = [e.attributes["src"] for e in page.all("script")]
    assert scripts[0].startswith("/_pages/live.")
    assert here.server.get(scripts[0]).status == 200


def test_an_invalid_owner_name_is_escaped(here: Place) -> None:
    # Users who may create a RayCluster control its owner references.
    here.kube.put("RayCluster", ray_cluster("default", "demo", owner=("RayJob", "<script>/../x</script>")))
    here.until_known()
    assert b"/../x" not in here.server.get(f"{LIVE}/", BROWSER).body
    (row,) = rows(eventually(lambda: home(here.server), shown))
    assert cell(row, "c-name") == "demo default RayCluster"


def test_the_version_that_a_head_reports_is_escaped(here: Place) -> None:
    here.head.ray_version = "<script>x</script>"
    here.kube.put("RayCluster", ray_cluster("default", "demo"))
    here.until_known()
    assert here.server.get(f"{LIVE}/_status").status == 200  # the head has reported its version
    body = here.server.get(f"{LIVE}/", BROWSER).body
    assert b"<script>x" not in body
    assert "Ray <script>x</script>" in parsed(body).one("header", "hb-live").text


def test_the_fallback_to_the_archive_shows_the_reason_below_the_bar(tmp_path: Path) -> None:
    write_archive(opened(tmp_path), Generation.C, Cluster("default", "demo"))
    with place(opened(tmp_path), tmp_path, address=lambda _: "http://127.0.0.1:1") as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.until_known()
        assert here.server.get(f"/s/default/demo/{STORED}/api/version").status == 200
        assert "its head cannot be reached" in here.server.get(f"{LIVE}/_status").json["note"]
        page = parsed(here.server.get(f"{LIVE}/", BROWSER).body)
        assert not page.all("header", "hb-live")
        assert page.one("header", "hbar")
        note = page.one("p", "hb-alert", lambda each: "data-note" in each.attributes)
        assert "hidden" not in note.attributes
        assert f"shown from the archive, session {STORED}: its head cannot be reached" in note.text
        by_name = parsed(here.server.get(f"/s/default/demo/{STORED}/", BROWSER).body)
        assert not by_name.all("p", "hb-alert", lambda each: "data-note" in each.attributes)
