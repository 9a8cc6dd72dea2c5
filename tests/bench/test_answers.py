"""The comparison of two servers: which differences count, and the archive that they read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.answers import archive
from bench.answers.differences import difference
from bench.answers.servers import Answer
from ray_history.archive.catalog import read_catalog
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings

JSON = ("content-type", "application/json")
HTML = ("content-type", "text/html; charset=utf-8")


def answer(body: object, *headers: tuple[str, str], status: int = 200) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return Answer(status, [*headers, ("date", "now")], text.encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (answer({"a": 1, "b": 2}, JSON), answer({"b": 2, "a": 1}, JSON)),
        (answer("x", ("x-request-id", "1")), answer("x", ("x-request-id", "2"))),
        (
            answer("<link href='/_pages/style.0123456789ab.css'>", HTML),
            answer("<link href='/_pages/style.ba9876543210.css'>", HTML),
        ),
        (
            Answer(200, [JSON, ("content-encoding", "gzip")], gzip.compress(b"[1]", 1)),
            Answer(200, [JSON, ("content-encoding", "gzip")], gzip.compress(b"[1]", 9)),
        ),
    ],
    ids=["key order", "request id", "digest of a style sheet", "compression level"],
)
def test_what_may_differ_is_ignored(before: Answer, after: Answer) -> None:
    assert difference("/x", before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (answer("x"), answer("x", status=404), "status"),
        (answer("x"), answer("x", ("cache-control", "no-store")), "headers"),
        (answer({"a": 1}, JSON), answer({"a": 2}, JSON), "data"),
        (answer({"state": "ALIVE"}, JSON), answer({"state": "DEAD"}, JSON), "data"),
        (answer({"msg": "so many rows"}, JSON), answer({"msg": "too many rows"}, JSON), "text"),
        (answer("<p>so many</p>", HTML), answer("<b>too many</b>", HTML), "text"),
        (answer("<p>5 tasks</p>", HTML), answer("<p>6 jobs</p>", HTML), "facts"),
        (answer("<a href='/x'>x</a>", HTML), answer("<a href='/y'>x</a>", HTML), "facts"),
        (answer("<p>so many</p>", HTML), answer("<p>too many</p>", HTML), "text"),
        (answer("a", ("content-type", "text/plain")), answer("b", ("content-type", "text/plain")), "text"),
        (answer("a", ("content-type", "image/png")), answer("b", ("content-type", "image/png")), "binary"),
    ],
)
def test_differences_are_sorted_by_kind(before: Answer, after: Answer, kind: str) -> None:
    found = difference("/x", before, after)
    assert found
    assert found.kind == kind
    assert found.changes


def test_the_order_of_spans_in_a_timeline_does_not_count() -> None:
    spans = [{"name": "a"}, {"name": "b"}]
    before, after = answer(spans, JSON), answer(spans[::-1], JSON)
    assert difference("/api/v0/tasks/timeline", before, after) is None
    assert difference("/api/v0/tasks", before, after) is not None


def test_the_archive_holds_every_session_that_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FEW_TASKS", 100)
    monkeypatch.setattr(archive, "MANY_TASKS", 200)
    targets = archive.write(tmp_path)
    sessions = read_catalog(open_store(DirectorySettings(tmp_path))).sessions
    assert {(s.cluster.namespace, s.cluster.name) for s in sessions} == {
        (target.cluster.namespace, target.cluster.name) for target in targets
    }
    assert sum(target.thorough for target in targets) == 2
