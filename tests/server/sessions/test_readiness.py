"""A cache that fails while the server runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import served
from tests.support.captured import captured, write_archive

S = f"/s/default/demo/{captured().session}"


def test_a_cache_that_fails_later_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.server.sessions.readiness._CHECK_SECONDS", 0.0)
    store, cache = open_store(DirectorySettings(tmp_path / "archive")), tmp_path / "cache"
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, cache) as server:
        for path in ("/readyz", "/readz"):
            assert (server.get(path).status, server.get(path).body) == (200, b"ok")
        shutil.rmtree(cache)
        cache.write_text("a file in its place")
        for path in ("/readyz", "/readz"):
            answer = server.get(path)
            assert (answer.status, answer.body) == (503, b"the local cache cannot be used: File exists")
        for accept in ("*/*", "text/html"):
            answer = server.get(f"{S}/api/v0/nodes", {"Accept": accept})
            assert answer.status == 503
            assert b"cannot be used" in answer.body
            assert b"--cache-dir" in answer.body
        assert server.get("/", {"Accept": "text/html"}).status == 200, "the list needs no cache"
        assert server.get("/clusters").status == 200
        assert server.get("/livez").body == b"ok"
        assert b"ray_history_cache_bytes NaN" in server.get("/metrics").body
        cache.unlink()
        assert server.get("/readyz").body == b"ok"
        assert server.get(f"{S}/api/v0/nodes").status == 200
