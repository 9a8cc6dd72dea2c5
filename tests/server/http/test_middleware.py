"""HTTP of the whole server: codings, caches, methods, cookies, limits, and a Ray that forwards requests."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.connections import Connections
from ray_history.server.api.metrics import CacheSize, ServerMetrics, metrics
from ray_history.server.app import AppConfig
from ray_history.server.http.middleware import RequestStatistics
from ray_history.server.live import Fleet
from ray_history.zstandard import zstd
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

SESSION = captured().session
S = f"/s/default/demo/{SESSION}"
LARGE = f"{S}/api/v0/tasks?limit=1000&detail=1"
BROWSER = "gzip, deflate, br, zstd"
THROUGH_RAY = {"Content-Type": "application/json", "Content-Length": "0", "Accept-Encoding": BROWSER}
"""The headers of a request that Ray forwards with `--proxy-server-url`."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("http") / "archive"
    store = open_store(DirectorySettings(folder))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    for file in folder.rglob("*"):
        os.utime(file, (1e9, 1e9))  # long ago: the session has ended
    return store


@pytest.fixture(scope="module")
def server(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(store, tmp_path_factory.mktemp("http") / "cache") as running:
        yield running


def test_answers_are_compressed_as_the_client_accepts(server: Served) -> None:
    plain = server.get(LARGE)
    assert "content-encoding" not in plain.headers
    packed = server.get(LARGE, {"Accept-Encoding": BROWSER})
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 4
    assert gzip.decompress(packed.body) == plain.body
    assert zstd.decompress(server.get(LARGE, {"Accept-Encoding": "zstd, gzip;q=0"}).body) == plain.body


def test_answers_vary_by_the_accepted_coding(server: Served) -> None:
    for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"Accept-Encoding": "gzip"})):
        assert "Accept-Encoding" in server.get(LARGE, headers, method).headers["vary"]
    tag = server.get(LARGE).headers["etag"]
    again = server.get(LARGE, {"If-None-Match": tag})
    assert (again.status, again.headers["vary"]) == (304, "Accept-Encoding")


@pytest.mark.parametrize("form", ["{tag}", '"other", {tag}', 'W/"a,b",{tag} , W/"c"', "{strong}", "*"])
def test_an_answer_with_a_known_tag_is_not_sent_again(server: Served, form: str) -> None:
    path = f"{S}/api/v0/actors"
    tag = server.get(path).headers["etag"]
    answer = server.get(path, {"If-None-Match": form.format(tag=tag, strong=tag.removeprefix("W/"))})
    assert (answer.status, answer.body) == (304, b"")
    assert (answer.headers["etag"], answer.headers["cache-control"]) == (tag, "private, max-age=60")
    latest = server.get(path.replace(captured().session, "latest"))
    assert latest.headers["cache-control"] == "no-cache", "it may be another session in a minute"


def test_an_answer_with_another_tag_is_sent(server: Served) -> None:
    path = f"{S}/api/v0/actors"
    tag = server.get(path).headers["etag"]
    for other in ('"*"', tag[:-2] + '"', tag.strip('W/"'), 'W/"other"'):
        assert server.get(path, {"If-None-Match": other}).status == 200, other
    assert server.get(f"{S}/api/jobs/nope", {"If-None-Match": "*"}).status == 404


def test_head_has_the_headers_of_get(server: Served) -> None:
    answer = server.get(f"{S}/api/v0/nodes", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_writing_methods_are_refused_with_the_allowed_ones(server: Served, method: str) -> None:
    answer = server.get(f"{S}/api/jobs/", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert server.get(f"{S}/login", method=method).headers.get("allow", "GET, HEAD") != "POST"


def test_refusals_of_sign_in_routes_allow_post(server: Served) -> None:
    assert server.get("/login", method="PUT").headers["allow"] == "GET, HEAD, POST"
    assert server.get("/logout", method="DELETE").headers["allow"] == "POST"
    assert server.get("/s/a/b/c/login", method="POST").headers["allow"] == "GET, HEAD"


def test_overlong_numbers_are_refused(server: Served) -> None:
    answer = server.get(f"{S}/api/v0/tasks?limit=99999999999999999999999")
    assert (answer.status, answer.json["msg"]) == (400, "invalid limit: 23 digits, expected at most 18")
    assert "at most 18" in server.get(f"{S}/api/v0/tasks?limit={'9' * 5000}").json["msg"]
    assert "expected an integer" in server.get(f"{S}/api/v0/tasks?limit=1e3").json["msg"]
    assert len(server.get(f"{S}/api/v0/tasks?limit=%2B{'0' * 30}2").rows) == 2


def test_cookies_stay_below_the_base_path(store: Store, tmp_path: Path, server: Served) -> None:
    with served(store, tmp_path / "cache", AppConfig(base_path="/hist")) as below:
        assert "Path=/hist;" in below.get("/hist/enter_cluster/default/demo/latest").headers["set-cookie"]
    assert "Path=/;" in server.get("/enter_cluster/default/demo/latest").headers["set-cookie"]


MISSING = (
    "/api/jobs/nope",
    "/api/jobs/nope/logs",
    "/api/v0/logs?node_id=zzz",
    "/api/v0/logs/file?node_id=zzz&filename=x",
    "/logs/nope.log",
    "/static/nope.js",
    "/test/dump",
)


@pytest.mark.parametrize("path", MISSING)
def test_a_ray_that_forwards_requests_gets_410_instead_of_404(server: Served, path: str) -> None:
    plain = server.get(S + path)
    passed_on = server.get(S + path, THROUGH_RAY)
    assert (plain.status, passed_on.status) == (404, 410)
    assert passed_on.body == plain.body
    assert server.get("/s/default/nope/latest" + path, THROUGH_RAY).status == 410


def test_metrics_have_exact_counts_of_any_size(server: Served) -> None:
    statistics, cache_size = RequestStatistics(), CacheSize(server.sessions.indexer.cache)
    for number in (999_999, 12_345_678, 12_345_679):
        statistics.requests["GET", 200], statistics.seconds = number, number + 0.125
        values = ServerMetrics(statistics, Connections(), server.sessions, Fleet(), cache_size)
        told = bytes(metrics(values).body).decode()
        numbers = dict(line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
        assert float(numbers['ray_history_requests_total{method="GET",status="200"}']) == number
        assert float(numbers["ray_history_request_seconds_total"]) == number + 0.125


def test_an_overlong_address_is_refused_in_plain_text(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 414 ")
    assert b"text/plain" in answer
