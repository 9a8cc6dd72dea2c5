"""Every surface reports the same state of a session at the same moment."""

from __future__ import annotations

import http.client
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from tests.history.rebuilt import NODE, OTHER_NODE, node, node_life
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.server.ui.written_sessions import SESSION, ran, write_session

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
LATER, EARLIER = 7200.0, -3600.0


def head(ended: str | None, due: float, started: float = 1.0) -> dict[str, Any]:
    return {"role": "head", "ended": ended, "alive_until": due, "started": 1e9 + started}


def worker(ended: str | None, due: float) -> dict[str, Any]:
    return {"role": "worker", "ended": ended, "alive_until": due, "started": 1e9 + 1}


CASES: dict[str, tuple[str, tuple[dict[str, Any], ...], bool]] = {
    "head-ended-worker-killed": ("ended", (head("graceful", 0.0), worker(None, LATER)), False),
    "head-ended-worker-silent": ("ended", (head("graceful", 0.0), worker(None, EARLIER)), False),
    "all-ended": ("ended", (head("graceful", EARLIER), worker("graceful", EARLIER)), False),
    "all-send": ("live", (head(None, LATER), worker(None, LATER)), False),
    "worker-ended-head-sends": ("live", (head(None, LATER), worker("graceful", EARLIER)), False),
    "worker-ended-head-silent": ("lost", (head(None, EARLIER), worker("graceful", EARLIER)), False),
    "all-silent": ("lost", (head(None, EARLIER), worker(None, EARLIER)), True),
    "workers-only-ended": ("ended", (worker("graceful", EARLIER), worker("graceful", EARLIER)), False),
    "workers-only-partly": ("live", (worker("graceful", EARLIER), worker(None, LATER)), False),
    "head-came-back": ("live", (head("graceful", EARLIER), head(None, LATER, 2.0)), False),
    "head-came-back-and-ended": ("ended", (head(None, LATER), head("graceful", EARLIER, 2.0)), False),
    "no-ledgers-fresh": ("live", (), True),
    "no-ledgers-old": ("ended", (), False),
}
"""Cluster: the state, its ledgers with the next heartbeat relative to now, and whether its objects are fresh."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, now = tmp_path_factory.mktemp("states"), time.time()
    for name, (_, ledgers, _) in CASES.items():
        written = {
            node_id: ledger | {"alive_until": now + ledger["alive_until"], "written": now + ledger["alive_until"] - 60}
            for node_id, ledger in zip((NODE, OTHER_NODE), ledgers, strict=False)
        }
        events = [node(), node_life("ALIVE", 0), *ran(1, "fine", 0, 5)]
        store = write_session(folder, events, name, logs={(NODE, "raylet.out"): b"one\n"}, ledgers=written)
    for name, (_, _, fresh) in CASES.items():
        if fresh:
            prefix = folder / "archive" / layout.session_prefix("", Cluster("default", name), SESSION)
            for path in prefix.rglob("*"):
                os.utime(path)
    with served(store, folder / "cache") as running:
        for name in CASES:
            assert running.get(f"{address(name)}/api/version").status == 200
        until(lambda: len(list(store.list(layout.SUMMARIES))) == len(CASES))
        yield running


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def address(cluster: str, session: str = SESSION) -> str:
    return f"/s/default/{cluster}/{session}"


def in_list(server: Served, cluster: str) -> str:
    """The state in the list, once all that it needs has been read."""

    def is_complete() -> bool:
        return parsed(server.get("/", BROWSER).body).one("main").attributes.get("data-again") != "1"

    until(is_complete)
    page = parsed(server.get(f"/?q={cluster}", BROWSER).body)
    (row,) = [row for row in page.all("tr") if any(link.text == cluster for link in row.all("a"))]
    return row.all("span", "dot")[0].attributes["class"].removeprefix("dot ")


def on_page(server: Served, cluster: str) -> str:
    text = parsed(server.get(f"{address(cluster)}/_session", BROWSER).body).all("span", "pill")[0].text
    return text.split()[0].lower()


def in_bar(server: Served, cluster: str) -> str:
    text = parsed(server.get(f"{address(cluster)}/", BROWSER).body).all("span", "hb-pill")[0].text
    found = re.search("live|ended|lost|unknown", text)
    assert found, text
    return found[0]


def is_followed(server: Served, cluster: str) -> bool:
    """Whether a stream of a log stays open for bytes to come; only its headers are read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", f"{address(cluster)}/api/v0/logs/stream?node_id={NODE}&filename=raylet.out")
        response = connection.getresponse()
        assert response.status == 200
        return response.headers.get("X-Accel-Buffering") == "no"
    finally:
        connection.close()


@pytest.mark.parametrize("cluster", CASES)
def test_every_surface_reports_the_same_state(server: Served, cluster: str) -> None:
    state, ledgers, _ = CASES[cluster]
    completeness = server.get(f"{address(cluster)}/_completeness").json
    nodes = server.get(f"{address(cluster)}/api/v0/nodes").rows
    live = server.get(address(cluster, "live") + "/_status")
    assert {
        "list": in_list(server, cluster),
        "page": on_page(server, cluster),
        "bar": in_bar(server, cluster),
        "completeness": completeness["state"],
        "has ended": completeness["ended_ns"] is not None,
        "end while live": state == "live" and completeness["ended"],
        "follows": is_followed(server, cluster),
        "nodes": {row["state"] for row in nodes},
        "live": live.status,
    } == {
        "list": state,
        "page": state,
        "bar": state,
        "completeness": state,
        "has ended": state != "live",
        "end while live": state == "live" and None,
        "follows": state == "live",
        "nodes": {"ALIVE" if state == "live" else "DEAD"},
        # The archive stands in for the head only as long as ledgers report a running session.
        "live": 200 if state == "live" and ledgers else 404,
    }
