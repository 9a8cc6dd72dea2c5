"""A real captured session, stored in each layout generation, is listed and read completely."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ray_history.archive.catalog import find_session, read_catalog
from ray_history.archive.event_files import Problem
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.session_files import events_of, list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.support.captured import captured, write_archive, write_every_generation


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[Generation, Cluster]]:
    store = open_store(DirectorySettings(Path(tmp_path_factory.mktemp("archive"))))
    return store, write_every_generation(store)


@pytest.mark.parametrize("generation", list(Generation))
def test_every_event_log_and_answer_comes_back(
    bucket: tuple[Store, dict[Generation, Cluster]], generation: Generation
) -> None:
    store, clusters = bucket
    capture, cluster = captured(), clusters[generation]
    files = list_session(store, find_session(store, cluster.namespace, cluster.name, "latest"))
    assert files.generations == {generation}
    assert files.nodes == set(capture.events) | {node for node, _ in capture.logs}
    assert files.unknown == ()

    problems: list[Problem] = []
    events = Counter(events_of(store, files, problems))
    assert problems == []
    assert events.total() == capture.event_count == 2017
    assert events == Counter(event for node in capture.events.values() for event in node)

    logs = files.logs(store)
    assert {(log.node, log.name) for node in logs.nodes() for log in logs.list(node)} == set(capture.logs)
    for (node, name), body in capture.logs.items():
        assert b"".join(logs.open(logs.find(node, name)).stream()) == body

    assert {name: store.get(stored.key) for name, stored in files.endpoints.items()} == capture.polled


def test_the_same_bucket_on_a_real_s3_server_reads_the_same(open_seaweedfs) -> None:  # type: ignore[no-untyped-def]
    store: Store = open_seaweedfs("captured")
    store.check(create=True)
    cluster = Cluster("default", "real")
    write_archive(store, Generation.C, cluster)
    (session,) = read_catalog(store).sessions
    problems: list[Problem] = []
    events = list(events_of(store, list_session(store, session), problems))
    assert (len(events), problems) == (captured().event_count, [])
