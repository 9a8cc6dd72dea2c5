"""The local cache has complete indexes or none, whatever other processes do and however they end."""

from __future__ import annotations

import errno
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ray_history.index.cache import Cache, CacheUnusable, Entry, Opened
from ray_history.index.manifest import VERSION, Damaged, Manifest, check, describe
from tests.support.waiting import until

KEY = "default/raycluster-1/session_2026-01-11_19-00-00_000000_1"
LARGE = 1 << 40


def build_of(size: int = 1000, label: str = "") -> Callable[[Path], Manifest]:
    """A build that writes two files of random bytes; the label tells whose it is."""

    def build(directory: Path) -> Manifest:
        for name in ("tasks.parquet", "nodes.parquet"):
            (directory / name).write_bytes(os.urandom(size // 2))
        return Manifest(
            version=VERSION,
            session="s",
            sources=[],
            other_sources=label,
            files=describe(directory, ["tasks.parquet", "nodes.parquet"]),
            rows={},
            events={},
            problems=[],
        )

    return build


def label_of(entry: Entry) -> str | None:
    """Whose generation is opened now, all its bytes read."""
    opened = entry.open()
    if opened is None:
        return None
    with opened:
        check(opened.directory, opened.manifest, deep=True)
        return opened.manifest.other_sources


def make(cache: Cache, key: str, size: int = 1000, label: str = "") -> None:
    cache.entry(key).make(build_of(size, label)).close()


def folders(cache: Cache) -> list[str]:
    """All directories below the entries."""
    return sorted(path.name for path in cache.root.glob("*/*/"))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", LARGE)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a Python process with `cache` at hand; it says by lines how far it is, and is gone after the test."""
    preamble = (
        "import sys, time; from pathlib import Path; from ray_history.index.cache import Cache; "
        "from tests.index.test_cache import KEY, LARGE, build_of; "
        f"cache = Cache(Path({str(tmp_path / 'cache')!r}), LARGE)\n"
    )
    with ExitStack() as started:

        def start(script: str) -> subprocess.Popen[str]:
            child = subprocess.Popen(
                [sys.executable, "-u", "-c", preamble + script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            started.enter_context(child)
            started.callback(child.kill)
            return child

        yield start


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go on\n")
    child.stdin.flush()


def test_an_index_can_be_opened_after_it_was_made(cache: Cache) -> None:
    entry = cache.entry(KEY)
    assert entry.open() is None
    assert cache.used_bytes() == 0
    with entry.make(build_of(label="first")) as opened:
        assert opened.manifest.other_sources == "first"
        check(opened.directory, opened.manifest, deep=True)
    assert label_of(Cache(cache.root, LARGE).entry(KEY)) == "first"
    assert cache.used_bytes() > 1000
    assert folders(cache) == ["1"]


def test_entries_have_readable_names_and_do_not_mix(cache: Cache) -> None:
    keys = [KEY, "a/b/c", "a/b-c", "a-b/c", "../../etc", ".", "", "x" * 1000, "日本/é/s"]
    for key in keys:
        make(cache, key, label=key)
    assert [label_of(cache.entry(key)) for key in keys] == keys
    names = {path.name for path in cache.root.iterdir() if path.is_dir()}
    assert len(names) == len(keys)
    assert any(name.startswith("default-raycluster-1-session_2026-01-11_19-00-00_000000_1-") for name in names)


def test_a_new_generation_replaces_the_old_one(cache: Cache) -> None:
    for number in range(3):
        make(cache, KEY, label=str(number))
    assert label_of(cache.entry(KEY)) == "2"
    assert folders(cache) == ["3"]


def test_an_old_generation_stays_while_it_is_open(cache: Cache) -> None:
    entry = cache.entry(KEY)
    with entry.make(build_of(label="old")) as old:
        make(cache, KEY, label="new")
        assert label_of(entry) == "new"
        check(old.directory, old.manifest, deep=True)
        cache.clear()
        check(old.directory, old.manifest, deep=True)
        assert label_of(entry) == "new"  # the old one never becomes the newest again
    cache.evict()
    assert folders(cache) == ["2"]


def test_a_failed_build_leaves_the_cache_unchanged(cache: Cache) -> None:
    class Broken(Exception):
        pass

    def broken(directory: Path) -> Manifest:
        build_of()(directory)
        raise Broken

    with pytest.raises(Broken):
        cache.entry(KEY).make(broken)
    assert folders(cache) == []
    make(cache, KEY, label="good")
    with pytest.raises(Broken):
        cache.entry(KEY).make(broken)
    assert label_of(cache.entry(KEY)) == "good"
    assert folders(cache) == ["1"]


def test_a_cache_that_is_removed_while_an_index_is_built_in_it_is_reported_as_such(cache: Cache) -> None:
    def build(directory: Path) -> Manifest:
        shutil.rmtree(cache.root)
        raise FileNotFoundError(2, "No such file or directory", str(directory / "tasks.parquet"))

    with pytest.raises(CacheUnusable, match="removed while an index was built"):
        cache.entry(KEY).make(build)
    make(cache, KEY, label="good")
    assert label_of(cache.entry(KEY)) == "good"


def test_a_build_whose_files_differ_from_its_manifest_is_refused(cache: Cache) -> None:
    def lying(directory: Path) -> Manifest:
        manifest = build_of()(directory)
        (directory / "tasks.parquet").write_bytes(b"")
        return manifest

    with pytest.raises(Damaged):
        cache.entry(KEY).make(lying)
    assert folders(cache) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda generation: os.truncate(generation / "tasks.parquet", 1),
        lambda generation: (generation / "nodes.parquet").unlink(),
        lambda generation: (generation / "manifest.json").unlink(),
        lambda generation: (generation / "manifest.json").write_bytes(b""),
        lambda generation: (generation / "manifest.json").write_bytes(b'{"version": 99}'),
        lambda generation: [path.unlink() for path in generation.iterdir()],
    ],
    ids=["short file", "file gone", "manifest gone", "manifest empty", "other version", "all gone"],
)
def test_a_damaged_generation_is_removed_and_built_again(cache: Cache, damage: Callable[[Path], object]) -> None:
    entry = cache.entry(KEY)
    with entry.make(build_of(label="old")) as opened:
        damage(opened.directory)
    assert entry.open() is None
    assert folders(cache) == []
    with entry.make_unless(lambda _: True, build_of(label="new")):
        assert label_of(entry) == "new"


def test_a_damaged_generation_in_use_is_skipped(cache: Cache) -> None:
    entry = cache.entry(KEY)
    with entry.make(build_of(label="old")) as opened:
        os.truncate(opened.directory / "tasks.parquet", 1)
        assert entry.open() is None
        make(cache, KEY, label="new")
        assert label_of(entry) == "new"


def test_a_generation_marked_as_damaged_is_not_opened_again(cache: Cache) -> None:
    entry = cache.entry(KEY)
    with entry.make(build_of(label="old")) as opened:
        assert opened.is_intact()
        body = bytearray((opened.directory / "tasks.parquet").read_bytes())
        body[len(body) // 2] ^= 1
        (opened.directory / "tasks.parquet").write_bytes(body)
        assert not opened.is_intact()
        assert entry.open() is None
        assert (opened.directory / "tasks.parquet").read_bytes() == body
        with entry.make_unless(lambda _: True, build_of(label="new")):
            assert label_of(entry) == "new"
    cache.evict()
    assert folders(cache) == ["2"]


def test_a_removed_generation_is_not_intact(cache: Cache) -> None:
    with cache.entry(KEY).make(build_of()) as opened:
        shutil.rmtree(opened.directory)
        assert not opened.is_intact()


def settled(cache: Cache) -> bool:
    """Whether all that was made is on the disk, after waiting for those who see to it."""
    for thread in threading.enumerate():
        if thread.name == "sync":
            thread.join()
    return not list(cache.root.glob("*/*/unsynced"))


def test_an_index_is_synced_in_the_background(cache: Cache) -> None:
    make(cache, KEY)
    assert settled(cache)


@pytest.mark.parametrize("is_whole", [True, False])
def test_after_a_crash_unsynced_files_are_read_before_use(cache: Cache, *, is_whole: bool) -> None:
    entry = cache.entry(KEY)
    with entry.make(build_of(label="old")) as opened:
        assert settled(cache)
        (opened.directory / "unsynced").touch()  # as a crash leaves it: nobody is at work
        if not is_whole:  # blocks that were never written
            (opened.directory / "tasks.parquet").write_bytes(bytes(500))
    assert label_of(entry) == ("old" if is_whole else None)
    assert folders(cache) == (["1"] if is_whole else [])
    assert settled(cache)


def test_a_failed_sync_is_logged_and_the_index_verified_next_time(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing)
        with cache.entry(KEY).make(build_of(label="kept")) as opened:
            assert not settled(cache)
            assert "Input/output error" in caplog.text
            check(opened.directory, opened.manifest, deep=True)
        assert label_of(cache.entry(KEY)) == "kept"
        assert not settled(cache)
    assert label_of(cache.entry(KEY)) == "kept"
    assert settled(cache)


def test_syncing_an_evicted_generation_does_not_affect_its_successor(cache: Cache) -> None:
    entry = cache.entry(KEY)
    with entry.make(build_of()) as opened:
        assert settled(cache)
        mark = opened.directory / "unsynced"
        with mark.open("ab") as of_the_evicted:
            mark.unlink()
            mark.touch()  # its successor's
            entry._sync(opened.directory, of_the_evicted)
        assert mark.exists()
    assert label_of(entry) == ""
    assert settled(cache)


def test_closing_twice_is_harmless(cache: Cache) -> None:
    opened = cache.entry(KEY).make(build_of())
    opened.close()
    opened.close()


def test_a_ready_index_is_not_rebuilt(cache: Cache) -> None:
    entry = cache.entry(KEY)
    make(cache, KEY, label="1")
    with entry.make_unless(lambda manifest: manifest.other_sources == "1", build_of(label="2")) as opened:
        assert opened.manifest.other_sources == "1"
    with entry.make_unless(lambda manifest: manifest.other_sources == "2", build_of(label="2")) as opened:
        assert opened.manifest.other_sources == "2"

    def unsure(_: Manifest) -> bool:
        raise KeyError

    with pytest.raises(KeyError):
        entry.make_unless(unsure, build_of())
    cache.clear()  # the question held nothing open
    assert folders(cache) == []


def test_one_of_many_threads_builds_and_all_open_its_index(cache: Cache) -> None:
    built: list[int] = []

    def build(directory: Path) -> Manifest:
        built.append(1)
        time.sleep(0.05)
        return build_of()(directory)

    def want(_: int) -> Opened:
        return cache.entry(KEY).make_unless(lambda _: True, build)

    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(want, range(8)))
    assert len(built) == 1
    assert {o.directory for o in opened} == {opened[0].directory}
    for each in opened:
        each.close()


def test_one_of_two_processes_builds_while_the_other_waits(
    cache: Cache, run: Callable[[str], subprocess.Popen[str]]
) -> None:
    child = run(
        "def build(directory):\n"
        "    print('building'); sys.stdin.readline()\n"
        "    return build_of(label='child')(directory)\n"
        "cache.entry(KEY).make(build).close(); print('made')"
    )
    assert said(child) == "building"
    outcome: list[str] = []

    def want() -> None:
        with cache.entry(KEY).make_unless(lambda _: True, build_of(label="parent")) as opened:
            outcome.append(opened.manifest.other_sources)

    waiting = threading.Thread(target=want)
    waiting.start()
    time.sleep(0.1)
    assert outcome == []
    assert label_of(cache.entry(KEY)) is None
    make(cache, "another/session/altogether")  # is not held up
    assert [name[:4] for name in folders(cache)] == ["1", "new-"]  # and does not take the child's work for left over
    tell(child)
    waiting.join()
    assert outcome == ["child"]
    assert said(child) == "made"


def test_the_least_recently_used_generation_is_evicted_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LARGE)
    for number, key in enumerate("abcd"):
        make(cache, key, 10_000)
        (used,) = (path for path in tmp_path.glob(f"{key}-*/1/used"))
        os.utime(used, (1000 + number, 1000 + number))
    until(lambda: not list(tmp_path.glob("*/*/unsynced")), "all is on the disk")
    label_of(cache.entry("a"))  # now b is the oldest
    small = Cache(tmp_path, 25_000)
    small.evict()
    assert [key for key in "abcd" if label_of(cache.entry(key)) is not None] == ["a", "d"]
    assert small.used_bytes() <= 25_000
    make(small, "e", 20_000)
    assert [key for key in "abcde" if label_of(cache.entry(key)) is not None] == ["e"]
    assert len(list(tmp_path.glob("*/"))) == 1  # emptied entries are gone too


def test_a_new_index_stays_even_if_it_exceeds_the_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 100)
    with cache.entry(KEY).make(build_of(1000)) as opened:
        check(opened.directory, opened.manifest, deep=True)
    cache.evict()
    assert cache.used_bytes() == 0


def test_eviction_spares_what_another_process_has_open(
    cache: Cache, run: Callable[[str], subprocess.Popen[str]]
) -> None:
    make(cache, KEY, label="held")
    make(cache, "b")
    child = run(
        "opened = cache.entry(KEY).open(); print('open'); sys.stdin.readline(); opened.close(); print('closed')"
    )
    assert said(child) == "open"
    Cache(cache.root, 0).evict()
    cache.clear()
    assert label_of(cache.entry(KEY)) == "held"
    assert label_of(cache.entry("b")) is None
    tell(child)
    assert said(child) == "closed"
    cache.clear()
    assert label_of(cache.entry(KEY)) is None


def test_a_killed_reader_holds_no_lock(cache: Cache, run: Callable[[str], subprocess.Popen[str]]) -> None:
    make(cache, KEY)
    child = run("opened = cache.entry(KEY).open(); print('open'); sys.stdin.readline()")
    assert said(child) == "open"
    child.kill()
    child.wait()
    cache.clear()
    assert folders(cache) == []


@pytest.mark.parametrize("tidied_by", ["evict", "make"])
def test_the_files_of_a_killed_builder_are_removed(
    cache: Cache, run: Callable[[str], subprocess.Popen[str]], tidied_by: str
) -> None:
    child = run(
        "def build(directory):\n"
        "    manifest = build_of()(directory); print('building'); sys.stdin.readline(); return manifest\n"
        "cache.entry(KEY).make(build)"
    )
    assert said(child) == "building"
    cache.evict()
    assert [name[:4] for name in folders(cache)] == ["new-"]
    child.kill()
    child.wait()
    if tidied_by == "evict":
        make(cache, "another")
        assert folders(cache) == ["1"]
    else:
        make(cache, KEY)
        assert folders(cache) == ["1"]


def test_killed_at_any_moment_the_cache_holds_whole_indexes_or_none(
    cache: Cache, run: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Children make, open and clear as fast as they can and are killed; no number is ever on a half-made directory."""
    busy = (
        "print('ready')\n"
        "for number in range(100000):\n"
        "    cache.entry(KEY).make(build_of(20000, str(number))).close()\n"
        "    if number % 5 == 4: cache.clear()\n"
    )
    chance = random.Random(secrets.randbits(64))
    found = 0
    for _ in range(8):
        children = [run(busy), run(busy)]
        for child in children:
            assert said(child) == "ready"
        time.sleep(chance.uniform(0, 0.2))
        for child in children:
            child.send_signal(signal.SIGKILL)
            child.wait()
        for generation in cache.entry(KEY).generations():  # not before: who still lives may remove what was listed
            assert (generation / "manifest.json").stat().st_size > 0
        found += label_of(cache.entry(KEY)) is not None
        make(cache, KEY, label="after")
        assert label_of(cache.entry(KEY)) == "after"
        assert len(folders(cache)) == 1
    assert found  # else nothing was tried


def test_concurrent_readers_builders_and_evictions_succeed(cache: Cache) -> None:
    """Whatever is opened is whole for as long as it is open, while all else comes and goes."""
    stop = threading.Event()

    def reading() -> int:
        opened = 0
        while not stop.is_set():
            found = cache.entry(KEY).open()
            if found is not None:
                with found:
                    check(found.directory, found.manifest, deep=True)
                    opened += 1
        return opened

    def making() -> None:
        while not stop.is_set():
            make(cache, KEY, 5000)

    def clearing() -> None:
        while not stop.wait(0.002):
            cache.clear()
            cache.used_bytes()

    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(reading) for _ in range(3)]
        others = [threads.submit(work) for work in (making, making, clearing)]
        time.sleep(1.0)
        stop.set()
        for other in others:
            other.result()
        assert sum(reader.result() for reader in readers) > 0
    cache.clear()
    assert folders(cache) == []


def test_foreign_directories_are_never_touched(tmp_path: Path) -> None:
    for name in ("photos/1", "photos/new-year", "photos/old-times"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "picture").write_bytes(b"x" * 1000)
    cache = Cache(tmp_path, 0)
    make(cache, KEY)
    cache.clear()
    assert sorted(path.name for path in tmp_path.glob("photos/*")) == ["1", "new-year", "old-times"]


def test_a_root_that_is_not_a_directory_is_reported_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file", LARGE)
    for attempt in (lambda: make(cache, KEY), cache.used_bytes, cache.evict, lambda: cache.entry(KEY).open()):
        with pytest.raises(CacheUnusable, match=rf"{tmp_path}/file .*--cache-dir"):
            attempt()


UNWRITABLE = """
import os, sys
from pathlib import Path
from ray_history.index.cache import Cache, CacheUnusable
from tests.index.test_cache import KEY, LARGE, make

if os.geteuid() == 0:  # root may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    make(Cache(Path(sys.argv[1]), LARGE), KEY)
except CacheUnusable as error:
    print(error)
"""


def test_a_read_only_root_is_reported_with_the_setting() -> None:
    with tempfile.TemporaryDirectory() as directory:  # below pytest's own only its user may look
        place = Path(directory)
        place.chmod(0o555)
        said = subprocess.run([sys.executable, "-c", UNWRITABLE, directory], capture_output=True, text=True, check=True)
    assert re.search(rf"{place} .*Permission denied.*--cache-dir", said.stdout)


def test_a_full_disk_is_reported_with_the_setting_and_other_errors_pass(cache: Cache) -> None:
    def failing_with(number: int) -> Callable[[Path], Manifest]:
        def build(directory: Path) -> Manifest:
            raise OSError(number, os.strerror(number))

        return build

    with pytest.raises(CacheUnusable, match=r"No space left on device.*--cache-dir"):
        cache.entry(KEY).make(failing_with(errno.ENOSPC))
    with pytest.raises(ConnectionResetError):
        cache.entry(KEY).make(failing_with(errno.ECONNRESET))
    assert folders(cache) == []
