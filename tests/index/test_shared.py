"""The index in the archive: published by one server, downloaded by all, and always complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from urllib.parse import urlsplit

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, Denied, Unreachable
from ray_history.archive.layout import Cluster
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.index import shared
from ray_history.index.manifest import VERSION, Damaged, Manifest, SourceFile, check, describe, encode
from ray_history.index.shared import SharedIndex

SESSION = Session(Cluster("ns", "c1"), "session_2026-01-11_19-00-00_000000_1", 1768158000)
PREFIX = layout.index_prefix("", SESSION.cluster, SESSION.name)
MANIFEST_KEY = PREFIX + "/manifest.json"


@pytest.fixture(params=["directory", "memory", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    root = f"t{secrets.token_hex(6)}"
    match request.param:
        case "directory":
            opened = open_store(resolve((tmp_path / root).as_uri(), Upstream(), {}))
        case "memory":
            opened = open_store(resolve(f"memory://{root}", Upstream(), {}))
        case _:
            opened = request.getfixturevalue("open_seaweedfs")(root)
    opened.check(create=True)
    return opened


@pytest.fixture
def directory_store(tmp_path: Path) -> Store:
    opened = open_store(resolve((tmp_path / "bucket").as_uri(), Upstream(), {}))
    opened.check(create=True)
    return opened


Build = Callable[..., tuple[Path, Manifest]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Makes a directory of small files with random bytes, as no two builders write the same, and its manifest."""

    def built(sources: Iterable[str] = ("a",), other_sources: str = "") -> tuple[Path, Manifest]:
        directory = tmp_path / f"built-{secrets.token_hex(4)}"
        directory.mkdir()
        names = ["tasks.parquet", "actors.parquet", "nodes.parquet"]
        for name, size in zip(names, (200_000, 1000, 0), strict=True):
            (directory / name).write_bytes(os.urandom(size))
        return directory, Manifest(
            version=VERSION,
            session=SESSION.name,
            sources=[SourceFile(key, 1, "e") for key in sources],
            other_sources=other_sources,
            files=describe(directory, names),
            rows={"tasks": 1},
            events={},
            problems=[],
        )

    return built


def keys(store: Store) -> set[str]:
    return {found.key.removeprefix(PREFIX + "/") for found in store.list(PREFIX)}


def data_keys(manifest: Manifest) -> set[str]:
    return {f"{file.name.removesuffix('.parquet')}-{file.digest[:16]}.parquet" for file in manifest.files}


def test_a_published_index_can_be_downloaded(store: Store, build: Build, tmp_path: Path) -> None:
    index = SharedIndex(store, SESSION)
    assert index.manifest() is None
    directory, manifest = build()
    assert index.publish(directory, manifest) is True
    assert keys(store) == {"manifest.json"} | data_keys(manifest)
    found = SharedIndex(store, SESSION).manifest()
    assert found == manifest
    index.fetch(found, tmp_path / "fetched")
    check(tmp_path / "fetched", manifest, deep=True)
    assert {path.name for path in (tmp_path / "fetched").iterdir()} == {file.name for file in manifest.files}
    assert index.publish(directory, manifest) is True  # again, as after an answer that was lost


def test_a_discarded_index_is_gone_and_can_be_published_again(store: Store, build: Build) -> None:
    index = SharedIndex(store, SESSION)
    index.discard()  # nothing there is no error
    directory, manifest = build()
    index.publish(directory, manifest)
    store.put(layout.index_prefix("", SESSION.cluster, SESSION.name + "0") + "/manifest.json", b"a neighbour")
    index.discard()
    assert keys(store) == set()
    assert len(list(store.list())) == 1
    assert index.manifest() is None
    assert index.publish(directory, manifest) is True


def test_an_index_with_the_same_sources_stays(store: Store, build: Build) -> None:
    index = SharedIndex(store, SESSION)
    directory, first = build("ab")
    index.publish(directory, first)
    for sources in ("ab", "b", ""):
        later, second = build(sources)
        assert index.publish(later, second) is False
    assert index.manifest() == first
    assert keys(store) == {"manifest.json"} | data_keys(first)  # the losers uploaded nothing


def test_an_index_with_more_or_other_sources_replaces_it(store: Store, build: Build, tmp_path: Path) -> None:
    index = SharedIndex(store, SESSION)
    for number, (sources, other) in enumerate([("a", ""), ("ab", ""), ("ab", "logs changed"), ("bc", "logs changed")]):
        directory, manifest = build(sources, other)
        assert index.publish(directory, manifest) is True
        assert index.manifest() == manifest
        index.fetch(manifest, tmp_path / f"fetched{number}")


def test_a_reader_of_the_old_index_is_not_disturbed(store: Store, build: Build, tmp_path: Path) -> None:
    index = SharedIndex(store, SESSION)
    directory, old = build("a")
    index.publish(directory, old)
    directory, new = build("ab")
    index.publish(directory, new)
    index.fetch(old, tmp_path / "fetched")
    check(tmp_path / "fetched", old, deep=True)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"version": 0}', b'{"version": 1}', b"\xff" * 100],
    ids=["empty", "cut", "older version", "incomplete", "garbage"],
)
def test_a_damaged_or_older_manifest_is_replaced(store: Store, build: Build, body: bytes) -> None:
    store.put(MANIFEST_KEY, body)
    index = SharedIndex(store, SESSION)
    assert index.manifest() is None
    directory, manifest = build()
    assert index.publish(directory, manifest) is True
    assert index.manifest() == manifest


def test_damage_is_logged(directory_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    directory_store.put(MANIFEST_KEY, b"{")
    assert SharedIndex(directory_store, SESSION).manifest() is None
    assert "manifest.json is not readable" in caplog.text


def test_a_manifest_of_another_session_is_ignored(directory_store: Store, build: Build) -> None:
    directory, manifest = build()
    directory_store.put(MANIFEST_KEY, encode(msgspec.structs.replace(manifest, session="session_other")))
    index = SharedIndex(directory_store, SESSION)
    assert index.manifest() is None
    assert index.publish(directory, manifest) is True
    with pytest.raises(Damaged, match="session_other"):
        index.publish(directory, msgspec.structs.replace(manifest, session="session_other"))


def test_a_higher_version_is_not_replaced(store: Store, build: Build) -> None:
    body = b'{"version": %d, "a": "shape of its own"}' % (VERSION + 1)
    store.put(MANIFEST_KEY, body)
    store.put(PREFIX + "/tasks-of-that-version.parquet", b"x")
    index = SharedIndex(store, SESSION)
    assert index.manifest() is None
    assert index.publish(*build()) is False
    assert store.get(MANIFEST_KEY) == body
    assert keys(store) == {"manifest.json", "tasks-of-that-version.parquet"}


@pytest.mark.parametrize("change", ["missing", "short", "long", "flipped"])
def test_a_changed_data_object_is_never_downloaded(store: Store, build: Build, tmp_path: Path, change: str) -> None:
    index = SharedIndex(store, SESSION)
    directory, manifest = build()
    index.publish(directory, manifest)
    key = f"{PREFIX}/tasks-{manifest.files[0].digest[:16]}.parquet"
    body = store.get(key)
    match change:
        case "missing":
            store.delete(key)
        case "short":
            store.put(key, body[:-1])
        case "long":
            store.put(key, body + b"x")
        case _:
            store.put(key, body[:1000] + bytes([body[1000] ^ 1]) + body[1001:])
    with pytest.raises(Damaged, match=r"tasks-"):
        index.fetch(manifest, tmp_path / "fetched")
    assert not (tmp_path / "fetched/tasks.parquet").exists()
    assert not (tmp_path / "fetched/tasks.parquet.part").exists()
    if change == "flipped":  # only reading shows it
        index.discard()
    other, rebuilt = build()
    assert index.publish(other, rebuilt) is True
    index.fetch(rebuilt, tmp_path / "again")
    check(tmp_path / "again", rebuilt, deep=True)


def _written(file: Path) -> tuple[int, int, int]:
    """Which file it is and when it was last written; reading does not count."""
    known = file.stat()
    return known.st_ino, known.st_mtime_ns, known.st_size


def test_downloaded_files_are_downloaded_again_only_if_they_are_wrong(
    directory_store: Store, build: Build, tmp_path: Path
) -> None:
    index = SharedIndex(directory_store, SESSION)
    directory, manifest = build()
    index.publish(directory, manifest)
    target = tmp_path / "fetched"
    index.fetch(manifest, target)
    before = _written(target / "actors.parquet")
    (target / "tasks.parquet").write_bytes(bytes(manifest.files[0].size))
    directory_store.delete(f"{PREFIX}/actors-{manifest.files[1].digest[:16]}.parquet")
    index.fetch(manifest, target)
    check(target, manifest, deep=True)
    assert _written(target / "actors.parquet") == before


def test_files_that_differ_from_the_manifest_are_not_published(store: Store, build: Build) -> None:
    index = SharedIndex(store, SESSION)
    directory, first = build("a")
    index.publish(directory, first)
    directory, manifest = build("ab")
    (directory / "tasks.parquet").write_bytes(os.urandom(manifest.files[0].size))
    with pytest.raises(Damaged, match=r"tasks\.parquet"):
        index.publish(directory, manifest)
    assert index.manifest() == first
    assert f"tasks-{manifest.files[0].digest[:16]}.parquet" not in keys(store)


class Failing:
    """A real store of which one operation fails after some calls."""

    def __init__(self, store: Store, operation: str, error: ArchiveError, after: int = 0) -> None:
        self._store, self._operation, self._error, self._left = store, operation, error, after

    def __getattr__(self, name: str) -> object:
        if name == self._operation:
            if not self._left:
                raise self._error
            self._left -= 1
        return getattr(self._store, name)


@pytest.mark.parametrize(("operation", "after"), [("put_stream", 0), ("put_stream", 1), ("put", 0), ("list", 1)])
def test_a_failure_while_publishing_leaves_the_previous_index(
    directory_store: Store, build: Build, tmp_path: Path, operation: str, after: int
) -> None:
    index = SharedIndex(directory_store, SESSION)
    directory, first = build("a")
    index.publish(directory, first)
    directory, second = build("ab")
    failing: Store = Failing(directory_store, operation, Unreachable("down"), after)  # type: ignore[assignment]
    with pytest.raises(Unreachable):
        SharedIndex(failing, SESSION).publish(directory, second)
    assert index.manifest() == first
    index.fetch(first, tmp_path / "fetched")
    assert index.publish(directory, second) is True


def test_a_failed_request_does_not_mean_that_there_is_no_index(directory_store: Store) -> None:
    failing: Store = Failing(directory_store, "get_range", Denied("who are you"))  # type: ignore[assignment]
    with pytest.raises(Denied):
        SharedIndex(failing, SESSION).manifest()


def test_unnamed_objects_are_deleted_after_an_hour(directory_store: Store, build: Build) -> None:
    index = SharedIndex(directory_store, SESSION)
    directory, old = build("a")
    index.publish(directory, old)
    base = Path(urlsplit(directory_store.url).path) / PREFIX
    for name in data_keys(old):
        os.utime(base / name, (os.stat(base / name).st_mtime - 3700,) * 2)
    directory_store.put(PREFIX + "/of-a-publisher-at-work.parquet", b"x")
    directory, new = build("ab")
    assert index.publish(directory, new) is True
    assert keys(directory_store) == {"manifest.json", "of-a-publisher-at-work.parquet"} | data_keys(new)


def test_publishing_succeeds_even_if_old_files_cannot_be_deleted(
    directory_store: Store, build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared, "_UNNAMED_FOR", timedelta(days=-1))
    failing: Store = Failing(directory_store, "delete_many", Denied("no deleting"))  # type: ignore[assignment]
    index = SharedIndex(failing, SESSION)
    for sources in ("a", "ab"):
        directory, manifest = build(sources)
        assert index.publish(directory, manifest) is True
    assert "no deleting" in caplog.text


@pytest.mark.parametrize("before", ["nothing", "damaged", "fewer sources"])
def test_concurrent_publishers_leave_one_complete_index(
    store: Store, build: Build, tmp_path: Path, before: str
) -> None:
    if before == "damaged":
        store.put(MANIFEST_KEY, b"{")
    elif before == "fewer sources":
        SharedIndex(store, SESSION).publish(*build("a"))
    built = [build("ab") for _ in range(4)]
    together = Barrier(len(built))

    def publish(directory: Path, manifest: Manifest) -> bool:
        together.wait()
        return SharedIndex(store, SESSION).publish(directory, manifest)

    with ThreadPoolExecutor(len(built)) as threads:
        outcomes = list(threads.map(publish, *zip(*built, strict=True)))
    index = SharedIndex(store, SESSION)
    standing = index.manifest()
    assert standing in [manifest for _, manifest in built]
    if before == "nothing":  # then creating decides
        assert [manifest for won, (_, manifest) in zip(outcomes, built, strict=True) if won] == [standing]
    assert any(outcomes)
    index.fetch(standing, tmp_path / "fetched")
    check(tmp_path / "fetched", standing, deep=True)


def test_discarding_while_publishing_leaves_a_complete_index_or_none(
    store: Store, build: Build, tmp_path: Path
) -> None:
    """Deletions may cross with publishing; a manifest that names a deleted object raises `Damaged` and is repaired."""
    directory, manifest = build()
    for number in range(5):
        with ThreadPoolExecutor(2) as threads:
            publishing = threads.submit(SharedIndex(store, SESSION).publish, directory, manifest)
            threads.submit(SharedIndex(store, SESSION).discard).result()
            publishing.result()
        index = SharedIndex(store, SESSION)
        if (found := index.manifest()) is not None:
            try:
                index.fetch(found, tmp_path / f"fetched{number}")
            except Damaged:
                index.discard()
        assert index.publish(directory, manifest) is True
        index.fetch(manifest, tmp_path / f"again{number}")


def test_large_files_are_uploaded_in_parts(
    open_seaweedfs: Callable[[str], Store], build: Build, tmp_path: Path
) -> None:
    store = open_seaweedfs(f"t{secrets.token_hex(6)}")
    store.check(create=True)
    directory, manifest = build()
    (directory / "tasks.parquet").write_bytes(os.urandom(20_000_001))
    manifest = msgspec.structs.replace(manifest, files=describe(directory, [file.name for file in manifest.files]))
    index = SharedIndex(store, SESSION)
    assert index.publish(directory, manifest) is True
    index.fetch(manifest, tmp_path / "fetched")
    check(tmp_path / "fetched", manifest, deep=True)
