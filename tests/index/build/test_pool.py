"""Builds run in processes with limits, which end with their server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.engine import Cancelled, Limits
from ray_history.history.read.tables import Tables
from ray_history.index.build import pool as pools
from ray_history.index.build.confinement import why_unconfined
from ray_history.index.build.order import BuildFailed, Progress
from ray_history.index.build.pool import BuildPool
from ray_history.index.build.usage import memory_of
from ray_history.index.cache import Cache, Opened
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from tests.support.captured import write_archive
from tests.support.waiting import until

LIMITS = Limits(512 << 20, 1)


class HostileStandIn:
    """A store whose event files of one cluster are never read to their end, in one of several ways."""

    def __init__(self, archive: Path, ways: dict[str, str]) -> None:
        self._archive, self._store, self._ways = archive, open_store(DirectorySettings(archive)), ways

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str) -> bytes:
        way = next((way for cluster, way in self._ways.items() if f"/{cluster}/" in key and "_events/" in key), "")
        if way == "hangs":
            time.sleep(600)
        while way == "spins":
            pass
        if way == "unreachable":
            raise Unreachable("no route to the bucket")
        if way == "escapes":
            (self._archive.parent / "stolen").write_text("from the bucket")
        if way == "breaks":
            raise LookupError("what no one expects")
        return self._store.get(key)


def in_process(archive: Path, ways: dict[str, str]) -> Indexer:
    """What a build process makes its indexer with."""
    return Indexer(HostileStandIn(archive, ways), Cache(archive.parent / "unused", 1))  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    for cluster in ("calm", "hostile"):
        write_archive(made, Generation.C, Cluster("team", cluster))
    return made


@pytest.fixture
def serve(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Indexer]]:
    """Makes indexers that build in processes."""
    made: list[Indexer] = []
    monkeypatch.setenv("PYTHONPATH", os.getcwd())  # for the stand-in, in the build processes

    def make(way: str = "", *, seconds: int = 100, disk: int = 1 << 30) -> Indexer:
        factory = partial(in_process, tmp_path / "archive", {"hostile": way} if way else {})
        pool = BuildPool(factory, LIMITS, tmp_path / "cache", processor_seconds=seconds, disk=disk)
        made.append(Indexer(store, Cache(tmp_path / "cache", 1 << 30), LIMITS, share=False, builds=pool))
        return made[-1]

    yield make
    for indexer in made:
        indexer.close()


def pool_of(indexer: Indexer) -> BuildPool:
    assert isinstance(indexer.builds, BuildPool)
    return indexer.builds


def session_of(indexer: Indexer, cluster: str) -> Session:
    (session,) = read_catalog(indexer.store).find("team", cluster, None).sessions
    return session


def opened(indexer: Indexer, cluster: str = "calm", **more: Any) -> Opened:
    return indexer.open(session_of(indexer, cluster), **more)


def running(indexer: Indexer) -> int:
    """The process of the only build, once it runs."""
    (worker,) = until(lambda: {worker for worker in list(pool_of(indexer)._running) if worker.builds})
    return worker.pid


def spare(indexer: Indexer) -> int:
    """The process that waits for an order."""
    found = until(lambda: pool_of(indexer)._spare)
    return found.result().pid


def leftovers(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").glob("*/new-*"))


def test_a_process_makes_the_same_index(serve: Callable[..., Indexer], store: Store, tmp_path: Path) -> None:
    progress: list[Progress] = []
    with opened(serve(), report=progress.append) as elsewhere:
        stages = list(dict.fromkeys(each.stage for each in progress))
        assert stages == ["listing", "reading events", "making tables", "ready"]
        assert progress[-1].events == sum(elsewhere.manifest.events.values())
        with opened(Indexer(store, Cache(tmp_path / "here", 1 << 30), share=False)) as here:
            assert elsewhere.manifest.rows == here.manifest.rows
            assert elsewhere.manifest.facts == here.manifest.facts
            assert elsewhere.manifest.sources == here.manifest.sources
            for table in ("tasks", "actors", "nodes"):
                rows = [_rows(each.directory, table) for each in (elsewhere, here)]
                assert rows[0] == rows[1]


def _rows(directory: Path, table: str) -> list[tuple[Any, ...]]:
    tables = Tables(directory)
    try:
        return tables.rows(f"select * from {tables.source(table)} order by all")
    finally:
        tables.close()


def test_the_next_session_is_built_by_the_same_process(serve: Callable[..., Indexer]) -> None:
    indexer = serve()
    indexer.prepare()
    pid = spare(indexer)
    opened(indexer, "calm").close()
    opened(indexer, "hostile").close()
    assert spare(indexer) == pid


def test_a_used_process_gives_its_memory_back(serve: Callable[..., Indexer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_RENEWED_AFTER", 0.01)
    indexer = serve()
    indexer.prepare()
    pid = spare(indexer)
    opened(indexer).close()
    until(lambda: memory_of(pid) == 0, "the end of the used process")
    assert spare(indexer) != pid


def test_a_process_that_died_while_it_waited_is_replaced(serve: Callable[..., Indexer]) -> None:
    indexer = serve()
    indexer.prepare()
    os.kill(spare(indexer), signal.SIGKILL)
    with opened(indexer) as found:
        assert found.manifest.rows["nodes"] == 2


def test_a_cancelled_build_ends_its_process(serve: Callable[..., Indexer], tmp_path: Path) -> None:
    indexer, cancel = serve("hangs"), CancelToken()
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(opened, indexer, "hostile", cancel=cancel)
        pid = running(indexer)
        assert leftovers(tmp_path) != []
        cancel.cancel()
        with pytest.raises(Cancelled):
            opening.result(60)
    assert memory_of(pid) == 0
    assert leftovers(tmp_path) == []


def test_closing_ends_running_builds(serve: Callable[..., Indexer], tmp_path: Path) -> None:
    indexer = serve("hangs")
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(opened, indexer, "hostile")
        pid = running(indexer)
        indexer.close()
        assert opening.exception(60) is not None
    assert memory_of(pid) == 0
    assert leftovers(tmp_path) == []


def test_a_build_that_takes_too_much_memory_is_ended(
    serve: Callable[..., Indexer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SMALL_LIMIT", 16 << 20)
    monkeypatch.setattr(pools, "EXTRA_MEMORY", -LIMITS.memory + (16 << 20))
    indexer = serve("hangs")
    with pytest.raises(BuildFailed, match="16 MiB of memory; see --build-memory") as failed:
        opened(indexer, "hostile")
    assert failed.value.reason == "memory"
    assert leftovers(tmp_path) == []


def test_a_small_session_that_needs_much_memory_gets_it(
    serve: Callable[..., Indexer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SMALL_LIMIT", 16 << 20)
    with opened(serve()) as found:
        assert found.manifest.rows["nodes"] == 2


def test_a_build_that_takes_too_long_is_ended(
    serve: Callable[..., Indexer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SMALL", 0)
    with pytest.raises(BuildFailed, match=r"\d s of processor time; see --build-seconds") as failed:
        opened(serve("spins", seconds=1), "hostile")
    assert failed.value.reason == "time"
    assert leftovers(tmp_path) == []


def test_a_build_that_fills_the_disk_is_ended(serve: Callable[..., Indexer], tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="0 MiB of disk; see --cache-size") as failed:
        opened(serve("hangs", disk=1), "hostile")
    assert failed.value.reason == "disk"
    assert leftovers(tmp_path) == []


def test_errors_come_back_as_what_they_are(
    serve: Callable[..., Indexer], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with pytest.raises(Unreachable, match="no route to the bucket"):
        opened(serve("unreachable"), "hostile")
    with pytest.raises(BuildFailed, match="LookupError; see the server log") as failed:
        opened(serve("breaks"), "hostile")
    assert failed.value.reason == "error"
    assert "LookupError: what no one expects" in caplog.text
    assert leftovers(tmp_path) == []


@pytest.mark.skipif(bool(why_unconfined()), reason=why_unconfined())
def test_a_build_writes_to_the_cache_only(serve: Callable[..., Indexer], tmp_path: Path) -> None:
    with pytest.raises(PermissionError):
        opened(serve("escapes"), "hostile")
    assert not (tmp_path / "stolen").exists()
    assert leftovers(tmp_path) == []


def test_builds_go_on_after_the_cache_was_removed(serve: Callable[..., Indexer], tmp_path: Path) -> None:
    indexer = serve()
    opened(indexer, "calm").close()
    shutil.rmtree(tmp_path / "cache")
    with opened(indexer, "calm") as found:
        assert found.manifest.rows["nodes"] == 2


def test_a_small_session_does_not_wait_for_a_large_one(
    serve: Callable[..., Indexer], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexer, cancel = serve("hangs"), CancelToken()
    monkeypatch.setattr(pools, "SMALL", 4 << 20)
    large = session_of(indexer, "hostile")
    prefix = layout.session_prefix(large.root, large.cluster, large.name)
    store.put(f"{prefix}/fetched_endpoints/restful__api__padding", b'"%s"' % (b"x" * (5 << 20)))
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(indexer.open, large, cancel=cancel)
        running(indexer)
        opened(indexer, "calm").close()
        assert not opening.done()
        cancel.cancel()
        assert isinstance(opening.exception(60), Cancelled)


def test_a_build_in_the_background_makes_way(serve: Callable[..., Indexer]) -> None:
    indexer = serve("hangs")
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(opened, indexer, "hostile", is_background=True)
        running(indexer)
        opened(indexer, "calm").close()
        assert isinstance(opening.exception(60), Cancelled)


SERVER = """
import sys
from pathlib import Path
from tests.index.build.test_pool import *

archive = Path(sys.argv[1])
cache = archive.parent / "cache"
factory = partial(in_process, archive, {"hostile": "hangs"})
pool = BuildPool(factory, LIMITS, cache, processor_seconds=100, disk=1 << 30)
indexer = Indexer(open_store(DirectorySettings(archive)), Cache(cache, 1 << 30), builds=pool)
threads = ThreadPoolExecutor(1)
threads.submit(opened, indexer, "hostile")
print(running(indexer), flush=True)
"""


@pytest.mark.usefixtures("store")
def test_a_build_ends_with_its_server(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVER, str(tmp_path / "archive")]
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert memory_of(pid) > 0
        server.kill()
    until(lambda: memory_of(pid) == 0, "the end of the build process")
