"""Which sessions an archive holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import find_session, read_catalog
from ray_history.archive.errors import NotFound
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Level, ObjectInfo, Store, open_store
from ray_history.archive.stores.cloud import CloudStore
from ray_history.archive.stores.memory import MemorySettings
from tests.support.captured import captured, write_every_generation

EARLY, LATE = "session_2026-01-01_00-00-00_000001_1", "session_2026-06-01_12-00-00_000001_1"


class CountingStore(CloudStore):
    """The memory store, counting its LIST calls."""

    def __init__(self) -> None:
        super().__init__(MemorySettings(secrets.token_hex(8)))
        self.lists = 0

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.lists += 1
        return super().list(prefix)

    def list_level(self, prefix: str = "") -> Level:
        self.lists += 1
        return super().list_level(prefix)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def mark(store: Store, cluster: Cluster, session: str, root: str = "") -> None:
    store.put(layout.marker_key(root, cluster, session), b"")


def test_an_empty_archive_holds_no_sessions(store: CountingStore) -> None:
    assert read_catalog(store).sessions == ()


def test_sessions_of_all_generations_stand_in_one_list(store: CountingStore) -> None:
    clusters = write_every_generation(store)
    store.lists = 0
    catalog = read_catalog(store)
    assert {session.cluster for session in catalog.sessions} == set(clusters.values())
    assert {session.name for session in catalog.sessions} == {captured().session}
    assert [session.cluster.name for session in catalog.sessions if session.legacy] == [clusters[Generation.A].name]
    assert catalog.undecodable == 0
    assert store.lists == 4


def test_the_newest_session_comes_first(store: CountingStore) -> None:
    mark(store, Cluster("a", "x"), EARLY)
    mark(store, Cluster("b", "y", "rayjob", "owner"), LATE)
    catalog = read_catalog(store)
    assert [session.name for session in catalog.sessions] == [LATE, EARLY]
    assert catalog.sessions[0].started_iso == "2026-06-01T12:00:00Z"
    assert catalog.sessions[0].cluster.owner_name == "owner"


def test_undecodable_markers_are_counted_and_not_fatal(store: CountingStore) -> None:
    mark(store, Cluster("a", "x"), EARLY)
    store.put("cluster-metadata/raycluster/too_many_parts/" + EARLY, b"")
    store.put("cluster-metadata/raycluster/a_x/not-a-session", b"")
    store.put("metadir/plain-file.txt", b"notes")
    store.put("metadir/empty_dir", b"")  # how a directory marker is listed
    catalog = read_catalog(store)
    assert len(catalog.sessions) == 1
    assert catalog.undecodable == 3


def test_filters_and_pages(store: CountingStore) -> None:
    for number in range(10):
        mark(store, Cluster("even" if number % 2 == 0 else "odd", "c"), f"session_2026-01-0{number}_00-00-00_000001_1")
    catalog = read_catalog(store)
    assert len(catalog.sessions) == 9  # there is no day 0
    assert {s.cluster.namespace for s in catalog.find(namespace="odd").sessions} == {"odd"}
    assert catalog.find("odd", "c", "latest").sessions[0].name.startswith("session_2026-01-09")
    assert [s.name[8:18] for s in catalog.page(2, 2)] == ["2026-01-07", "2026-01-06"]
    assert len(catalog.page(5, None)) == 4


def test_one_session_marked_twice_is_one_session(store: CountingStore) -> None:
    mark(store, Cluster("n", "c"), EARLY)
    store.put(f"log/metadir/c_n/{EARLY}", b"")
    (session,) = read_catalog(store).sessions
    assert not session.legacy


def test_sessions_without_marker_are_found_on_request(store: CountingStore) -> None:
    for cluster in (Cluster("n", "c"), Cluster("n", "d", "rayservice", "svc")):
        prefix = layout.session_prefix("", cluster, EARLY)
        store.put(layout.event_file_key(prefix, "node", None, 1), b"{}\n")
    store.put("cluster-history/raycluster/n/c/not-a-session/x", b"")
    assert read_catalog(store).sessions == ()
    found = read_catalog(store, unmarked=True).sessions
    assert {session.cluster.name for session in found} == {"c", "d"}
    assert not any(session.marked for session in found)


def test_one_session_is_found_by_name_or_as_the_latest(store: CountingStore) -> None:
    mark(store, Cluster("n", "c"), EARLY)
    mark(store, Cluster("n", "c"), LATE)
    assert find_session(store, "n", "c", EARLY).name == EARLY
    assert find_session(store, "n", "c", "latest").name == LATE
    with pytest.raises(NotFound, match=f"its newest is {LATE}"):
        find_session(store, "n", "c", "session_x")
    with pytest.raises(NotFound, match="has no cluster n/other"):
        find_session(store, "n", "other", "latest")


def test_a_store_that_is_not_there_is_an_error_and_not_an_empty_list() -> None:
    from pathlib import Path

    from ray_history.archive.stores.directory import DirectorySettings

    with pytest.raises(NotFound):
        read_catalog(open_store(DirectorySettings(Path("/nonexistent/archive"))))
