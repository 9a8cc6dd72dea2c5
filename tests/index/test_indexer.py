"""A session is opened from where it is available fastest, and its tables always match its files."""

from __future__ import annotations

import gzip
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.errors import Denied
from ray_history.archive.event_files import DEFAULT, encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.build.runs import Counts
from ray_history.history.engine import Cancelled
from ray_history.history.read.tables import Tables
from ray_history.index.build.order import Progress
from ray_history.index.cache import Cache, Opened
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from ray_history.index.prebuild import prebuild
from ray_history.index.shared import SharedIndex
from tests.history.rebuilt import NODE, Event, Rebuilt, lifecycle, task, task_id
from tests.support.captured import captured, write_archive

CLUSTER = Cluster("ns", "demo")
PREFIX = layout.session_prefix("", CLUSTER, captured().session)
INDEX = layout.index_prefix("", CLUSTER, captured().session)
LARGE = 1 << 40


class Counting:
    """A store, counting the reads of each object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str) -> bytes:
        self.reads[key] += 1
        return self._store.get(key)

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        self.reads[key] += 1
        return self._store.stream(key, start)

    def event_files_read(self) -> dict[str, int]:
        """How often each was read since the last question."""
        reads, self.reads = self.reads, Counter()
        return {key: number for key, number in reads.items() if "_events/" in key}


class ReadOnlyStandIn:
    """A store whose credentials allow to read only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in ("put", "put_stream", "create", "copy", "delete", "delete_many"):
            return self._refuse
        return getattr(self._store, name)

    def _refuse(self, *_: object) -> None:
        raise Denied("read only")


@pytest.fixture(params=["directory", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return filled(open_directory(tmp_path / "bucket"))
    opened: Store = request.getfixturevalue("open_seaweedfs")(f"t{secrets.token_hex(6)}")
    opened.check(create=True)
    return filled(opened)


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return filled(open_directory(tmp_path / "bucket"))


def open_directory(path: Path) -> Store:
    opened = open_store(resolve(path.as_uri(), Upstream(), {}))
    opened.check(create=True)
    return opened


@cache
def parts() -> list[list[bytes]]:
    """Events of the captured session, as three files would hold them."""
    lines = [line for lines in captured().events.values() for line in lines][:600]
    return [lines[:200], lines[200:400], lines[400:]]


def event_key(number: int) -> str:
    return layout.event_file_key(PREFIX, NODE, None, 1_794_787_200_000_000_000 + number)


def filled(store: Store) -> Store:
    store.put(layout.marker_key("", CLUSTER, captured().session), b"")
    for number, lines in enumerate(parts()[:2]):
        store.put(event_key(number), encode_events(lines))
    name = "restful__api__v0__workers?detail=1&limit=10000"
    store.put(layout.join(PREFIX, "fetched_endpoints", name), captured().polled[name])
    return store


def session_of(store: Store) -> Session:
    (found,) = read_catalog(store).sessions
    return found


OpenIn = Callable[..., tuple[dict[str, list[str]], Opened]]


@pytest.fixture
def open_in(tmp_path: Path) -> Iterator[OpenIn]:
    """Opens the only session of a store through a cache, by name; returns all rows, too."""
    opened_here: list[Opened] = []

    def open_through(store: Any, name: str, **more: Any) -> tuple[dict[str, list[str]], Opened]:
        opened = Indexer(store, Cache(tmp_path / name, LARGE), **more).open(session_of(store))
        opened_here.append(opened)
        return all_rows(opened), opened

    yield open_through
    for opened in opened_here:
        opened.close()


def all_rows(opened: Opened) -> dict[str, list[str]]:
    return Rebuilt(opened.directory, asdict(opened.manifest.facts), Counts(), Tables(opened.directory)).everything()


def afresh(store: Store, open_in: OpenIn) -> dict[str, list[str]]:
    """All rows as built from the event files alone."""
    for found in list(store.list(INDEX)):
        store.delete(found.key)
    return open_in(store, f"fresh-{secrets.token_hex(4)}", share=False)[0]


def leftovers(place: Path) -> list[str]:
    return [path.name for path in place.glob("*/*") if path.name.startswith(("new-", "old-"))]


# Where it is quickest to be had --------------------------------------------------------------------------------------


def test_event_files_are_read_once_for_all_servers(store: Store, open_in: OpenIn) -> None:
    counting = Counting(store)
    rows, first = open_in(counting, "here")
    assert counting.event_files_read() == {event_key(0): 1, event_key(1): 1}
    assert sum(first.manifest.events.values()) == 400
    assert first.manifest.problems == []
    assert len(rows["tasks"]) > 50
    again, second = open_in(counting, "here")
    assert (again, second.directory) == (rows, first.directory)
    elsewhere, third = open_in(counting, "another server")
    assert (elsewhere, third.manifest) == (rows, first.manifest)
    assert counting.event_files_read() == {}


@pytest.mark.parametrize("where", ["here", "another server"])
def test_a_refresh_reads_only_new_files(store: Store, open_in: OpenIn, where: str) -> None:
    open_in(store, "here")
    store.put(event_key(2), encode_events(parts()[2]))
    counting = Counting(store)
    rows, opened = open_in(counting, where)
    assert counting.event_files_read() == {event_key(2): 1}
    assert sum(opened.manifest.events.values()) == 600
    assert rows == afresh(store, open_in)


def test_a_new_polled_snapshot_reads_no_events_again(local: Store, open_in: OpenIn) -> None:
    open_in(local, "here")
    local.put(layout.join(PREFIX, "fetched_endpoints", "restful__timezone"), b'{"value": "Europe/London"}')
    counting = Counting(local)
    _, opened = open_in(counting, "here")
    assert opened.manifest.facts.timezone == "Europe/London"
    assert counting.event_files_read() == {}


def test_progress_is_reported(local: Store, tmp_path: Path) -> None:
    told: list[Progress] = []
    with Indexer(local, Cache(tmp_path / "here", LARGE)).open(session_of(local), told.append):
        pass
    stages = list(dict.fromkeys(progress.stage for progress in told))
    assert stages == ["listing", "reading events", "making tables", "publishing", "ready"]
    assert (told[-1].files, told[-1].files_total, told[-1].events) == (2, 2, 400)
    assert told[-1].bytes == told[-1].bytes_total > 0


def test_tables_are_available_before_they_are_published(local: Store, tmp_path: Path, open_in: OpenIn) -> None:
    indexer, session, told = Indexer(local, Cache(tmp_path / "here", LARGE)), session_of(local), list[Progress]()
    shared = SharedIndex(local, session)
    with indexer.open(session, told.append, publish_later=True) as opened:
        assert shared.manifest() is None
        indexer.publish_deferred(session)
        assert shared.manifest() == opened.manifest
    assert "publishing" not in {progress.stage for progress in told}
    counting = Counting(local)
    open_in(counting, "elsewhere")
    assert counting.event_files_read() == {}
    shared.discard()
    indexer.publish_deferred(session)  # once is enough
    assert shared.manifest() is None


def test_an_index_that_cannot_be_published_is_used(local: Store, tmp_path: Path) -> None:
    read_only: Store = ReadOnlyStandIn(local)  # type: ignore[assignment]
    indexer, session = Indexer(read_only, Cache(tmp_path / "here", LARGE)), session_of(local)
    with indexer.open(session, publish_later=True) as opened:
        indexer.publish_deferred(session)
        assert opened.manifest.rows["tasks"] > 0
    assert SharedIndex(local, session).manifest() is None


# What does not match is built anew -----------------------------------------------------------------------------------


def test_a_changed_or_removed_event_file_rebuilds_the_tables(local: Store, open_in: OpenIn) -> None:
    open_in(local, "here")
    local.put(event_key(1), encode_events(parts()[2]))
    changed, opened = open_in(local, "here")
    assert sum(opened.manifest.events.values()) == 400
    assert changed == afresh(local, open_in)
    local.delete(event_key(1))
    removed, opened = open_in(local, "here")
    assert sum(opened.manifest.events.values()) == 200
    assert removed == afresh(local, open_in)


def put_journal(store: Store, number: int, events: list[bytes]) -> str:
    key = layout.journal_key("", CLUSTER, captured().session, NODE, number)
    store.put(key, encode_events(events))
    return key


def test_events_of_a_journal_are_in_the_tables(local: Store, open_in: OpenIn) -> None:
    local.put(event_key(2), encode_events(parts()[2]))
    whole = afresh(local, open_in)
    local.delete(event_key(2))
    put_journal(local, 7, parts()[2])
    rows, opened = open_in(local, "here")
    assert rows == whole
    assert sum(opened.manifest.events.values()) == 600


def test_a_journal_that_becomes_an_event_file_is_counted_once(local: Store, open_in: OpenIn) -> None:
    put_journal(local, 7, parts()[2][:50])
    counting = Counting(local)
    open_in(counting, "here")
    key = put_journal(local, 7, parts()[2][:100])
    assert sum(open_in(counting, "here")[1].manifest.events.values()) == 500
    local.put(event_key(2), encode_events(parts()[2]))
    twice, _ = open_in(counting, "here")
    counting.event_files_read()
    local.delete(key)
    once, opened = open_in(counting, "here")
    assert sum(opened.manifest.events.values()) == 600
    assert counting.event_files_read() == {}, "the deletion of a journal reads no event file again"
    assert twice == once == afresh(local, open_in)


def test_a_journal_that_is_deleted_before_it_is_read_is_no_error(local: Store, open_in: OpenIn) -> None:
    put_journal(local, 7, parts()[2])

    class Late(Counting):
        def get(self, key: str) -> bytes:
            if key.startswith(layout.JOURNALS):
                local.delete(key)
            return super().get(key)

    _, opened = open_in(Late(local), "here")
    assert opened.manifest.problems == []
    assert sum(opened.manifest.events.values()) == 400


def index_objects(store: Store) -> list[str]:
    """Those with data, the tasks first."""
    found = [found.key for found in store.list(INDEX) if found.key.endswith(".parquet")]
    return sorted(found, key=lambda key: "/tasks-" not in key)


def flip_a_byte(store: Store) -> None:
    key = index_objects(store)[0]
    body = bytearray(store.get(key))
    body[len(body) // 2] ^= 1
    store.put(key, bytes(body))


def truncate_the_manifest(store: Store) -> None:
    store.put(INDEX + "/manifest.json", store.get(INDEX + "/manifest.json")[:-20])


def lose_an_object(store: Store) -> None:
    store.delete(index_objects(store)[0])


def be_of_another_version(store: Store) -> None:
    manifest = json.loads(store.get(INDEX + "/manifest.json"))
    store.put(INDEX + "/manifest.json", json.dumps(manifest | {"version": 0}).encode())


@pytest.mark.parametrize("damage", [flip_a_byte, truncate_the_manifest, lose_an_object, be_of_another_version])
def test_a_damaged_index_in_the_archive_is_rebuilt(
    local: Store, open_in: OpenIn, damage: Callable[[Store], None]
) -> None:
    rows, _ = open_in(local, "here")
    damage(local)
    counting = Counting(local)
    assert open_in(counting, "there")[0] == rows
    assert len(counting.event_files_read()) == 2
    assert open_in(counting, "a third server")[0] == rows
    assert counting.event_files_read() == {}


@pytest.mark.parametrize("damage", [flip_a_byte, lose_an_object])
def test_a_damaged_index_is_not_extended(local: Store, open_in: OpenIn, damage: Callable[[Store], None]) -> None:
    open_in(local, "here")
    damage(local)
    local.put(event_key(2), encode_events(parts()[2]))
    counting = Counting(local)
    rows, _ = open_in(counting, "there")
    assert len(counting.event_files_read()) == 3
    assert rows == afresh(local, open_in)


@pytest.mark.parametrize("damage", ["cut short", "of another version"])
def test_a_damaged_index_in_the_cache_is_downloaded_again(local: Store, open_in: OpenIn, damage: str) -> None:
    rows, opened = open_in(local, "here")
    opened.close()
    file = opened.directory / ("tasks.parquet" if damage == "cut short" else "manifest.json")
    body = file.read_bytes()
    file.write_bytes(body[:-5] if damage == "cut short" else json.dumps(json.loads(body) | {"version": 0}).encode())
    counting = Counting(local)
    assert open_in(counting, "here")[0] == rows
    assert counting.event_files_read() == {}


def test_an_index_larger_than_the_cache_is_not_downloaded(local: Store, open_in: OpenIn, tmp_path: Path) -> None:
    expected, _ = open_in(local, "first")
    manifest = json.loads(local.get(f"{INDEX}/manifest.json"))
    for file in manifest["files"]:
        file["size"] = 1 << 40  # what a forger claims, and may have stored
    local.put(f"{INDEX}/manifest.json", json.dumps(manifest).encode())
    counting = Counting(local)
    with Indexer(counting, Cache(tmp_path / "second", 1 << 30)).open(session_of(local)) as opened:  # type: ignore[arg-type]
        assert all_rows(opened) == expected
    assert not [key for key in counting.reads if key.endswith(".parquet")]


def test_prebuilding_verifies_the_cache(local: Store, open_in: OpenIn, tmp_path: Path) -> None:
    rows, opened = open_in(local, "here")
    opened.close()
    file = opened.directory / "tasks.parquet"
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)
    indexer = Indexer(local, Cache(tmp_path / "here", LARGE))
    assert [outcome.how for outcome in prebuild(indexer, [session_of(local)], CancelToken())] == ["fetched"]
    assert [outcome.how for outcome in prebuild(indexer, [session_of(local)], CancelToken())] == ["up to date"]
    assert open_in(local, "here")[0] == rows


def test_a_base_with_changed_bytes_is_not_extended(local: Store, open_in: OpenIn) -> None:
    _, opened = open_in(local, "here", share=False)
    opened.close()
    for name in ("tasks.parquet", "rare_events.parquet"):
        body = bytearray((opened.directory / name).read_bytes())
        third = len(body) // 3
        body[third : third + 200] = bytes(200)
        (opened.directory / name).write_bytes(body)
    local.put(event_key(2), encode_events(parts()[2]))
    rows, _ = open_in(local, "here", share=False)
    assert rows == afresh(local, open_in)


# Damaged event files -------------------------------------------------------------------------------------------------


def test_damaged_event_files_lose_only_the_damage_and_are_reported(local: Store, open_in: OpenIn) -> None:
    whole = encode_events(parts()[2])
    torn = b"\n".join([*parts()[2][:10], parts()[2][10][:50]])
    local.put(event_key(2), whole[: len(whole) * 2 // 3])
    local.put(event_key(3), gzip.compress(torn))
    local.put(event_key(4), os.urandom(500))
    local.put(event_key(5), b"")
    rows, opened = open_in(local, "here")
    problems = "\n".join(opened.manifest.problems)
    for number in (2, 3, 4):
        assert event_key(number) in problems
    assert event_key(0) not in problems
    assert opened.manifest.problem_count == len(opened.manifest.problems)
    assert sum(opened.manifest.events.values()) > 400 + 10
    for number in range(2, 6):
        local.delete(event_key(number))
    for rows_without, rows_with in zip(afresh(local, open_in).values(), rows.values(), strict=True):
        assert len(rows_without) <= len(rows_with)


@pytest.mark.parametrize("form", [b"\n".join, lambda events: b"[" + b",".join(events) + b"]"], ids=["lines", "array"])
def test_a_huge_event_is_left_out_and_reported(
    local: Store, open_in: OpenIn, form: Callable[[list[bytes]], bytes]
) -> None:
    long = task(task_id(1), callSite="x" * DEFAULT.max_event)
    local.put(
        event_key(2),
        gzip.compress(form([json.dumps(e).encode() for e in (task(task_id(2)), long, task(task_id(3)))]), 1),
    )
    rows, opened = open_in(local, "here")
    (problem,) = opened.manifest.problems
    assert problem.startswith(event_key(2))
    assert f"more than {DEFAULT.max_event}" in problem
    shown = {row["task_id"] for row in map(json.loads, rows["tasks"])}
    assert shown & {task_id(number) for number in (1, 2, 3)} == {task_id(2), task_id(3)}


def test_each_problem_is_reported_once(local: Store, open_in: OpenIn) -> None:
    whole = encode_events(parts()[2])
    local.put(event_key(2), whole[: len(whole) * 2 // 3])
    local.put(event_key(3), encode_events([b'{"event_type": "TASK_DEFINITION_EVENT"}']))
    _, opened = open_in(local, "here")
    assert len(opened.manifest.problems) == len(set(opened.manifest.problems))


# Several at once, and sudden ends ------------------------------------------------------------------------------------


def test_concurrent_openings_of_a_session_build_it_once(local: Store, tmp_path: Path) -> None:
    counting: Any = Counting(local)
    indexer, session = Indexer(counting, Cache(tmp_path / "here", LARGE)), session_of(local)
    with ThreadPoolExecutor(4) as threads:
        opened = [job.result() for job in [threads.submit(indexer.open, session) for _ in range(4)]]
    assert len({found.directory for found in opened}) == 1
    assert counting.event_files_read() == {event_key(0): 1, event_key(1): 1}
    for found in opened:
        found.close()


def test_two_sessions_can_be_built_at_once(local: Store, tmp_path: Path) -> None:
    other = Cluster("ns", "other")
    local.put(layout.marker_key("", other, captured().session), b"")
    prefix = layout.session_prefix("", other, captured().session)
    told: list[Event] = [task(task_id(1)), lifecycle(task_id(1), ("RUNNING", 1))]
    local.put(layout.event_file_key(prefix, NODE, None, 1), encode_events([json.dumps(one).encode() for one in told]))
    indexer = Indexer(local, Cache(tmp_path / "here", LARGE))
    with ThreadPoolExecutor(2) as threads:
        opened = list(threads.map(indexer.open, read_catalog(local).sessions))
    assert sorted(sum(found.manifest.events.values()) for found in opened) == [2, 400]
    for found in opened:
        found.close()


@pytest.mark.parametrize("stage", ["reading events", "making tables", "publishing"])
def test_a_cancelled_opening_leaves_nothing_behind(local: Store, open_in: OpenIn, tmp_path: Path, stage: str) -> None:
    cancel = CancelToken()

    def report(progress: Progress) -> None:
        if progress.stage == stage:
            cancel.cancel()

    with pytest.raises(Cancelled):
        Indexer(local, Cache(tmp_path / "here", LARGE)).open(session_of(local), report, cancel)
    assert leftovers(tmp_path / "here") == []
    rows, _ = open_in(local, "here")
    assert rows == afresh(local, open_in)


def test_a_build_is_interrupted_from_another_thread(local: Store, tmp_path: Path) -> None:
    cancel, begun = CancelToken(), threading.Event()

    def report(progress: Progress) -> None:
        if progress.stage == "reading events":
            begun.set()

    indexer, session = Indexer(local, Cache(tmp_path / "here", LARGE)), session_of(local)
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(indexer.open, session, report, cancel)
        assert begun.wait(60)
        cancel.cancel()
        with pytest.raises(Cancelled):
            opening.result(60)
    assert leftovers(tmp_path / "here") == []


def test_a_read_only_archive_can_be_opened(local: Store, open_in: OpenIn) -> None:
    rows, opened = open_in(ReadOnlyStandIn(local), "here")
    assert len(rows["tasks"]) > 50
    assert list(local.list(INDEX)) == []
    assert open_in(ReadOnlyStandIn(local), "here")[1].directory == opened.directory


def test_a_read_only_archive_with_a_damaged_index_can_be_opened(local: Store, open_in: OpenIn) -> None:
    rows, _ = open_in(local, "here")
    flip_a_byte(local)
    assert open_in(ReadOnlyStandIn(local), "there")[0] == rows


KILLED = """
import sys, time
from pathlib import Path
from ray_history.archive.catalog import read_catalog
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from tests.index.test_indexer import open_directory

def report(progress):
    if progress.stage == sys.argv[3]:
        print("there", flush=True)
        time.sleep(600)

store = open_directory(Path(sys.argv[1]))
(session,) = read_catalog(store).sessions
Indexer(store, Cache(Path(sys.argv[2]), 1 << 40)).open(session, report)
"""


def test_a_session_opens_after_its_builder_was_killed(local: Store, open_in: OpenIn, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "bucket"), str(tmp_path / "here"), "making tables"]
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"there\n"
        finally:
            process.send_signal(signal.SIGKILL)
    assert leftovers(tmp_path / "here") != []
    rows, _ = open_in(local, "here")
    assert leftovers(tmp_path / "here") == []
    assert rows == afresh(local, open_in)


def test_an_index_made_by_other_rules_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    (session,) = read_catalog(store).sessions
    stages: list[str] = []
    for rules in ("older", "newer"):
        monkeypatch.setattr("ray_history.index.sources.rules_digest", lambda rules=rules: rules)
        stages.clear()
        indexer = Indexer(store, Cache(tmp_path / "cache", 1 << 30))
        with indexer.open(session, lambda progress: stages.append(progress.stage)) as opened:
            assert opened.manifest.meaning == rules
            assert (opened.manifest.rows["actors"], opened.manifest.rows["nodes"]) == (36, 2)
        assert "reading events" in stages
