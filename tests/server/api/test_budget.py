"""What the answer to one request may cost, and how it says which limit it met."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.steps import SURROUND
from ray_history.server.api import listing
from ray_history.server.app import AppConfig
from ray_history.server.http.budget import Budget, OverBudget
from tests.history.rebuilt import rebuild
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

TASKS = f"/s/default/demo/{captured().session}/api/v0/tasks"
ENDLESS = "select count(*) from range(1_000_000_000_000) as a"


@contextmanager
def limited(folder: Path, budget: Budget) -> Iterator[Served]:
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, folder / "cache", AppConfig(budget=budget)) as server:
        yield server


def test_rows_beyond_the_limit_are_left_out_and_the_answer_says_so(tmp_path: Path) -> None:
    with limited(tmp_path, Budget(rows=7)) as server:
        whole = server.get(f"{TASKS}?limit=7").json["data"]["result"]
        cut = server.get(f"{TASKS}?limit=1000&cursor=").json["data"]["result"]
        assert len(cut["result"]) == len(whole["result"]) == 7
        assert "first 7 rows" in cut["partial_failure_warning"]
        assert "--answer-rows" in cut["partial_failure_warning"]
        following = server.get(f"{TASKS}?limit=1000&cursor={cut['next_cursor']}").json["data"]["result"]["result"]
        assert not {row["task_id"] for row in following} & {row["task_id"] for row in cut["result"]}
        few = server.get(f"{TASKS}?limit=3").json["data"]["result"]
        assert "--answer-rows" not in (few["partial_failure_warning"] or "")


def test_a_long_listing_ends_with_a_note_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "BUFFERED_MAX", 5)
    monkeypatch.setattr(listing, "_RESERVED", 8 << 10)
    with limited(tmp_path, Budget(size=64 << 10)) as server:
        answer = server.get(f"{TASKS}?limit=300&detail=1&sort=task_id")
        assert answer.status == 200
        assert 300 > len(answer.rows) >= 0
        assert "--answer-size" in answer.json["data"]["result"]["partial_failure_warning"]
        assert len(answer.body) <= 64 << 10


def test_queries_are_interrupted_and_the_answer_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(query: listing.ListingQuery) -> listing.Counts:
        return listing.Counts(*query.request.tables.rows(ENDLESS)[0], 0)

    monkeypatch.setattr(listing.ListingQuery, "counts", endless)
    with limited(tmp_path, Budget(seconds=1)) as server:
        for accept in ("*/*", "text/html"):
            answer = server.get(TASKS, {"Accept": accept})
            assert answer.status == 503
            assert b"--query-timeout" in answer.body
        assert server.get(TASKS.replace("tasks", "nodes") + "?filter_keys=x").status == 400
        assert server.get("/livez").status == 200


def test_the_time_of_all_queries_of_a_request_counts(tmp_path: Path) -> None:
    tables = rebuild(tmp_path).tables
    before = SURROUND.set(Budget(seconds=0.5).timed)
    try:
        with pytest.raises(OverBudget, match=r"more than 0\.5 s \(--query-timeout\)"):
            tables.rows(ENDLESS)
        with pytest.raises(OverBudget):
            tables.rows(ENDLESS)
        with pytest.raises(OverBudget):
            list(tables.stream(ENDLESS))
        assert not tables.is_doubtful
    finally:
        SURROUND.reset(before)
    assert tables.rows("select 1") == [(1,)]


def test_other_interruptions_are_not_taken_for_it() -> None:
    budget = Budget(seconds=1000)
    with duckdb.connect() as database, pytest.raises(duckdb.InterruptException), budget.timed(database):
        raise duckdb.InterruptException
