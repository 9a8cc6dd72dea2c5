"""Prebuilding of indexes in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.engine import Limits
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.overview import OverviewCache
from ray_history.server.sessions.prebuild import MOST_BYTES, Prebuilder
from tests.server.ui.fleets import write_fleet
from tests.support.captured import write_archive
from tests.support.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    return store


@contextmanager
def indexing(
    store: Store, cache: Path, newest: int = 10, idle: Callable[[], bool] = lambda: True, most_bytes: int = MOST_BYTES
) -> Iterator[Indexer]:
    indexer = Indexer(store, Cache(cache, 1 << 30), Limits(512 << 20, 2))
    known = OverviewCache(store, indexer.summaries, cache / "summaries")
    ahead = Prebuilder(indexer, SessionCatalog(store, 0.0), known, newest, idle, most_bytes=most_bytes, pause=0.02)
    ahead.start()
    try:
        yield indexer
    finally:
        ahead.stop()


def summarized(indexer: Indexer) -> set[str]:
    return {found.key.split("/")[-2] for _, found in indexer.summaries.list()}


def test_the_newest_sessions_are_prebuilt(store: Store, tmp_path: Path) -> None:
    write_fleet(store, 3, 1_700_000_000.0, summarized=False)
    with indexing(store, tmp_path / "cache", newest=2) as indexer:
        until(lambda: len(summarized(indexer)) == 2)
        assert "demo" in summarized(indexer)
    assert len(summarized(indexer)) == 2
    assert any(found.key.endswith("manifest.json") for found in store.list("history-index"))


def test_prebuilding_waits_while_requests_run(store: Store, tmp_path: Path) -> None:
    asked = threading.Semaphore(0)
    busy = threading.Event()

    def idle() -> bool:
        asked.release()
        return not busy.is_set()

    busy.set()
    with indexing(store, tmp_path / "cache", idle=idle) as indexer:
        for _ in range(3):
            assert asked.acquire(timeout=60)
        assert summarized(indexer) == set()
        busy.clear()
        until(lambda: summarized(indexer) == {"demo"})


def test_a_session_over_the_size_limit_is_skipped(store: Store, tmp_path: Path) -> None:
    write_fleet(store, 1, 1_700_000_000.0, summarized=False)
    with indexing(store, tmp_path / "cache", most_bytes=1000) as indexer:
        until(lambda: len(summarized(indexer)) == 1)
        assert "demo" not in summarized(indexer)


def test_a_damaged_session_does_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    write_fleet(store, 2, 1_900_000_000.0, summarized=False)
    for found in list(store.list("history-ledger")):
        store.put(found.key, b"\xff{not json")
    with indexing(store, tmp_path / "cache") as indexer:
        until(lambda: "demo" in summarized(indexer))


def test_one_process_of_a_machine_prebuilds_and_another_takes_over(store: Store, tmp_path: Path) -> None:
    asked = threading.Event()

    def idle() -> bool:
        asked.set()
        return True

    with indexing(store, tmp_path / "cache") as first:
        until(lambda: summarized(first) == {"demo"})
        with indexing(store, tmp_path / "cache", idle=idle):
            write_archive(store, Generation.C, Cluster("default", "more"))
            until(lambda: summarized(first) == {"demo", "more"})
            assert not asked.is_set()
    write_archive(store, Generation.C, Cluster("default", "last"))
    with indexing(store, tmp_path / "cache", idle=idle) as third:
        until(lambda: "last" in summarized(third))
    assert asked.is_set()


def test_zero_disables_prebuilding_and_stopping_is_immediate(store: Store, tmp_path: Path) -> None:
    with indexing(store, tmp_path / "cache", newest=0) as indexer:
        assert not [thread for thread in threading.enumerate() if thread.name == "index-ahead"]
    assert summarized(indexer) == set()
