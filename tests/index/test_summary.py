"""The summary of an index."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.errors import Denied
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from ray_history.index.prebuild import prebuild
from ray_history.index.summary import Summary, decode, identify
from tests.support.captured import write_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(DirectorySettings(tmp_path_factory.mktemp("archive")))
    write_archive(store, Generation.C, Cluster("default", "demo", "rayjob", "nightly"))
    return store


@pytest.fixture
def session(archive: Store) -> Session:
    archive.delete_many([found.key for found in archive.list("history-index")])
    return read_catalog(archive).sessions[0]


def archive_folder(archive: Store) -> Path:
    return Path(archive.url.removeprefix("file://"))


def standing(store: Store, session: Session) -> Summary | None:
    return decode(store.get(layout.summary_key(session.cluster, session.name)))


def test_a_summary_agrees_with_its_index(archive: Store, session: Session, tmp_path: Path) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30))
    with indexer.open(session) as opened:
        facts, index = opened.manifest.facts, identify(opened.manifest)
        sources = len(opened.manifest.sources)
    indexer.summarize(session)
    summary = standing(archive, session)
    assert summary is not None
    assert summary == indexer.summaries.read(session)
    assert (summary.index, summary.event_files) == (index, sources)
    assert summary.facts == facts
    assert sum(summary.tasks.values()) == facts.tasks
    assert summary.tasks["FAILED"] == facts.failed_tasks >= sum(failure.count for failure in summary.failures)
    assert sum(summary.jobs_by_status.values()) == len(summary.jobs) == facts.jobs
    by_submission = {job.submission_id: job for job in summary.jobs}
    assert by_submission["fx-fail"].status == "FAILED"
    assert by_submission["fx-long"].entrypoint == "python longj.py"
    assert summary.accounts.collectors == 0


def test_failures_show_the_decisive_line_of_the_error(archive: Store, session: Session, tmp_path: Path) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30))
    indexer.open(session).close()
    indexer.summarize(session)
    summary = standing(archive, session)
    assert summary is not None
    told = {(failure.name, failure.text) for failure in summary.failures}
    assert {("failing", "ValueError: x"), ("raiser", "ValueError: deliberate 你好 failure")} <= told
    counts = [failure.count for failure in summary.failures]
    assert counts == sorted(counts, reverse=True)


def test_prebuilding_writes_a_summary(archive: Store, session: Session, tmp_path: Path) -> None:
    outcomes = list(prebuild(Indexer(archive, Cache(tmp_path, 1 << 30)), [session], CancelToken()))
    assert [outcome.how for outcome in outcomes] == ["built"]
    assert standing(archive, session) is not None


def test_storing_an_unchanged_snapshot_again_is_a_sign_of_life(
    archive: Store, session: Session, tmp_path: Path
) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30))
    indexer.open(session).close()
    indexer.summarize(session)
    first = standing(archive, session)
    assert first is not None
    assert first.longest_silence == 600
    (answer,) = [found for found in archive.list("cluster-history") if found.key.endswith("restful__timezone")]
    for later, is_told in ((30, False), (300, True)):
        moment = first.newest_file + later
        os.utime(archive_folder(archive) / answer.key, (moment, moment))
        indexer.summarize(session)
        told = standing(archive, session)
        assert told == (msgspec.structs.replace(first, newest_file=moment) if is_told else first)


def test_a_summary_is_replaced_only_by_that_of_a_newer_index(archive: Store, session: Session, tmp_path: Path) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30))
    indexer.open(session).close()
    indexer.summarize(session)
    summary = standing(archive, session)
    assert summary is not None
    for files in (summary.event_files + 1, summary.event_files, 1):
        other = msgspec.structs.replace(summary, index="0" * 32, event_files=files)
        archive.put(layout.summary_key(session.cluster, session.name), msgspec.json.encode(other))
        indexer.summarize(session)
        assert standing(archive, session) == (other if files > summary.event_files else summary)


def test_a_damaged_summary_is_made_again(archive: Store, session: Session, tmp_path: Path) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30))
    indexer.open(session).close()
    for body in (b"", b"[]", b'{"version": 1}', b'{"version": 99}', b"\xff"):
        archive.put(layout.summary_key(session.cluster, session.name), body)
        assert indexer.summaries.read(session) is None
        indexer.summarize(session)
        assert standing(archive, session) is not None


def test_without_sharing_summaries_are_beside_the_cache(archive: Store, session: Session, tmp_path: Path) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30), share=False)
    assert indexer.summaries.list() == []
    indexer.open(session).close()
    indexer.summarize(session)
    assert list(archive.list("history-index")) == []
    assert len(indexer.summaries.list()) == 1
    assert indexer.summaries.read(session) is not None


class ReadOnly:
    """A stand-in for an archive that this server may only read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        if name in ("put", "put_stream", "create"):
            return self._refuse
        return getattr(self._store, name)

    def _refuse(self, *_: object) -> object:
        raise Denied("this user may not write there")


def test_with_a_read_only_archive_summaries_are_beside_the_cache(
    archive: Store, session: Session, tmp_path: Path
) -> None:
    indexer = Indexer(ReadOnly(archive), Cache(tmp_path, 1 << 30))  # type: ignore[arg-type]
    indexer.open(session).close()
    indexer.summarize(session)
    assert [place.url for place, _ in indexer.summaries.list()] == [(tmp_path / "summaries").as_uri()]


def test_a_session_without_an_index_has_no_summary(archive: Store, session: Session, tmp_path: Path) -> None:
    indexer = Indexer(archive, Cache(tmp_path, 1 << 30))
    indexer.summarize(session)
    assert indexer.summaries.list() == []
