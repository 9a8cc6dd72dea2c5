"""`/logs/` shows a node's log directory as Ray's agents do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

S = f"/s/default/demo/{captured().session}"
HEAD = max(captured().events, key=lambda node: len(captured().events[node]))
(SIDE,) = set(captured().events) - {HEAD}
ODD = "odd/<b>&\"'%2e #?.log"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("folder")
    store = open_store(DirectorySettings(folder / "archive"))
    prefix = write_archive(store, Generation.C, Cluster("default", "demo"))
    store.put(layout.log_key(prefix, HEAD, ODD), b"odd")
    with served(store, folder / "cache") as running:
        yield running


def links(server: Served, path: str) -> dict[str, str]:
    """The names and links of an index page."""
    answer = server.get(path)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/html")
    found = re.findall(r'<li><a href="([^"]*)">([^<]*)</a></li>', answer.body.decode())
    return {unescape(name): urljoin(path, unescape(link)) for link, name in found}


@pytest.mark.parametrize("path", ["/logs", "/logs/"])
def test_the_directory_of_the_head_is_listed_and_its_files_are_read(server: Served, path: str) -> None:
    found = links(server, S + path)
    assert {"gcs_server.out", "raylet.out", "odd/"} <= found.keys()
    answer = server.get(found["gcs_server.out"])
    assert answer.body == captured().logs[HEAD, "gcs_server.out"]
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/logs/odd", "/logs/odd/"])
def test_a_folder_has_an_index_page_with_escaped_names(server: Served, path: str) -> None:
    found = links(server, S + path)
    assert list(found) == [ODD.removeprefix("odd/")]
    assert server.get(*found.values()).body == b"odd"


def test_another_node_can_be_selected(server: Served) -> None:
    found = links(server, f"{S}/logs/?node_id={SIDE}")
    assert "gcs_server.out" not in found
    assert server.get(found["raylet.out"]).body == captured().logs[SIDE, "raylet.out"]
    assert server.get(f"{S}/logs/?node_id=zzz").status == 404


@pytest.mark.parametrize(
    "name", ["nope.log", "../events", "..%2f..%2fnode_events", "%2e%2e/", "/etc/passwd", "%00", "od", "raylet"]
)
def test_unlisted_names_are_not_found(server: Served, name: str) -> None:
    answer = server.get(f"{S}/logs/{name}")
    assert answer.status == 404
    assert "list the node's logs" in answer.json["msg"]
