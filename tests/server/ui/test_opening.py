"""While a session is being opened, browsers get a progress page and programs wait; both get their answer."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ray_history.index.build.order import Progress
from ray_history.server.sessions import endpoint as handling
from ray_history.server.ui.opening import percent, stages
from tests.server.serving import Served, served
from tests.support.waiting import until

from .markup import parsed
from .written_sessions import SESSION, Slow, ran, write_session

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
S = f"/s/default/written/{SESSION}"


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(write_session(tmp_path, ran(1, "fine", 0, 5)))


@pytest.fixture
def server(slow: Slow, tmp_path: Path) -> Iterator[Served]:
    with served(slow, tmp_path / "cache") as running:  # type: ignore[arg-type]
        yield running
        slow.go_on.set()


def until_open(server: Served) -> None:
    until(lambda: server.get(f"{S}/_status").json["ready"])


@pytest.mark.parametrize("path", ["", "_session"])
def test_a_browser_gets_a_progress_page_and_then_the_requested_one(server: Served, slow: Slow, path: str) -> None:
    first = server.get(f"{S}/{path}", BROWSER)
    page = parsed(first.body)
    assert first.status == 200
    assert first.headers["cache-control"] == "no-store"
    assert page.one("h1").text == "Opening written"
    assert "unsafe" not in first.headers["content-security-policy"]
    refresh = page.one("meta", where=lambda found: found.attributes.get("http-equiv") == "refresh")
    assert refresh.attributes["content"] == "2", "for browsers without scripts"
    slow.go_on.set()
    until_open(server)
    assert "Opening written" not in server.get(f"{S}/{path}", BROWSER).body.decode()


def test_the_page_shows_the_progress(server: Served) -> None:
    until(lambda: server.get(f"{S}/_status").json["stage"] == "reading events")
    page = parsed(server.get(f"{S}/", BROWSER).body)
    facts = {part.one("dt").text: part.one("dd").text for part in page.one("dl", "trio").all("div")}
    assert facts["Files"] == "0 of 1"
    assert page.one("li", "now").attributes["data-stage"] == "reading events"


def test_a_program_waits_for_its_answer(server: Served, slow: Slow) -> None:
    with ThreadPoolExecutor(2) as threads:
        waiting = [
            threads.submit(server.get, f"{S}/api/v0/tasks"),
            threads.submit(server.get, f"{S}/_session", {"Accept": "*/*"}),
        ]
        assert server.get(f"{S}/_status").json["ready"] is False
        assert not any(one.done() for one in waiting)
        slow.go_on.set()
        tasks, page = (one.result() for one in waiting)
    assert len(tasks.rows) == 1
    assert b"What went wrong" in page.body or b"No failed tasks recorded" in page.body


def test_a_script_of_a_page_waits_too(server: Served, slow: Slow) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(server.get, f"{S}/", {"Accept": "text/html", "Sec-Fetch-Mode": "cors"})
        server.get(f"{S}/_status")
        slow.go_on.set()
        assert b"hbar" in waiting.result().body


def test_a_proxying_ray_is_answered_before_its_timeout(
    server: Served, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "PATIENCE", 0.2)
    for path, headers in ((f"{S}/api/v0/tasks", {}), (f"{S}/", BROWSER)):
        answer = server.get(path, {"Content-Type": "application/json", **headers})
        assert answer.status == 503
        assert b"till being opened" in answer.body
    slow.go_on.set()
    assert server.get(f"{S}/api/v0/tasks").status == 200


def test_events_end_when_the_client_disconnects(server: Served) -> None:
    def running() -> int:
        found = re.search(rb"^ray_history_requests_running (\d+)\.0$", server.get("/metrics").body, re.MULTILINE)
        assert found is not None
        return int(found[1]) - 1  # without this request

    listening = urllib.request.Request(f"{server.url}{S}/_status", headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(listening) as events:
        assert b'"ready":false' in events.readline()
        assert running() == 1
    until(lambda: running() == 0)


def test_a_failed_opening_is_reported_with_its_reason(server: Served, slow: Slow) -> None:
    slow.broken = True
    assert parsed(server.get(f"{S}/", BROWSER).body).one("h1").text == "Opening written"
    slow.go_on.set()
    events = server.get(f"{S}/_status", {"Accept": "text/event-stream"}).body.decode()
    last = json.loads(events.strip().split("\n\n")[-1].removeprefix("data: "))
    assert (last["ready"], last["stage"]) == (False, "failed")
    assert "the bucket is gone" in last["reason"]
    answer = server.get(f"{S}/api/version", {"Accept": "application/json"})
    assert answer.status == 503
    assert "the bucket is gone" in answer.json["msg"]
    # A failure that takes longer than the browser waits shows the page once more.
    until(
        lambda: (page := server.get(f"{S}/", BROWSER)).status == 503 and b"the bucket is gone" in page.body,
        "there is no page to wait on where it fails at once",
    )


def test_stages_follow_each_other() -> None:
    assert [how for _, _, how in stages("listing")] == ["now", "todo", "todo"]
    assert [how for _, _, how in stages("making tables")] == ["done", "done", "now"]
    assert [how for _, _, how in stages("ready")] == ["done", "done", "done"]
    assert [key for key, _, _ in stages("fetching the index")] == ["listing", "fetching the index"]


def test_progress_grows_with_the_bytes() -> None:
    shares = [percent(Progress("reading events", bytes=read, bytes_total=100)) for read in (0, 50, 100)]
    shares += [percent(Progress(stage)) for stage in ("making tables", "ready")]
    assert shares == sorted(shares)
    assert shares[-1] == 100
