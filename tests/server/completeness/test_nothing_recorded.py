"""A session of which no event was received is shown as not recorded, on every surface, and never as complete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from tests.history.rebuilt import NODE
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.server.ui.written_sessions import SESSION, write_session
from tests.support.waiting import until

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
LEDGER = {"role": "head", "ended": "graceful", "alive_until": 1_700_000_000.0, "started": 1_699_990_000.0}
S = f"/s/default/silent/{SESSION}"


@pytest.fixture(scope="module", params=["with ledger", "without ledger"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A session with logs and no events, recorded by our collector or by KubeRay's."""
    folder = tmp_path_factory.mktemp("silent")
    ledgers = {NODE: LEDGER} if request.param == "with ledger" else {}
    store = write_session(folder, [], "silent", logs={(NODE, "raylet.out"): b"one\n"}, ledgers=ledgers)
    for found in list(store.list(layout.session_prefix("", Cluster("default", "silent"), SESSION))):
        if "events/" in found.key:
            store.delete(found.key)
    with served(store, folder / "cache") as running:
        assert running.get(f"{S}/api/version").status == 200
        until(lambda: len(list(store.list(layout.SUMMARIES))) == 1)
        yield running


def test_the_share_is_null_and_the_reason_names_the_variables(server: Served) -> None:
    for path in ("_completeness", "_digest"):
        found = server.get(f"{S}/{path}").json["completeness"]
        assert found["share"] is None
        assert found["state"] == "nothing recorded"
        assert "RAY_enable_ray_event" in found["reasons"][0]


def test_listings_warn(server: Served) -> None:
    warning = server.get(f"{S}/api/v0/tasks").json["data"]["result"]["partial_failure_warning"]
    assert "No event was received from Ray" in warning


def test_the_session_page_says_what_to_set(server: Served) -> None:
    page = parsed(server.get(f"{S}/_session", BROWSER).body)
    (note,) = page.all("section", "note")
    assert "warn" in note.attributes["class"]
    assert "This does not mean that nothing failed" in note.text
    assert "export RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES=TASK_DEFINITION_EVENT," in note.text
    assert "Nothing recorded" in page.one("section", where=lambda each: "h-c" in each.attributes.values()).text
    assert "not recorded" in page.one("dl", "facts").text
    assert "100%" not in page.text


def test_the_bar_warns(server: Served) -> None:
    bar = parsed(server.get(f"{S}/", BROWSER).body).one("header", "hbar")
    assert bar.one("a", "hb-warn").text == "nothing recorded"


@pytest.mark.parametrize("query", ["", "?complete=0"])
def test_the_home_row_warns_and_counts_as_incomplete(server: Served, query: str) -> None:
    def row() -> str | None:
        page = parsed(server.get(f"/select_cluster{query}", BROWSER).body)
        found = [cell for cell in page.all("td", "c-full") if cell.all("span", "warn")]
        return found[0].text if found else None

    assert until(row) == "nothing recorded"
