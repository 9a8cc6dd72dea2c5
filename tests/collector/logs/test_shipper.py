"""Log bytes reach the archive while they are written: one node in one session."""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import pytest

from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores.interface import chunks_of
from ray_history.collector.destination import Destination
from ray_history.collector.logs import shipper as shipping
from ray_history.collector.logs.bundles import Bundles
from ray_history.collector.logs.shipper import EXPORT_GIVEN_UP, LogShipper

from .log_archive import CLUSTER, MIB, NODE, SESSION, Node, log_lines


def test_new_bytes_of_all_files_are_readable_after_one_put_per_interval(node: Node) -> None:
    for number in range(300):
        node.write(f"worker-{number}.out", log_lines(number, 1000))
    node.interval()
    node.store.requests.clear()
    for number in range(300):
        node.write(f"worker-{number}.out", b"one more line\n")
    node.interval()
    assert node.store.requests == {"put": 1}
    assert node.archived() == node.on_disk()
    assert node.objects() == {}


def test_without_changes_there_are_no_requests_and_no_state_is_written(node: Node) -> None:
    node.write("raylet.out", b"a line\n")
    node.interval()
    node.store.requests.clear()
    before = os.stat(node.state_file).st_mtime_ns
    for _ in range(3):
        node.interval()
    assert node.store.requests == {}
    assert os.stat(node.state_file).st_mtime_ns == before


def test_tails_stop_at_the_deadline_and_continue_with_the_next_call(tmp_path: Path) -> None:
    node = Node(tmp_path, bundle_bytes=1000)
    node.write("a.log", log_lines(1, 10_000))
    node.shipper.scan()
    node.shipper.ship_tails(time.monotonic() - 1)
    assert node.bundles() == []
    node.shipper.ship_tails()
    assert node.archived() == node.on_disk()


EMPTY = ("events/event_CORE_WORKER_1.log", "events/event_RAYLET.log", "raylet.err")


def test_empty_files_are_listed_and_read_before_and_after_the_end(node: Node) -> None:
    for name in EMPTY:
        node.write(name, b"")
    node.interval()
    assert len(node.bundles()) == 1, "names cost no request per file while the session runs"
    assert node.archived() == dict.fromkeys(EMPTY, b"")
    requests = node.store.requests.copy()
    node.interval()
    assert node.store.requests == requests, "names are uploaded once"
    node.finish()
    assert node.objects() == dict.fromkeys(EMPTY, b""), "as KubeRay's collector stores them"
    assert node.bundles() == []


def test_the_names_of_empty_files_survive_a_crash_and_other_files(node: Node) -> None:
    node.write("raylet.err", b"")
    node.write("worker-1.out", b"")
    node.interval()
    node.write("raylet.out", b"x" * 100)
    node.interval()
    node.rotate("raylet.out")
    node.interval()  # raylet.out.1 is a whole object now, and the bundles with its bytes are deleted
    assert node.bundles() == []
    node.crash()
    node.write("worker-1.out", b"written\n")
    node.interval()
    assert node.archived() == {"raylet.err": b"", "worker-1.out": b"written\n", "raylet.out.1": b"x" * 100}
    node.state_file.unlink()
    node.crash()
    node.interval()
    assert node.archived()["raylet.err"] == b""


def test_the_names_of_empty_files_survive_merging(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundles, "max_run", 4)
    monkeypatch.setattr(Bundles, "grace", 0.0)
    node.write("raylet.err", b"")
    for number in range(20):
        node.write("raylet.out", f"{number}\n".encode())
        node.interval()
    assert len(node.bundles()) < 10
    assert node.archived()["raylet.err"] == b""


def test_an_empty_file_does_not_hide_the_bytes_of_its_name(node: Node) -> None:
    node.write("raylet.out", b"before the rotation\n")
    node.interval()
    node.rotate("raylet.out")
    node.write("raylet.out", b"")
    node.interval()
    assert node.read("raylet.out.1") == b"before the rotation\n"
    node.finish()
    assert node.archived() == {"raylet.out": b"", "raylet.out.1": b"before the rotation\n"}


@pytest.mark.parametrize("name", ["gcs_server.out", "gcs_server.err", "raylet.out"])
def test_a_gcs_that_gives_up_exporting_is_found_in_its_log(node: Node, name: str) -> None:
    node.write(name, log_lines(1, 3000) + EXPORT_GIVEN_UP[:20])
    node.interval()
    assert not node.shipper.export_given_up
    node.write(name, EXPORT_GIVEN_UP[20:] + b". Events and metrics will not be exported.\n")
    node.interval()
    assert node.shipper.export_given_up is name.startswith("gcs_server")


def test_links_are_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (node.logs / "link.log").symlink_to(tmp_path / "secret")
    (node.logs / "folder").symlink_to(tmp_path)
    node.write("a.log", b"a")
    os.link(node.logs / "a.log", node.logs / "b.log")
    node.finish()
    assert node.objects() == {"a.log": b"a"}


def test_names_that_stores_refuse_are_escaped(node: Node) -> None:
    for name in (b"new\nline.log", b"tab\t.log", b"latin-\xe9.log", b"back\\slash.log", "日本 ☕?&%.log".encode()):
        node.write(name, name)
    node.interval()
    node.rename("tab\t.log", "old/tab\t.log")
    node.interval()
    expected = {
        "new\\x0aline.log": b"new\nline.log",
        "old/tab\\x09.log": b"tab\t.log",
        "latin-\\xe9.log": b"latin-\xe9.log",
        "back\\x5cslash.log": b"back\\slash.log",
        "日本 ☕?&%.log": "日本 ☕?&%.log".encode(),
    }
    assert node.archived() == {**expected, "tab\\x09.log": b"tab\t.log"}  # the others' tails are in its bundle
    node.crash()
    node.finish()
    assert node.objects() == expected


def test_at_the_end_the_archive_has_the_files_and_no_bundles(node: Node) -> None:
    for number in range(50):
        node.write(f"worker-{number}.out", log_lines(number, 500))
        node.interval()
    node.write("worker-7.out", b"the very last line\n")
    node.finish()
    assert node.objects() == node.on_disk()
    assert node.bundles() == []
    assert node.shipper.counters.bytes_stored == node.shipper.counters.bytes_written
    node.store.requests.clear()
    node.finish()
    assert not node.store.requests


def test_important_files_are_uploaded_first_and_large_ones_last(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "_LARGE", 5000)
    sizes = {
        "raylet.out": 9000,
        "worker-1.out": 300,
        "worker-1.err": 400,
        "python-error.log": 200,
        "job-driver-1.log": 4000,
        "worker-2.out": 100,
    }
    for name, size in sizes.items():
        node.write(name, log_lines(1, size))
    order: list[str] = []
    node.store.fails = lambda operation, key: operation == "put_stream" and bool(order.append(key.rpartition("/")[2]))
    monkeypatch.setattr("ray_history.collector.logs.full_uploads.PARALLEL", 1)
    node.finish()
    assert order == [
        "job-driver-1.log",
        "python-error.log",
        "worker-1.err",
        "worker-2.out",
        "worker-1.out",
        "raylet.out",
    ]


def test_an_incomplete_finish_reports_what_is_left_and_the_next_start_continues(node: Node) -> None:
    for number in range(20):
        node.write(f"worker-{number}.out", log_lines(number, 500))
    node.interval()
    result = node.shipper.finish(time.monotonic() - 1, final=True)
    assert (result.complete, result.files_left, result.bytes_left, result.bundles_left) == (False, 20, 0, 1)
    assert node.archived() == node.on_disk()
    node.crash()
    node.finish()
    assert node.objects() == node.on_disk()


def test_a_failing_store_loses_nothing_and_the_next_call_continues(node: Node) -> None:
    node.write("a.log", b"one\n")
    with node.failing(lambda operation, _key: operation == "put"), pytest.raises(ArchiveError):
        node.interval()
    assert node.archived() == {}
    node.write("a.log", b"two\n")
    node.interval()
    assert node.archived() == node.on_disk()
    with node.failing(lambda _operation, _key: True):
        result = node.shipper.finish(float("inf"), final=True)
    assert not result.complete
    assert result.failures
    node.finish()
    assert node.objects() == node.on_disk()


def test_a_file_that_the_store_refuses_does_not_stop_the_others(node: Node) -> None:
    for name in ("a.log", "bad.log", "c.log"):
        node.write(name, name.encode())
    node.interval()
    for name in ("a.log", "bad.log", "c.log"):
        node.rename(name, f"old/{name}")
    with node.failing(lambda operation, key: operation == "put_stream" and "bad" in key), pytest.raises(ArchiveError):
        node.interval()
    assert node.objects() == {"old/a.log": b"a.log", "old/c.log": b"c.log"}
    assert node.archived()["bad.log"] == b"bad.log"
    node.interval()
    assert node.objects() == node.on_disk()


def test_uploads_stay_near_the_bytes_that_were_written(node: Node) -> None:
    for number in range(60):
        for worker in range(5):
            node.write(f"worker-{worker}.out", log_lines(number * 5 + worker, 4000))
        node.write("raylet.out", log_lines(number, 20_000))
        if number % 20 == 19:
            node.interval()
            node.rotate("raylet.out")
        node.interval()
    node.finish()
    assert node.objects() == node.on_disk()
    counters = node.shipper.counters
    assert counters.bytes_uploaded == node.store.sent
    assert node.store.sent <= 1.6 * counters.bytes_written


def test_five_thousand_files_are_cheap_to_scan_and_one_put_to_upload(node: Node) -> None:
    for number in range(5000):
        node.write(f"{'old/' if number % 3 else ''}worker-{number:056x}-01000000-{number}.out", b"started\n")
    node.interval()
    assert node.store.requests["put"] == 1
    node.store.requests.clear()
    looking = calls_of(node.shipper.scan)
    assert looking.total() < 16 * 5000
    assert looking["open"] <= 3  # folders
    assert not looking["read"]
    node.write("worker-1.out", b"a line\n")
    node.shipper.scan()
    shipping = calls_of(node.shipper.ship_tails)
    assert shipping.total() < 4 * 5000  # the state of all is written
    assert node.store.requests == {"put": 1}


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """The number of calls by function name: a measure of work that does not depend on the load."""
    calls: Counter[str] = Counter()

    def tally(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls[argument.__name__] += 1

    sys.setprofile(tally)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


class Swallowing:
    """A stand-in for a store of any size: it only notes the sizes of objects."""

    url = "memory://"

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def put(self, key: str, data: bytes) -> None:
        self.sizes[key] = len(data)

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        self.sizes[key] = sum(len(chunk) for chunk in chunks_of(source))
        return self.sizes[key]

    def list(self, prefix: str = "") -> Iterator[Any]:
        return iter(())

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self.sizes.pop(key, None)


def test_a_file_of_300_megabytes_takes_little_memory(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with (logs / "raylet.out").open("wb") as file:
        for number in range(0, 300, 50):
            file.seek(number * MIB)
            file.write(log_lines(number, 100_000))
        file.truncate(300 * MIB)
    store: Any = Swallowing()
    shipper = LogShipper(Destination(store, CLUSTER), SESSION, NODE, logs, tmp_path / "state.json")
    tracemalloc.start()
    shipper.scan()
    shipper.ship_tails()
    result = shipper.finish(float("inf"), final=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    shipper.close()
    assert result.complete
    assert list(store.sizes.values()) == [300 * MIB]
    assert shipper.counters.bundles == 38
    assert peak < 40 * MIB
