"""The home page, as the server sends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.auth import AuthSettings, make_backend
from tests.server.serving import Served, served
from tests.server.ui.fleets import Made, session_name, summary_of, write_fleet
from tests.server.ui.markup import Element, parsed
from tests.support.captured import captured, write_archive
from tests.support.waiting import until

HOME = "/select_cluster"
FLEET = 130


def opened(folder: Path) -> Store:
    return open_store(DirectorySettings(folder / "archive"))


def home(server: Served, query: str = "", path: str = HOME, **headers: str) -> Element:
    """The page, once every summary and ledger is read."""

    def complete() -> Element | None:
        answer = server.get(path + query, headers)
        assert answer.status == 200, answer.body[:300]
        page = parsed(answer.body)
        return page if page.one("main").attributes.get("data-again") != "1" else None

    page = until(complete)
    assert page is not None
    return page


def rows(page: Element) -> list[Element]:
    return [row for row in page.one("table", "fleet").all("tr") if row.all("td")]


def names(page: Element) -> list[str]:
    return [row.one("td", "c-name").one("a").text for row in rows(page)]


def cell(row: Element, name: str) -> str:
    return row.one("td", name).text


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[Made]]]:
    folder = tmp_path_factory.mktemp("fleet")
    made = write_fleet(opened(folder), FLEET, time.time())
    with served(opened(folder), folder / "cache") as running:
        yield running, made


def test_a_row_shows_the_summary_and_the_ledgers(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    one = next(one for one in made if one.failed and one.state == "ended")
    (row,) = rows(home(server, f"?q={one.submission_id}"))
    assert cell(row, "c-name") == f"{one.cluster.name} {one.cluster.namespace} RayJob {one.cluster.owner_name}"
    assert one.entrypoint in cell(row, "c-jobs")
    assert "Failed" in cell(row, "c-jobs")
    assert cell(row, "c-ray") == one.ray
    assert f"{one.failed} failed" in cell(row, "c-tasks")
    assert cell(row, "c-full") == "100%"
    assert row.one("span", "dot").attributes["aria-label"] == "ended"
    assert row.one("time").attributes["datetime"].startswith(one.session[8:18])


def test_live_sessions_come_first_and_ended_ones_below_their_day(
    fleet: tuple[Served, list[Made]],
) -> None:
    server, made = fleet
    page = home(server)
    live = [one.cluster.name for one in made if one.state == "live"]
    assert names(page)[: len(live)] == live
    headings = [group.text for group in page.all("tr", "group")]
    assert headings[0] == f"Live now {len(live)}"
    assert len(headings) > 2
    assert "Running" in cell(rows(page)[0], "c-jobs")


def test_jobs_of_a_lost_session_are_not_shown_as_running(fleet: tuple[Served, list[Made]]) -> None:
    server, _ = fleet
    for row in rows(home(server, "?state=lost")):
        assert "Interrupted" in cell(row, "c-jobs")
        assert "was running at" in cell(row, "c-jobs")
        assert "lost contact" in cell(row, "c-full")


def test_the_search_covers_every_field(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    one = next(one for one in made if one.failed)
    for query, expected in (
        (one.cluster.name, [one]),
        (one.session, [one]),
        (one.submission_id, [one]),
        (f'"{one.entrypoint}"', [each for each in made if one.entrypoint in each.entrypoint]),
        (
            f"namespace:{one.cluster.namespace}",
            [each for each in made if each.cluster.namespace == one.cluster.namespace],
        ),
        ('error:"was killed due"', [each for each in made if "was killed due" in each.error]),
        ("RAYSERVICE", [each for each in made if each.cluster.owner_kind == "rayservice"]),
    ):
        page = home(server, f"?q={query.replace(' ', '+')}")
        assert page.one("p", "dim").text == f"{len(expected)} of {FLEET} sessions match"
        assert set(names(page)) <= {each.cluster.name for each in expected}
        assert page.one("input", where=lambda e: e.attributes.get("id") == "q").attributes["value"] == query


def test_a_match_in_an_error_is_marked(fleet: tuple[Served, list[Made]]) -> None:
    server, _ = fleet
    for row in rows(home(server, "?q=refused")):
        assert row.one("mark").text == "refused"


def test_filters_are_links_and_fields_that_keep_the_rest_of_the_address(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    page = home(server, "?q=python&namespace=data&sort=duration")
    state = page.one("nav", where=lambda e: e.attributes.get("aria-label") == "State")
    links = {link.text.split()[0]: link.attributes["href"] for link in state.all("a")}
    assert links["Ended"] == "?q=python&state=ended&sort=duration&namespace=data"
    fields = {field.attributes["name"] for field in page.one("form", "search").all("input")}
    assert fields == {"q", "sort", "namespace"}
    chosen = page.one("form", "chips").all("input", where=lambda e: "checked" in e.attributes)
    assert [field.attributes["value"] for field in chosen] == ["data"]
    wanted = [one for one in made if one.cluster.namespace == "data"]
    assert set(names(page)) == {one.cluster.name for one in wanted}
    narrowed = home(server, links["Ended"])
    assert set(names(narrowed)) == {one.cluster.name for one in wanted if one.state == "ended"}


def test_counts_beside_the_filters_are_those_of_the_fleet(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    page = home(server)
    state = page.one("nav", where=lambda e: e.attributes.get("aria-label") == "State")
    lost = sum(one.state == "lost" for one in made)
    assert [link.text for link in state.all("a")] == [
        f"All {FLEET}",
        "Live 4",
        f"Ended {FLEET - 4 - lost}",
        f"Lost {lost}",
    ]
    failing = sum(bool(one.failed) for one in made)
    assert page.one("a", "is-bad").text == f"{failing} with failures"


def test_paging_shows_every_session_once_and_leads_back(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    shown: list[str] = []
    query = ""
    while True:
        page = home(server, query)
        shown += names(page)
        following = page.all("a", where=lambda e: e.attributes.get("rel") == "next")
        if not following:
            break
        query = following[0].attributes["href"]
    assert len(shown) == FLEET
    assert set(shown) == {one.cluster.name for one in made}
    back = page.one("a", where=lambda e: e.attributes.get("rel") == "prev").attributes["href"]
    assert names(home(server, back)) == shown[50:100]


def test_column_headings_sort_the_list(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    page = home(server)
    heading = page.one("th", "c-tasks").one("a")
    by_failures = home(server, heading.attributes["href"])
    worst = sorted((one.failed for one in made), reverse=True)[:5]
    found = {one.cluster.name: one.failed for one in made}
    assert [found[name] for name in names(by_failures)[:5]] == worst
    assert by_failures.one("th", "c-tasks").attributes["aria-sort"] == "descending"
    turned = home(server, by_failures.one("th", "c-tasks").one("a").attributes["href"])
    assert turned.one("th", "c-tasks").attributes["aria-sort"] == "ascending"
    by_name = home(server, page.one("th", "c-name").one("a").attributes["href"])
    assert names(by_name) == sorted(one.cluster.name for one in made)[:50]


def test_the_chart_counts_all_sessions_and_links_to_them(fleet: tuple[Served, list[Made]]) -> None:
    server, _ = fleet
    page = home(server)
    bars = page.one("section", "strip").all("a")
    counted = [int(bar.one("title").text.split(": ")[1].split()[0]) for bar in bars]
    assert sum(counted) == FLEET
    bar, count = bars[3], counted[3]
    assert len(rows(home(server, bar.attributes["href"]))) == count
    assert all(bar.attributes["tabindex"] == "-1" for bar in bars)


def test_without_matches_the_page_suggests_filters_to_remove(fleet: tuple[Served, list[Made]]) -> None:
    server, made = fleet
    page = home(server, "?namespace=ci&state=live&q=no-such-thing")
    assert page.all("table", "fleet") == []
    page = home(server, "?namespace=ci&state=live")
    empty = page.one("div", "empty")
    ci = sum(one.cluster.namespace == "ci" for one in made)
    assert "without the namespace: 4 sessions" in empty.text.replace(" ;", ";")
    assert f"Without the state: {ci} sessions" in empty.text


def test_the_page_has_labels_for_screen_readers(fleet: tuple[Served, list[Made]]) -> None:
    server, _ = fleet
    page = home(server)
    assert page.one("html").attributes["lang"] == "en"
    assert [heading.text for heading in page.all("h1")] == ["Sessions"]
    labels = {label.attributes["for"] for label in page.all("label") if "for" in label.attributes}
    for field in page.all("input", where=lambda e: e.attributes.get("type") not in ("hidden", "checkbox")):
        assert field.attributes["id"] in labels
    assert all(box.text for box in page.all("label"))
    for picture in page.all("svg"):
        assert picture.attributes.get("aria-hidden") == "true" or picture.attributes["aria-label"]
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a", where=lambda e: "href" in e.attributes):
        assert link.text or link.attributes.get("aria-label") or link.all("title")


def test_an_invalid_address_gets_an_error_page(fleet: tuple[Served, list[Made]]) -> None:
    server, _ = fleet
    answer = server.get(f"{HOME}?sort=color", {"Accept": "text/html"})
    assert answer.status == 400
    assert "expected one of started" in parsed(answer.body).one("p", "wrap-anywhere").text


def test_pages_hide_clusters_that_the_viewer_may_not_see(tmp_path: Path) -> None:
    rules = [{"name": name, "token": f"the-long-token-of-{name}", "namespaces": [name]} for name in ("data", "ci")]
    (tmp_path / "rules.json").write_bytes(msgspec.json.encode(rules))
    mode = make_backend(AuthSettings("token", str(tmp_path / "rules.json")), lambda: pytest.fail("unexpected request"))
    as_data, as_ci = ({"Authorization": f"Bearer the-long-token-of-{name}"} for name in ("data", "ci"))
    made = write_fleet(opened(tmp_path), 20, time.time())
    data = [one for one in made if one.cluster.namespace == "data"]
    hidden = next(one for one in made if one.cluster.namespace == "ci")
    with served(opened(tmp_path), tmp_path / "cache", AppConfig(auth=mode)) as server:
        page = home(server, **as_data)
        assert set(names(page)) == {one.cluster.name for one in data}
        assert page.one("p", "dim").text.startswith(f"{len(data)} sessions")
        options = page.one("form", "chips").all("input", where=lambda e: e.attributes["name"] == "namespace")
        assert [option.attributes["value"] for option in options] == ["data"]
        assert "0 of" in home(server, f"?q={hidden.submission_id}", **as_data).one("p", "dim").text
        for who, guesses in ((as_ci, 1), (as_data, 0)):
            address = f"/s/ci/{hidden.cluster.name}x/latest/"
            answer = server.get(address, {"Accept": "text/html", **who})
            suggestions = parsed(answer.body).one("ol").all("a")
            assert bool(suggestions) == bool(guesses)


HOSTILE = 'python "a\'b" </code><script>alert(1)</script> \x1b[31mred\x1b[0m \u202egnp.exe 🙂 ' + "x" * 3000


def test_texts_from_ray_are_escaped(tmp_path: Path) -> None:
    store, now = opened(tmp_path), time.time()
    cluster = Cluster("ns", "c")
    one = Made(
        cluster, session_name(now - 60, 1), now - 60, "ended", HOSTILE, "s-00001", 3, "<img src=x onerror=y>", "9"
    )
    store.put(layout.marker_key("", cluster, one.session), b"")
    summary = msgspec.structs.replace(summary_of(one, now), problem_count=1, problem="<b>&\"'")
    store.put(layout.summary_key(cluster, one.session), msgspec.json.encode(summary))
    with served(store, tmp_path / "cache") as server:
        page = home(server, "?q=%3Cimg&namespace=%22%3E%3Cscript%3E&namespace=ns")
        (row,) = rows(page)
        code = row.one("code")
        assert code.text.startswith('python "a\'b" </code><script>alert(1)</script> red gnp.exe 🙂 xxx')
        assert len(code.text) == 200
        assert len(code.attributes["title"]) == 1000
        assert row.one("mark").text == "<img"
        assert row.all("img") == []
        assert [script.text for script in page.all("script")] == ["", ""]
        assert [e for e in page.all() if "style" in e.attributes or any(a.startswith("on") for a in e.attributes)] == []


def test_an_empty_archive_shows_how_to_start(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.check(create=True)
    with served(store, tmp_path / "cache") as server:
        page = home(server)
        assert page.one("h2").text == "No Ray sessions yet"
        commands = [code.text for code in page.all("code")]
        assert any("ray-history run --storage file://" in command for command in commands)
        assert any("ray-history collect --storage file://" in command for command in commands)


class Breaking:
    """A stand-in for a store that stops responding once `is_broken` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_broken = False

    def __getattr__(self, name: str) -> object:
        if self.is_broken and name in ("list", "get"):
            return self._broken
        return getattr(self._store, name)

    def _broken(self, key: str = "") -> object:
        raise Unreachable(f"{self._store.url}: SlowDown <reduce your request rate>")


def test_an_unreachable_archive_leaves_the_last_list_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_history.server.ui.home.session_list._FRESH", 0.0)
    monkeypatch.setattr("ray_history.server.sessions.addressing.SessionCatalog.__init__.__defaults__", (0.0,))
    store = Breaking(opened(tmp_path))
    store.is_broken = True
    with served(store, tmp_path / "cache") as server:  # type: ignore[arg-type]
        answer = server.get(HOME, {"Accept": "text/html"})
        assert answer.status == 503
        assert parsed(answer.body).one("h1").text == "The archive is not responding"
        store.is_broken = False
        write_fleet(opened(tmp_path), 3, time.time())
        until(lambda: len(parsed(server.get(HOME).body).all("td", "c-name")) == 3)
        store.is_broken = True
        notes = until(lambda: parsed(server.get(HOME).body).all("section", "note"))
        assert "SlowDown <reduce your request rate>" in notes[0].text
        assert notes[0].attributes["role"] == "alert"
        assert len(parsed(server.get(HOME).body).all("td", "c-name")) == 3


@pytest.fixture(scope="module", params=["", "/ray/history"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """Two captured sessions that are not indexed yet."""
    folder = tmp_path_factory.mktemp("real")
    write_archive(opened(folder), Generation.C, Cluster("default", "demo"))
    write_archive(opened(folder), Generation.C, Cluster("team", "nightly-x7", "rayjob", "nightly"))
    with served(opened(folder), folder / "cache", AppConfig(base_path=request.param)) as running:
        yield running, request.param


def test_a_session_appears_at_once_and_is_complete_when_indexed(real: tuple[Served, str]) -> None:
    server, base = real
    path = base + HOME
    page = home(server, path=path, query="?q=nightly")
    (row,) = rows(page)
    assert "not indexed yet" in cell(row, "c-full")
    assert row.one("span", "dot").attributes["aria-label"] == "unknown"
    link = row.one("td", "c-open").one("a").attributes["href"]
    assert link == f"{base}/s/team/nightly-x7/{captured().session}/"
    assert server.get(f"{link}api/v0/nodes").status == 200

    def indexed() -> Element | None:
        (row,) = rows(home(server, path=path, query="?q=nightly"))
        return None if "not indexed yet" in cell(row, "c-full") else row

    row = until(indexed) or row
    tasks = server.get(f"{link}api/v0/tasks?limit=1&raw=1&exclude_internal=1").json["data"]["result"]["total"]
    counts = row.one("span", "counts").attributes["title"]
    assert sum(int(part.split()[0]) for part in counts.split(", ")) == tasks
    assert cell(row, "c-size") == "2 nodes 6 CPU"
    assert cell(row, "c-ray") == captured().truth["version"]["ray_version"]
    assert "+6 more, 1 failed" in cell(row, "c-jobs").replace(" ,", ",")


def test_names_link_to_the_session_page(real: tuple[Served, str]) -> None:
    server, base = real
    link = rows(home(server, path=base + HOME))[0].one("td", "c-name").one("a").attributes["href"]
    assert link.startswith(f"{base}/s/")
    assert server.get(link, {"Accept": "text/html"}).status == 200


def test_the_root_is_the_home_page_until_a_session_is_entered(real: tuple[Served, str]) -> None:
    server, base = real
    assert parsed(server.get(f"{base}/").body).one("h1").text == "Sessions"
    cookies = f"cluster_name=demo; cluster_namespace=default; session_name={captured().session}"
    entered = server.get(f"{base}/", {"Cookie": cookies})
    assert entered.status == 200
    assert b"Sessions</h1>" not in entered.body
    assert parsed(server.get(base + HOME, {"Cookie": cookies}).body).one("h1").text == "Sessions"
    for gone in ("cluster_name=demo", cookies.replace("demo", "gone")):
        assert parsed(server.get(f"{base}/", {"Cookie": gone}).body).one("h1").text == "Sessions"


def test_the_page_has_a_strict_policy_and_the_chosen_theme(real: tuple[Served, str]) -> None:
    server, base = real
    answer = server.get(base + HOME, {"Cookie": "theme=dark"})
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'self'; script-src 'self'"
    )
    page = parsed(answer.body)
    assert page.one("html").attributes["data-theme"] == "dark"
    for script in page.all("script"):
        assert server.get(script.attributes["src"]).status == 200


def test_a_rare_state_is_offered_while_it_is_selected(fleet: tuple[Served, list[Made]]) -> None:
    server, _ = fleet
    state = home(server, "?state=unknown").one("nav", where=lambda e: e.attributes.get("aria-label") == "State")
    assert [link.text for link in state.all("a")][-1] == "Unknown 0"
