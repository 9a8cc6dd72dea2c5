"""One suite for every store: real servers where there are any, stand-ins where there are none."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest

from ray_history.archive.errors import Misconfigured, NotFound, Unreachable
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.cloud import PART_SIZE

KINDS = ["directory", "memory", "seaweedfs", "azurite", "gcs stand-in", "oss stand-in"]

AWKWARD_KEYS = [
    "fetched_endpoints/restful__api__v0__placement_groups?detail=1&limit=10000",
    "job_events/AgAAAA==/node-2026-01-11-19",
    "logs/with space+plus%41percent",
    "logs/naïve/日本.log",
    "logs/a:b~c!d'(e)[f]{g}*",
    "logs/..hidden",
    "logs/deep/" + "/".join("abcdefgh") + "/file",
]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty, fresh place on each kind of store, created as a collector would create it."""
    root = f"t{secrets.token_hex(6)}"
    match request.param:
        case "directory":
            opened = open_store(resolve((tmp_path / root).as_uri(), Upstream(), {}))
        case "memory":
            opened = open_store(resolve(f"memory://{root}", Upstream(), {}))
        case "seaweedfs":
            opened = request.getfixturevalue("open_seaweedfs")(root)
        case "azurite":
            opened = request.getfixturevalue("open_azurite")(root)
        case "gcs stand-in":
            opened = request.getfixturevalue("open_gcs")(root)
        case _:
            opened = request.getfixturevalue("open_oss")(root)
    opened.check(create=True)
    return opened


def test_get_returns_the_put_bytes(store: Store) -> None:
    for body in (b"", b"x", bytes(range(256)) * 1000):
        store.put("a/b", body)
        assert store.get("a/b") == body
        assert b"".join(store.stream("a/b")) == body
        assert store.head("a/b").size == len(body)


@pytest.mark.parametrize("key", AWKWARD_KEYS)
def test_awkward_keys_are_stored_verbatim(store: Store, key: str) -> None:
    store.put(key, key.encode())
    assert [found.key for found in store.list()] == [key]
    assert store.get(key) == key.encode()
    assert store.head(key).key == key
    store.delete(key)
    assert list(store.list()) == []


def test_a_range_is_exact_and_shorter_only_at_the_end(store: Store) -> None:
    store.put("k", b"0123456789")
    assert store.get_range("k", 2, 3) == b"234"
    assert store.get_range("k", 8, 100) == b"89"
    assert store.get_range("k", 10, 5) == b""
    assert store.get_range("k", 50, 5) == b""
    assert store.get_range("k", 3, 0) == b""
    assert b"".join(store.stream("k", 4)) == b"456789"
    assert b"".join(store.stream("k", 10)) == b""
    assert b"".join(store.stream("k", 99)) == b""


def test_a_large_body_goes_up_in_parts_and_comes_back_whole(store: Store) -> None:
    body = os.urandom(PART_SIZE * 2 + 12345)
    assert store.put_stream("from/file", io.BytesIO(body)) == len(body)
    assert store.put_stream("from/pieces", (body[at : at + 999_999] for at in range(0, len(body), 999_999))) == len(
        body
    )
    store.put("whole", body)
    for key in ("from/file", "from/pieces", "whole"):
        assert store.head(key).size == len(body)
        assert b"".join(store.stream(key)) == body
        assert store.get_range(key, PART_SIZE - 5, 10) == body[PART_SIZE - 5 : PART_SIZE + 5]


@pytest.mark.parametrize("size", [0, 1, PART_SIZE - 1, PART_SIZE, PART_SIZE + 1])
def test_streams_of_any_size_are_stored(store: Store, size: int) -> None:
    assert store.put_stream("k", io.BytesIO(b"x" * size)) == size
    assert store.head("k").size == size


def test_an_upload_whose_source_fails_leaves_nothing(store: Store) -> None:
    class Broken(Exception):
        pass

    def source() -> Iterator[bytes]:
        yield b"x" * (PART_SIZE * 2)
        raise Broken

    with pytest.raises(Broken):
        store.put_stream("k", source())
    assert list(store.list()) == []
    store.put("k", b"old")
    with pytest.raises(Broken):
        store.put_stream("k", source())
    assert store.get("k") == b"old"


def test_create_stores_only_where_nothing_is(store: Store) -> None:
    assert store.create("k", b"first") is True
    assert store.create("k", b"second") is False
    assert store.get("k") == b"first"


def test_of_many_creators_one_wins(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda n: store.create("k", str(n).encode()), range(8)))
    assert outcomes.count(True) == 1
    assert store.get("k") == str(outcomes.index(True)).encode()


def test_a_put_replaces_and_changes_the_etag(store: Store) -> None:
    store.put("k", b"one")
    before = store.head("k")
    store.put("k", b"two!")
    after = store.head("k")
    assert store.get("k") == b"two!"
    assert before.etag != after.etag


def test_listing_is_recursive_and_by_whole_directory_names(store: Store) -> None:
    keys = {"a/1", "a/b/2", "a/b/c/3", "ab/4", "z"}
    for key in keys:
        store.put(key, key.encode())
    assert {found.key for found in store.list()} == keys
    assert {found.key: found.size for found in store.list("a")} == {"a/1": 3, "a/b/2": 5, "a/b/c/3": 7}
    assert list(store.list("nothing/here")) == []


def test_listing_one_level_returns_directories_and_objects(store: Store) -> None:
    for key in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "z"):
        store.put(key, b"x")
    level = store.list_level()
    assert set(level.directories) == {"a", "ab"}
    assert [found.key for found in level.objects] == ["z"]
    level = store.list_level("a/")
    assert set(level.directories) == {"a/b"}
    assert [found.key for found in level.objects] == ["a/1"]
    assert store.list_level("nowhere") == type(level)((), ())


def test_listings_longer_than_a_page_are_complete(store: Store) -> None:
    keys = [f"many/{n:04d}" for n in range(1100)]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda key: store.put(key, b"x"), keys))
    assert sorted(found.key for found in store.list("many")) == keys
    store.delete_many(keys[:1050])
    assert sorted(found.key for found in store.list("many")) == keys[1050:]


def test_deleting_a_missing_object_is_no_error(store: Store) -> None:
    store.put("k", b"x")
    store.delete("k")
    store.delete("k")
    store.put("a", b"x")
    store.delete_many(["missing", "a", "b/missing"])
    store.delete_many([])
    assert list(store.list()) == []


def test_a_deletion_is_repeated_once_if_the_connection_breaks(
    open_seaweedfs: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_seaweedfs(f"t{secrets.token_hex(6)}")
    store.put("k", b"x")
    delete, breaks = obstore.delete, [ConnectionResetError("reset")]

    def break_once(*arguments: Any) -> None:
        if breaks:
            raise breaks.pop()
        delete(*arguments)

    monkeypatch.setattr(obstore, "delete", break_once)
    store.delete("k")
    assert list(store.list()) == []
    breaks += [ConnectionResetError("reset"), ConnectionResetError("reset")]
    with pytest.raises(Unreachable):
        store.delete("k")


def test_a_missing_object_is_not_found_and_never_empty(store: Store) -> None:
    reads: list[Callable[[], object]] = [
        lambda: store.get("missing"),
        lambda: store.get_range("missing", 0, 10),
        lambda: list(store.stream("missing")),
        lambda: list(store.stream("missing", 10)),
        lambda: store.head("missing"),
    ]
    for read in reads:
        with pytest.raises(NotFound):
            read()


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../x", "a/../b", "./a", "a/.", "a\0b"])
def test_a_key_that_could_mean_another_object_is_refused(store: Store, key: str) -> None:
    operations: list[Callable[[], object]] = [
        lambda: store.put(key, b"x"),
        lambda: store.put_stream(key, [b"x"]),
        lambda: store.create(key, b"x"),
        lambda: store.get(key),
        lambda: list(store.stream(key)),
        lambda: store.get_range(key, 0, 1),
        lambda: store.head(key),
        lambda: store.delete(key),
    ]
    for operation in operations:
        with pytest.raises(Misconfigured, match="not a valid object key"):
            operation()


def test_many_threads_may_use_one_store(store: Store) -> None:
    def work(n: int) -> bool:
        store.put(f"t/{n}", str(n).encode() * 100)
        return store.get(f"t/{n}") == str(n).encode() * 100

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(80)))


@pytest.mark.parametrize("key", AWKWARD_KEYS)
def test_a_copy_is_the_same_object_under_another_key(store: Store, key: str) -> None:
    store.put(key, b"content")
    store.copy(key, key + ".1")
    assert store.get(key + ".1") == store.get(key) == b"content"
    assert {found.key for found in store.list()} == {key, key + ".1"}


def test_a_copy_replaces_and_is_a_thing_of_its_own(store: Store) -> None:
    body = os.urandom(PART_SIZE + 5)
    store.put_stream("a/source", io.BytesIO(body))
    store.put("b/target", b"old")
    store.copy("a/source", "b/target")
    store.delete("a/source")
    assert store.get("b/target") == body
    assert store.head("b/target").size == len(body)


def test_copying_a_missing_object_is_not_found_and_keeps_the_target(store: Store) -> None:
    store.put("target", b"old")
    with pytest.raises(NotFound):
        store.copy("missing", "target")
    assert store.get("target") == b"old"
    for source, target in (("../x", "target"), ("target", "a//b")):
        with pytest.raises(Misconfigured, match="not a valid object key"):
            store.copy(source, target)
