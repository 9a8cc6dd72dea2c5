"""The whole objects of one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_history.archive.errors import Unreachable
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.memory import MemorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.logs.objects import SAMPLE, Interrupted, Objects, StoredObject, chunks
from ray_history.collector.logs.state import DeletedFile, LogState, Stream, TrackedFile, WholeObject

from .log_archive import CLUSTER, NODE, SESSION, Watched

UNTIL_NS = 1_700_000_000 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Watched:
    place: Store = open_store(MemorySettings(str(tmp_path)))
    return Watched(place)


@pytest.fixture
def objects(store: Watched, tmp_path: Path) -> Objects:
    return Objects(Destination(store, CLUSTER), SESSION, NODE, LogState(tmp_path / "state.json", SESSION, NODE))


def add(objects: Objects, name: str, content: bytes, **fields: object) -> None:
    objects.upload(name, iter([content]))
    objects.record(name, StoredObject(len(content), **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "content", "is_prefix"),
    [
        (b"", b"anything", True),
        (b"abc", b"abc", True),
        (b"abc", b"abcdef", True),
        (b"abcdef", b"abc", False),
        (b"abc", b"abd", False),
        (b"x" * SAMPLE + b"a", b"x" * SAMPLE + b"ab", True),
        (b"x" * SAMPLE + b"a", b"x" * SAMPLE + b"b", False),
    ],
)
def test_an_object_is_compared_by_its_first_and_last_bytes(
    objects: Objects, stored: bytes, content: bytes, is_prefix: bool
) -> None:
    add(objects, "a.log", stored)
    assert objects.is_prefix("a.log", len(content), lambda start, end: content[start:end]) is is_prefix


def test_a_preserved_name_is_free_or_has_the_same_content(objects: Objects) -> None:
    def find(content: bytes) -> tuple[str, bool]:
        return objects.preserved_name("a.log", UNTIL_NS, len(content), lambda start, end: content[start:end])

    name = "a.log.until-20231114T221320Z"
    assert find(b"one") == (name, False)
    objects.reserved.add(name)
    assert find(b"one") == (f"{name}-2", False)
    objects.reserved.clear()
    add(objects, name, b"one")
    assert find(b"one") == (name, True)
    assert find(b"two") == (f"{name}-2", False)
    objects.mark_stale(name)
    assert find(b"two") == (name, False)


def test_after_a_failed_put_the_object_is_read_from_the_store(objects: Objects, store: Watched) -> None:
    for arrives in (False, True):
        store.fails, store.arrives = lambda operation, _key: operation == "put_stream", lambda arrives=arrives: arrives
        with pytest.raises(Unreachable):
            objects.upload("a.log", iter([b"abc"]))
        found = objects.at("a.log")
        assert (found is not None) is arrives
    assert found is not None
    assert (found.size, found.is_identified, found.owner) == (3, False, None)
    store.requests.clear()
    assert objects.at("a.log") is found
    assert not store.requests


def test_a_copy_falls_back_to_a_download(objects: Objects, store: Watched) -> None:
    add(objects, "a.log", b"abc")
    store.fails = lambda operation, _key: operation == "copy"
    objects.copy("a.log", "b.log")
    assert store.get(objects.key("b.log")) == b"abc"


def test_etags_are_read_once_after_a_change(objects: Objects, store: Watched) -> None:
    file = TrackedFile(1, 2, "a.log", "a.log", whole=WholeObject("a.log", 3, 0))
    add(objects, "a.log", b"abc", owner=file)
    objects.refresh_etags()
    assert file.whole is not None
    assert file.whole.etag == objects.by_name["a.log"].etag == store.head(objects.key("a.log")).etag
    store.requests.clear()
    objects.refresh_etags()
    assert not store.requests


def test_only_stale_objects_are_deleted(objects: Objects, store: Watched) -> None:
    add(objects, "a.log", b"a")
    add(objects, "b.log", b"b", owner=DeletedFile("b.log", 0, [Stream("b.log", 1)]))
    objects.delete_stale()
    assert set(objects.list()) == {"a.log", "b.log"}
    objects.mark_stale("b.log")
    objects.delete_stale()
    assert set(objects.list()) == set(objects.by_name) == {"a.log"}


def test_a_file_that_becomes_shorter_interrupts_its_upload(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with (tmp_path / "a").open("rb") as file:
        assert b"".join(chunks(file.fileno(), 3, lambda: None)) == b"abc"
        with pytest.raises(Interrupted, match="became shorter"):
            list(chunks(file.fileno(), 4, lambda: None))
