"""The HTTP side: acknowledgements, refusals, routing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.collector.ingest.http import GroupCommit, IngestApp
from ray_history.collector.ingest.spool import Spool
from ray_history.collector.ingest.status_pages import pages

from .test_status_pages import STATUS


class CountingSpool(Spool):
    """A spool that counts its syncs."""

    appends = 0

    def append(self, bodies: Any) -> None:
        self.appends += 1
        super().append(bodies)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[CountingSpool]:
    spool = CountingSpool(tmp_path / "spool", max_bytes=100_000)
    yield spool
    spool.close()


@pytest.fixture
def app(spool: CountingSpool) -> Iterator[IngestApp]:
    commit = GroupCommit(spool)
    yield IngestApp(commit, pages(lambda: STATUS), body_bytes=10_000)
    commit.stop()


def kept(spool: Spool) -> list[bytes]:
    spool.seal()
    return [body for segment in spool.sealed() for body in spool.read(segment)]


async def request(
    app: IngestApp,
    method: str = "POST",
    path: str = "/v1/events",
    chunks: tuple[bytes, ...] = (b"",),
    cut: bool = False,
    kind: bytes = b"application/json",
) -> tuple[int | None, dict[str, str], bytes]:
    messages = [
        {"type": "http.request", "body": chunk, "more_body": cut or number < len(chunks) - 1}
        for number, chunk in enumerate(chunks)
    ]
    if cut:
        messages.append({"type": "http.disconnect"})
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"content-type", kind)] if kind else []}
    await app(scope, receive, send)
    if not sent:
        return None, {}, b""
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"]


def post(app: IngestApp, *chunks: bytes, cut: bool = False) -> tuple[int | None, dict[str, str], bytes]:
    return asyncio.run(request(app, chunks=chunks, cut=cut))


def get(app: IngestApp, path: str, method: str = "GET") -> tuple[int | None, dict[str, str], bytes]:
    return asyncio.run(request(app, method, path))


def test_an_acknowledged_batch_is_in_the_spool_byte_for_byte(app: IngestApp, spool: CountingSpool) -> None:
    assert post(app, b'[{"a"', b": 1}]")[0] == 200
    assert kept(spool) == [b'[{"a": 1}]']


@pytest.mark.parametrize("body", [b"not json", b"", b"\xff\x00", b"[{]", b'{"an": "object"}'])
def test_an_unparsable_batch_is_stored_and_acknowledged(app: IngestApp, spool: CountingSpool, body: bytes) -> None:
    assert post(app, body)[0] == 200
    assert kept(spool) == [body]


def test_batches_that_arrive_together_share_a_sync(app: IngestApp, spool: CountingSpool) -> None:
    async def burst() -> list[Any]:
        return await asyncio.gather(*(request(app, chunks=(f"[{n}]".encode(),)) for n in range(50)))

    assert {answer[0] for answer in asyncio.run(burst())} == {200}
    assert sorted(kept(spool)) == sorted(f"[{n}]".encode() for n in range(50))
    assert spool.appends < 50


def test_a_batch_sent_again_is_acknowledged_and_counted_once(app: IngestApp, spool: CountingSpool) -> None:
    body = json.dumps([{"eventId": str(n)} for n in range(3)]).encode()
    assert [post(app, body)[0] for _ in range(3)] == [200, 200, 200]
    assert kept(spool) == [body]
    assert app.duplicated == 6


def test_a_batch_over_the_limit_is_refused_and_counted(app: IngestApp, spool: CountingSpool) -> None:
    status, _, body = post(app, b"x" * 6000, b"x" * 6000)
    assert status == 413
    assert b"larger than 10000 bytes" in body
    assert kept(spool) == []
    assert app.refused["too large"] == 1
    assert post(app, b"[]")[0] == 200, "the room it took is free again"


def test_a_full_spool_refuses_batches_until_there_is_space(app: IngestApp, spool: CountingSpool) -> None:
    statuses = [post(app, str(n).encode() * 2000)[0] for n in range(40)]
    assert set(statuses) == {200, 503}
    status, headers, _ = post(app, b"y" * 9000)
    assert (status, headers["retry-after"]) == (503, "10")
    spool.seal()
    for segment in spool.sealed():
        spool.remove(segment)
    assert post(app, b"[1]")[0] == 200


def test_a_sender_that_leaves_in_the_middle_leaves_nothing(app: IngestApp, spool: CountingSpool) -> None:
    assert post(app, b"[1,", cut=True)[0] is None
    assert kept(spool) == []


@pytest.mark.parametrize("kind", [b"", b"text/plain", b"application/x-www-form-urlencoded", b"application/jsonp"])
def test_only_json_is_taken(app: IngestApp, spool: CountingSpool, kind: bytes) -> None:
    status, headers, body = asyncio.run(request(app, chunks=(b"[]",), kind=kind))
    assert (status, body) == (415, b"a batch is not sent as application/json\n")
    assert headers["connection"] == "close"
    assert kept(spool) == []
    assert app.refused["content type"] == 1


@pytest.mark.parametrize("kind", [b"application/json; charset=utf-8", b"Application/JSON"])
def test_json_may_name_its_charset(app: IngestApp, kind: bytes) -> None:
    assert asyncio.run(request(app, chunks=(b"[]",), kind=kind))[0] == 200


def test_other_paths_and_methods_are_refused(app: IngestApp) -> None:
    assert get(app, "/v1/events")[0] == 405
    assert get(app, "/")[0] == 404
    assert get(app, "/metrics", "POST")[0] == 405


def test_the_status_pages(app: IngestApp) -> None:
    assert get(app, "/healthz")[2] == b"ok\n"
    assert get(app, "/readyz")[0] == 200
    assert get(app, "/readyz", "HEAD") == (
        200,
        {"content-type": "text/plain; charset=utf-8", "content-length": "0"},
        b"",
    )
    assert json.loads(get(app, "/v1/status")[2]) == STATUS
