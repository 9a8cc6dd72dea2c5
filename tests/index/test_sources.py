"""Tables that do not come from events: a source as metrics would have one, with blocks of samples in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.history.engine import Cancelled
from ray_history.index.cache import Cache, Opened
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from tests.server.ui.written_sessions import ran, write_session

BLOCKS = "metrics"


class Samples:
    """Makes the table `samples` of blocks with one number per line; adds only new blocks to that of the base."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def list(self, store: Store, session: Session) -> Sequence[ObjectInfo]:
        return list(store.list(f"{BLOCKS}/{session.name}/"))

    def write(
        self, store: Store, objects: Sequence[ObjectInfo], directory: Path, base: Path | None, cancel: CancelToken
    ) -> Sequence[str]:
        problems = []
        with duckdb.connect() as database:
            database.execute("create table sample (block varchar, value bigint)")
            if base is not None and (base / "samples.parquet").exists():
                database.execute(f"insert into sample from '{base / 'samples.parquet'}'")
            indexed = {block for (block,) in database.execute("select distinct block from sample").fetchall()}
            for block in objects:
                cancel.check()
                if block.key in indexed:
                    continue
                self.read.append(block.key)
                try:
                    values = [(block.key, int(line)) for line in store.get(block.key).splitlines()]
                except ValueError as error:
                    problems.append(f"{block.key}: {error}")
                    continue
                database.executemany("insert into sample values (?, ?)", values)
            database.execute(f"copy sample to '{directory / 'samples.parquet'}' (format parquet)")
        return problems


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write_session(tmp_path, ran(1, "fine", 1, 2))


def put(store: Store, name: str, body: bytes) -> None:
    (session,) = read_catalog(store).sessions
    store.put(f"{BLOCKS}/{session.name}/{name}", body)


def opened(store: Store, cache: Path, source: Samples) -> Opened:
    (session,) = read_catalog(store).sessions
    return Indexer(store, Cache(cache, 1 << 30), table_sources=[source]).open(session)


def samples(opened: Opened) -> list[int]:
    rows = duckdb.sql(f"select value from '{opened.directory / 'samples.parquet'}' order by all").fetchall()
    return [value for (value,) in rows]


def test_tables_of_a_source_are_part_of_the_index(store: Store, tmp_path: Path) -> None:
    put(store, "1", b"7\n8\n")
    put(store, "2", b"nine\n")
    with opened(store, tmp_path / "here", Samples()) as index:
        assert samples(index) == [7, 8]
        assert index.manifest.rows["samples"] == 2
        assert index.manifest.rows["tasks"] == 1
        (problem,) = index.manifest.problems
        assert "invalid literal" in problem
    source = Samples()
    with opened(store, tmp_path / "there", source) as index:
        assert (samples(index), source.read) == ([7, 8], []), "downloaded from the archive"


def test_a_new_object_extends_the_tables(store: Store, tmp_path: Path) -> None:
    put(store, "1", b"7\n")
    opened(store, tmp_path / "cache", Samples()).close()
    put(store, "2", b"9\n")
    source = Samples()
    with opened(store, tmp_path / "cache", source) as index:
        assert samples(index) == [7, 9]
        assert [key.rpartition("/")[2] for key in source.read] == ["2"]


def test_a_cancelled_source_leaves_no_index(store: Store, tmp_path: Path) -> None:
    put(store, "1", b"7\n")
    (session,) = read_catalog(store).sessions
    cancel = CancelToken()

    class Cancelling(Samples):
        def write(self, *arguments: object) -> Sequence[str]:
            cancel.cancel()
            return super().write(*arguments)  # type: ignore[arg-type]

    cache = Cache(tmp_path / "cache", 1 << 30)
    with pytest.raises(Cancelled):
        Indexer(store, cache, table_sources=[Cancelling()]).open(session, cancel=cancel)
    assert cache.used_bytes() == 0
