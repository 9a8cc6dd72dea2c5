"""Log bytes reach the archive while they are written, and stay there whatever happens to files, store and collector."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores.interface import chunks_of
from ray_history.collector.destination import Destination
from ray_history.collector.logs import bundles, full_uploads
from ray_history.collector.logs import shipper as shipping
from ray_history.collector.logs.scanner import Descriptors
from ray_history.collector.logs.shipper import LogShipper

from .log_archive import CLUSTER, NODE, SESSION, Node, log_lines

MIB = 1024 * 1024


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.shipper.close()


def kept(node: Node, name: str) -> list[bytes]:
    """What is kept of files that had this name."""
    return [data for found, data in sorted(node.archived().items()) if found.startswith(f"{name}.until-")]


# Tails


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


def test_while_nothing_happens_nothing_is_asked_of_the_store_and_no_state_is_written(node: Node) -> None:
    node.write("raylet.out", b"a line\n")
    node.interval()
    node.store.requests.clear()
    before = os.stat(node.state_file).st_mtime_ns
    for _ in range(3):
        node.interval()
    assert node.store.requests == {}
    assert os.stat(node.state_file).st_mtime_ns == before


def test_a_scan_tells_what_is_pending_and_counts_lines_with_bounded_work(node: Node) -> None:
    node.write("a.log", b"one\ntwo\nthr")
    node.write("b.log", b"x\n")
    found = node.shipper.scan()
    assert (found.files, found.pending_files, found.pending_bytes, found.pending_lines) == (2, 2, 13, 3)
    node.write("a.log", b"ee\n")
    assert node.shipper.scan().pending_lines == 4
    node.shipper.ship_tails()
    assert node.shipper.scan().pending_lines == 0
    node.write("a.log", b"four\n")
    found = node.shipper.scan()
    assert (found.pending_bytes, found.pending_lines) == (5, 1)
    node.write("flood.log", b"." * (shipping.COUNT_BYTES + 1_000_000))
    assert 10_000 <= node.shipper.scan().pending_lines <= 10_001


def test_a_flood_goes_out_in_bundles_of_bounded_size(tmp_path: Path) -> None:
    node = Node(tmp_path, bundle_bytes=MIB)
    node.write("small.log", b"small\n")
    node.write("flood.log", log_lines(1, 5 * MIB + 17))
    node.shipper.scan()
    node.shipper.ship_tails()
    assert len(node.bundles()) == 6
    assert node.archived() == node.on_disk()


def test_the_tails_stop_at_the_deadline_and_go_on_with_the_next_call(tmp_path: Path) -> None:
    node = Node(tmp_path, bundle_bytes=1000)
    node.write("a.log", log_lines(1, 10_000))
    node.shipper.scan()
    node.shipper.ship_tails(time.monotonic() - 1)
    assert node.bundles() == []
    node.shipper.ship_tails()
    assert node.archived() == node.on_disk()


# Rotation


def test_a_rotated_file_is_stored_whole_under_its_new_name_and_its_tails_are_deleted(node: Node) -> None:
    node.write("raylet.out", b"first file\n" * 20)
    node.interval()
    node.write("raylet.out", b"its last line\n")
    node.rotate("raylet.out")
    node.interval()
    assert node.objects() == node.on_disk() == {"raylet.out.1": b"first file\n" * 20 + b"its last line\n"}
    assert node.bundles() == []
    node.write("raylet.out", b"second file\n")
    node.interval()
    assert node.archived() == node.on_disk()


def test_backups_that_are_renamed_again_are_copied_inside_the_store_and_the_oldest_is_kept(node: Node) -> None:
    written = []
    for number in range(6):
        written.append(log_lines(number, 2000))
        node.write("raylet.out", written[-1])
        node.interval()
        node.rotate("raylet.out")
        node.interval()
    assert node.objects().items() >= node.on_disk().items()
    assert node.on_disk() == {f"raylet.out.{age}": written[-age] for age in (1, 2, 3)}
    assert sorted(kept(node, "raylet.out.3")) == sorted(written[:3])
    assert node.shipper.counters.whole_uploads == 6
    assert len(node.objects()) == 6


def test_the_name_of_what_is_kept_tells_when_it_was_last_written(node: Node) -> None:
    node.write("a.log", b"old")
    os.utime(node.logs / "a.log", (1_700_000_000, 1_700_000_000))
    node.interval()
    os.unlink(node.logs / "a.log")
    node.write("a.log", b"new")
    node.interval()
    assert node.objects() == {"a.log.until-20231114T221320Z": b"old"}
    assert node.read("a.log") == b"new"


def test_a_chain_that_moved_while_the_collector_was_down_is_sorted_out(node: Node) -> None:
    for number in range(3):
        node.write("raylet.out", log_lines(number, 500))
        node.interval()
        node.rotate("raylet.out")
    node.interval()
    before = node.on_disk()
    node.shipper.close()
    for number in range(3, 5):
        node.write("raylet.out", log_lines(number, 500))
        node.rotate("raylet.out")
    node.write("raylet.out", log_lines(9, 500))
    node.start()
    node.interval()
    assert node.archived().items() >= node.on_disk().items()
    assert set(before.values()) <= set(node.archived().values())
    node.finish()
    assert node.objects().items() >= node.on_disk().items()


def test_two_files_that_exchange_their_names_both_survive(node: Node) -> None:
    node.write("a.log", b"from a")
    node.write("b.log", b"from b, longer")
    node.finish()
    node.rename("a.log", "c.log")
    node.rename("b.log", "a.log")
    node.rename("c.log", "b.log")
    node.interval()
    assert node.objects() == {"a.log": b"from b, longer", "b.log": b"from a"}


def test_a_rotated_file_that_still_grows_is_not_uploaded_again_and_again(node: Node) -> None:
    node.write("raylet.out", log_lines(1, 50_000))
    node.interval()
    node.rotate("raylet.out")
    node.write("raylet.out", b"next file\n")
    node.interval()
    for number in range(10):
        node.write("raylet.out.1", f"late line {number}\n".encode())
        node.interval()
        assert node.archived() == node.on_disk()
    assert node.shipper.counters.whole_uploads == 1
    node.finish()
    assert node.objects() == node.on_disk()


def test_a_file_moved_to_old_is_stored_there(node: Node) -> None:
    node.write("worker-1.out", b"output\n" * 50)
    node.interval()
    node.rename("worker-1.out", "old/worker-1.out")
    node.interval()
    assert node.objects() == {"old/worker-1.out": b"output\n" * 50}
    assert node.bundles() == []


def test_a_file_moved_to_old_after_it_was_stored_whole_is_copied_and_leaves_no_double(node: Node) -> None:
    node.write("worker-1.out", b"output\n" * 50)
    node.finish()
    sent = node.store.sent
    node.rename("worker-1.out", "old/worker-1.out")
    node.interval()
    assert node.objects() == {"old/worker-1.out": b"output\n" * 50}
    assert node.store.sent == sent


def test_a_copy_the_store_cannot_make_becomes_an_upload(node: Node) -> None:
    node.write("worker-1.out", b"output\n" * 50)
    node.finish()
    node.rename("worker-1.out", "old/worker-1.out")
    with node.failing(lambda operation, _key: operation == "copy"):
        node.interval()
    assert node.objects() == {"old/worker-1.out": b"output\n" * 50}


# Truncation and deletion


def test_what_was_shipped_of_a_truncated_file_is_kept_and_what_was_not_is_counted(node: Node) -> None:
    node.write("a.log", b"shipped\n" * 20)
    node.interval()
    node.write("a.log", b"never shipped\n")
    node.shipper.scan()
    os.truncate(node.logs / "a.log", 0)
    node.write("a.log", b"new\n")
    node.interval()
    assert node.read("a.log") == b"new\n"
    assert kept(node, "a.log") == [b"shipped\n" * 20]
    counters = node.shipper.counters
    assert counters.bytes_lost == len(b"never shipped\n")
    assert counters.bytes_written == counters.bytes_stored + counters.bytes_lost


def test_a_file_that_was_stored_whole_and_grew_is_kept_in_one_piece_when_it_is_truncated(node: Node) -> None:
    node.write("a.log", log_lines(1, 3000))
    node.finish()
    node.write("a.log", log_lines(2, 1000))
    node.interval()
    os.truncate(node.logs / "a.log", 0)
    node.write("a.log", b"x")
    node.interval()
    assert kept(node, "a.log") == [log_lines(1, 3000) + log_lines(2, 1000)]
    assert node.read("a.log") == b"x"


def test_a_file_written_anew_and_longer_between_two_scans_is_noticed(node: Node) -> None:
    node.write("a.log", b"old content\n")
    node.interval()
    (node.logs / "a.log").write_bytes(b"other content, and longer\n")
    node.interval()
    assert node.read("a.log") == b"other content, and longer\n"
    assert kept(node, "a.log") == [b"old content\n"]


def test_a_file_that_differs_only_behind_its_first_kilobyte_is_noticed_too(node: Node) -> None:
    banner = b"the same banner\n" * 100
    node.write("a.log", banner + b"first life\n" * 30)
    node.interval()
    (node.logs / "a.log").write_bytes(banner + b"second life\n" * 40)
    node.interval()
    assert node.read("a.log") == banner + b"second life\n" * 40
    assert kept(node, "a.log") == [banner + b"first life\n" * 30]


def test_what_was_stored_keeps_its_name_when_another_file_gets_its_inode_number(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("raylet.out", b"the first\n")
    node.interval()
    node.shipper.close()  # nothing keeps the number in use
    (node.logs / "raylet.out").unlink()
    node.write("other.log", b"the second, which is longer\n")
    node.start()
    node.finish()
    stored = {name.partition(".until-")[0]: data for name, data in node.archived().items()}
    assert stored == {"raylet.out": b"the first\n", "other.log": b"the second, which is longer\n"}


def test_an_inode_number_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    node = Node(tmp_path, open_files=1)
    node.write("a.log", b"first " * 10)
    node.interval()
    node.shipper.close()
    os.unlink(node.logs / "a.log")
    node.write("a.log", b"second " * 20)  # on ext4 this gets the number that became free
    node.start()
    node.interval()
    assert node.read("a.log") == b"second " * 20
    assert b"first " * 10 in node.archived().values()


def test_a_growing_file_that_is_deleted_is_still_read_to_its_end(node: Node) -> None:
    node.write("a.log", b"first\n")
    node.interval()
    node.write("a.log", b"last words\n")
    os.unlink(node.logs / "a.log")
    node.interval()
    assert node.objects() == {"a.log": b"first\nlast words\n"}
    assert node.shipper.counters.bytes_lost == 0
    assert node.bundles() == []


def test_a_deleted_file_that_was_not_open_any_more_stays_as_far_as_it_was_shipped(tmp_path: Path) -> None:
    node = Node(tmp_path, open_files=1)
    node.write("a.log", log_lines(1, 2000))
    node.interval()
    node.write("z.log", log_lines(2, 3000))  # takes the one open descriptor
    node.interval()
    os.unlink(node.logs / "a.log")
    node.interval()
    assert node.archived() == {"a.log": log_lines(1, 2000), "z.log": log_lines(2, 3000)}
    node.finish()
    assert node.objects() == {"a.log": log_lines(1, 2000), "z.log": log_lines(2, 3000)}


def test_files_of_one_name_that_come_and_go_are_all_kept(node: Node) -> None:
    lives = [f"life {number}\n".encode() * 30 for number in range(4)]
    for life in lives:
        node.write("a.log", life)
        node.interval()
        os.unlink(node.logs / "a.log")
    node.interval()
    assert sorted(node.archived().values()) == sorted(lives)


def test_when_a_folder_cannot_be_listed_its_files_are_not_taken_for_deleted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write("serve/a.log", b"a")
    node.interval()
    real_open = os.open

    def refusing(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "serve":
            raise PermissionError(13, "no")
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    assert node.shipper.scan().files == 1
    assert node.shipper.problems == ["log directory serve/ cannot be listed"]
    monkeypatch.undo()
    node.finish()
    assert node.objects() == {"serve/a.log": b"a"}


# Odd files


def test_empty_files_are_listed_at_the_end_except_the_one_per_worker(node: Node) -> None:
    for name in ("raylet.err", "events/event_CORE_WORKER_1.log", "events/event_RAYLET.log"):
        node.write(name, b"")
    node.interval()
    assert node.bundles() == []
    node.finish()
    assert node.objects() == {"raylet.err": b"", "events/event_RAYLET.log": b""}


def test_an_empty_file_does_not_hide_what_its_name_held_before(node: Node) -> None:
    node.write("a.log", b"content\n")
    node.interval()
    os.truncate(node.logs / "a.log", 0)
    node.finish()
    assert node.objects()["a.log"] == b""
    assert kept(node, "a.log") == [b"content\n"]


def test_links_are_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (node.logs / "link.log").symlink_to(tmp_path / "secret")
    (node.logs / "folder").symlink_to(tmp_path)
    node.write("a.log", b"a")
    os.link(node.logs / "a.log", node.logs / "b.log")
    node.finish()
    assert node.objects() == {"a.log": b"a"}


def test_names_that_no_store_takes_are_written_out(node: Node) -> None:
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


def test_a_file_that_cannot_be_read_is_told_once_and_stops_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = Descriptors._open

    def refusing(self: Descriptors, identity: tuple[int, int], name: str) -> int:
        if name == "private.log":
            raise PermissionError(13, "Permission denied")
        return really_open(self, identity, name)

    monkeypatch.setattr(Descriptors, "_open", refusing)
    node.write("private.log", b"private")
    node.write("a.log", b"a")
    node.interval()
    node.write("private.log", b"more")
    node.interval()
    assert node.archived() == {"a.log": b"a"}
    node.finish()
    assert node.objects() == {"a.log": b"a"}
    assert node.shipper.problems == ["log private.log cannot be read: Permission denied"]
    assert node.shipper.counters.problems == 1


def test_a_file_that_grows_while_it_is_uploaded_is_stored_as_it_was_and_goes_on_in_tails(node: Node) -> None:
    node.write("raylet.out", log_lines(1, 3 * MIB))
    really_put = node.store.put_stream

    def growing(key: str, source: BinaryIO | Iterable[bytes]) -> int:
        def chunks() -> Iterator[bytes]:
            for chunk in chunks_of(source):
                node.write("raylet.out", b"written meanwhile\n")
                yield chunk

        return really_put(key, chunks())

    node.store.put_stream = growing  # type: ignore[method-assign]
    result = node.shipper.finish(float("inf"), final=False)
    assert not result.failures
    assert node.objects()["raylet.out"] == log_lines(1, 3 * MIB)
    del node.store.put_stream
    node.interval()
    assert node.read("raylet.out") == (node.logs / "raylet.out").read_bytes()
    node.finish()
    assert node.objects() == node.on_disk()


# The end


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


def test_what_people_look_for_goes_first_and_large_files_last(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_finish_that_runs_out_of_time_says_what_is_left_and_a_later_start_goes_on(node: Node) -> None:
    for number in range(20):
        node.write(f"worker-{number}.out", log_lines(number, 500))
    node.interval()
    result = node.shipper.finish(time.monotonic() - 1, final=True)
    assert (result.complete, result.files_left, result.bytes_left, result.bundles_left) == (False, 20, 0, 1)
    assert node.archived() == node.on_disk()
    node.crash()
    node.finish()
    assert node.objects() == node.on_disk()


def test_a_finished_session_that_goes_on_is_continued_behind_its_whole_objects(node: Node) -> None:
    node.write("raylet.out", log_lines(1, 5000))
    node.finish()
    node.crash()
    sent = node.store.sent
    node.write("raylet.out", b"a new line\n")
    node.interval()
    assert node.read("raylet.out") == log_lines(1, 5000) + b"a new line\n"
    assert node.store.sent - sent < 1000
    node.finish()
    assert node.objects() == node.on_disk()


def test_bundles_are_deleted_oldest_first_and_no_request_spans_a_change_of_generation(node: Node) -> None:
    node.write("pin.log", b"x")
    for number in range(4):
        node.write("raylet.out", log_lines(number, 300))
        node.interval()
        node.write("raylet.out", log_lines(number, 100))
        node.interval()
        node.rotate("raylet.out")
    batches: list[list[str]] = []
    really_delete = node.real_store.delete_many

    def watched(keys: Iterable[str]) -> None:
        batches.append([key for key in keys if "history-tails" in key])
        really_delete(batches[-1])

    node.store.delete_many = watched  # type: ignore[attr-defined]
    node.finish()
    deleted = [[int(key.rpartition("/")[2]) for key in batch] for batch in batches if batch]
    first = deleted[0][0]
    assert [[n - first for n in batch] for batch in deleted] == [[0, 1], [2, 3], [4, 5], [6, 7]]


# Failures and restarts


def test_when_the_store_fails_nothing_is_lost_and_the_next_call_goes_on(node: Node) -> None:
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


def test_a_file_the_store_refuses_does_not_keep_the_others_back(node: Node) -> None:
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


def test_bytes_shipped_before_a_crash_and_not_remembered_do_not_disturb(node: Node) -> None:
    node.write("a.log", b"first\n")
    node.interval()
    remembered = node.state_file.read_bytes()
    node.write("a.log", b"second\n")
    node.interval()
    node.rotate("a.log")
    node.write("a.log", b"another file\n")
    node.interval()
    node.shipper.close()
    node.state_file.write_bytes(remembered)
    node.start()
    node.interval()
    assert node.read("a.log") == b"another file\n"
    assert node.read("a.log.1") == b"first\nsecond\n"
    node.finish()
    assert node.objects() == node.on_disk()


def test_when_the_state_file_is_lost_sequences_go_on_and_the_content_is_right(node: Node) -> None:
    node.write("a.log", log_lines(1, 1000))
    node.write("b.log", log_lines(2, 1000))
    node.interval()
    before = node.bundles()
    node.rotate("b.log")
    node.state_file.unlink()
    node.write("a.log", b"more\n")
    node.write("b.log", b"another\n")
    node.crash()
    assert "there is no" in node.shipper.resumes_without
    node.interval()
    assert node.bundles()[: len(before)] == before or not set(before) & set(node.bundles())
    archived = node.archived()
    assert {name: archived[name] for name in node.on_disk()} == node.on_disk()
    node.finish()
    assert node.objects() == node.on_disk()


def test_a_state_file_that_is_damaged_or_of_another_session_is_not_used(node: Node, tmp_path: Path) -> None:
    node.write("a.log", b"a")
    node.interval()
    node.state_file.write_bytes(node.state_file.read_bytes()[:-5])
    node.crash()
    assert "cannot be understood" in node.shipper.resumes_without
    node.finish()
    other = LogShipper(Destination(node.store, CLUSTER), SESSION, "b" * 56, node.logs, node.state_file)
    assert "is of session" in other.resumes_without


def test_an_object_that_is_there_but_not_remembered_is_known_by_its_bytes_and_not_uploaded_again(node: Node) -> None:
    node.write("a.log", log_lines(1, 200_000))
    node.finish()
    node.state_file.unlink()
    node.crash()
    sent = node.store.sent
    node.finish()
    assert node.store.sent == sent
    assert node.objects() == node.on_disk()


# Numbers


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


def test_a_session_of_weeks_has_few_bundles_and_every_byte(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles.Bundles, "many", 8)
    monkeypatch.setattr(bundles.Bundles, "grace", 0.0)
    written = {"raylet.out": b"", "worker-1.err": b""}
    most = 0
    for number in range(300):
        name = "raylet.out" if number % 3 else "worker-1.err"
        line = b"line %d of %s\n" % (number, name.encode())
        node.write(name, line)
        written[name] += line
        node.shipper.scan()
        node.shipper.ship_tails()
        node.shipper.ship_settled()
        most = max(most, len(node.bundles()))
    assert most <= 24
    assert {name: node.read(name) for name in written} == written
    node.crash()
    node.shipper.scan()
    node.shipper.ship_settled()
    assert {name: node.read(name) for name in written} == written


def test_bundles_that_were_put_together_can_still_be_read_for_a_while(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles.Bundles, "many", 4)
    for number in range(4):
        node.write("raylet.out", b"line %d\n" % number)
        node.shipper.scan()
        node.shipper.ship_tails()
    before = node.bundles()
    node.shipper.ship_settled()
    assert node.bundles()[:4] == before
    assert len(node.bundles()) == 5
    monkeypatch.setattr(bundles.Bundles, "grace", 0.0)
    node.shipper.ship_settled()
    assert len(node.bundles()) == 1
    assert node.read("raylet.out") == b"line 0\nline 1\nline 2\nline 3\n"


def test_five_thousand_files_are_cheap_to_look_at_and_one_put_to_ship(node: Node) -> None:
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
    """How often what is called: says how much work something is, however busy the machine."""
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
    """Stands in for a store with room for anything: keeps what is small, counts what is large."""

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


# Everything at once, against a model


@dataclass(eq=False)
class Content:
    """What one file held, whatever its names; a truncated file is another one from then on."""

    names: set[str]
    data: bytearray = field(default_factory=bytearray)
    shipped: int = 0
    """So many bytes must stay readable."""


class InLine:
    """Stands in for a pool of threads: does the work at once."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        return

    def __enter__(self) -> InLine:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - the caller sees it
            future.set_exception(error)
        return future


NAMES = ["raylet.out", "gcs_server.out", "worker-1.err"]


class LogsOfANode(RuleBasedStateMachine):
    """What was shipped stays readable, byte for byte, under the names we promise; nothing else is ever read."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="logs-"))
        self.disk: dict[str, Content] = {}
        self.contents: list[Content] = []
        self.source = random.Random(1)
        self.old_states: list[bytes] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(full_uploads, "ThreadPoolExecutor", InLine)  # so that an example runs the same way again
        ticks = count(1_700_000_000)
        self.patch.setattr(time, "time_ns", lambda: next(ticks) * 1_000_000_000)
        self.patch.setattr(os, "fsync", lambda _descriptor: None)  # killing a process does not need it
        self.patch.setattr(bundles.Bundles, "many", 3)
        self.patch.setattr(bundles.Bundles, "small", 600)
        self.patch.setattr(bundles.Bundles, "grace", 0.0)
        self.node = Node(self.folder, bundle_bytes=300, open_files=3)

    def teardown(self) -> None:
        self.patch.undo()
        self.node.shipper.close()
        shutil.rmtree(self.folder)

    # The disk

    def begin(self, name: str, data: bytes = b"") -> Content:
        content = self.disk[name] = Content({name}, bytearray(data))
        self.contents.append(content)
        return content

    def renamed(self, name: str, target: str) -> None:
        self.node.rename(name, target)
        content = self.disk[target] = self.disk.pop(name)
        content.names.add(target)

    @rule(name=st.sampled_from(NAMES), amount=st.sampled_from([8, 30, 200, 1500]))
    def write(self, name: str, amount: int) -> None:
        data = self.source.randbytes(amount)
        content = self.disk.get(name) or self.begin(name)
        content.data += data
        self.node.write(name, data)

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def append_anywhere(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.disk)))
        more = self.source.randbytes(20)
        self.disk[name].data += more
        self.node.write(name, more)

    @rule(name=st.sampled_from(NAMES), again=st.booleans())
    def rotate(self, name: str, again: bool) -> None:
        if name not in self.disk:
            return
        for number in (2, 1):
            if f"{name}.{number}" in self.disk:
                self.renamed(f"{name}.{number}", f"{name}.{number + 1}")
        self.renamed(name, f"{name}.1")
        if again:
            self.write(name, 30)

    @rule(name=st.sampled_from(NAMES))
    def copy_and_truncate(self, name: str) -> None:
        if name not in self.disk:
            return
        if f"{name}.1" in self.disk:
            self.renamed(f"{name}.1", f"{name}.2")
        shutil.copyfile(self.node.logs / name, self.node.logs / f"{name}.1")
        copied = self.begin(f"{name}.1", bytes(self.disk[name].data))
        copied.names = self.disk[name].names  # the same bytes: where the copy is, the original is found
        copied.names.add(f"{name}.1")
        os.truncate(self.node.logs / name, 0)
        self.begin(name).names = copied.names

    @precondition(lambda self: self.disk)
    @rule(data=st.data(), more=st.sampled_from([0, 30, 2000]))
    def truncate(self, data: st.DataObject, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.disk)))
        size = data.draw(st.integers(0, len(self.disk[name].data)))
        os.truncate(self.node.logs / name, size)
        added = self.source.randbytes(more)
        self.node.write(name, added)
        before = self.disk[name]
        after = self.begin(name, bytes(before.data[:size]) + added)
        after.names = before.names  # when it is renamed before the next scan, either name may be kept

    @precondition(lambda self: self.disk)
    @rule(data=st.data(), recreate=st.booleans())
    def delete(self, data: st.DataObject, recreate: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.disk)))
        os.unlink(self.node.logs / name)
        del self.disk[name]
        if recreate:
            more = self.source.randbytes(50)
            self.begin(name, more)
            self.node.write(name, more)

    @rule(name=st.sampled_from(NAMES))
    def move_to_old(self, name: str) -> None:
        if name in self.disk:
            self.renamed(name, f"old/{name}")

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def rename_onto_any(self, data: st.DataObject) -> None:
        names = sorted(self.disk)
        name, target = data.draw(st.sampled_from(names)), data.draw(st.sampled_from([*names, *NAMES]))
        if name != target:
            self.renamed(name, target)

    @precondition(lambda self: len(self.disk) > 1)
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(sorted(self.disk)))[:2]
        self.renamed(one, "between")
        self.renamed(other, one)
        self.renamed("between", other)

    # The collector

    @rule()
    def scan(self) -> None:
        self.node.shipper.scan()

    @rule()
    def ship_tails(self) -> None:
        self.node.shipper.scan()
        self.node.shipper.ship_tails()

    @rule()
    def an_interval_passes(self) -> None:
        self.node.interval()
        for name, content in self.disk.items():
            content.shipped = len(content.data)
            if content.data:
                assert self.node.read(name) == content.data, name

    @rule()
    def finish(self) -> None:
        self.node.finish()
        objects = self.node.objects()
        for name, content in self.disk.items():
            content.shipped = len(content.data)
            assert objects[name] == content.data, name
        assert not self.node.bundles()

    @rule(seed=st.integers(0, 100), arrives=st.booleans(), what=st.sampled_from(["interval", "finish", "tails"]))
    def the_store_fails_at_times(self, seed: int, arrives: bool, what: str) -> None:
        asked: Counter[tuple[str, str]] = Counter()

        def fails(operation: str, key: str) -> bool:
            request = operation, re.sub("until-[0-9TZ]+", "until", key)
            asked[request] += 1
            return zlib.crc32(f"{seed} {request} {asked[request]}".encode()) % 10 < 4

        with self.node.failing(fails, arrives):
            try:
                if what == "finish":
                    self.node.shipper.finish(float("inf"), final=False)
                elif what == "interval":
                    self.node.interval()
                else:
                    self.ship_tails()
            except ArchiveError:
                return

    @rule()
    def the_collector_is_killed(self) -> None:
        self.node.crash()

    @rule(operation=st.integers(1, 12), arrives=st.booleans(), what=st.sampled_from(["interval", "finish"]))
    def the_collector_is_killed_at_work(self, operation: int, arrives: bool, what: str) -> None:
        class Killed(BaseException):
            pass

        left = operation

        def fails(operation: str, _key: str) -> bool:
            nonlocal left
            left -= operation != "get_range"  # those run in threads, in any order
            if left < 0 or (left == 0 and not arrives):
                raise Killed
            return False

        with self.node.failing(fails):
            try:
                if what == "finish":
                    self.node.shipper.finish(float("inf"), final=False)
                else:
                    self.node.interval()
            except Killed:
                pass
        self.node.crash()

    @rule()
    def the_state_file_is_copied(self) -> None:
        if self.node.state_file.exists():
            self.old_states.append(self.node.state_file.read_bytes())

    @precondition(lambda self: self.old_states)
    @rule(data=st.data())
    def an_old_state_file_comes_back(self, data: st.DataObject) -> None:
        self.node.shipper.close()
        self.node.state_file.write_bytes(self.old_states[data.draw(st.integers(0, len(self.old_states) - 1))])
        self.node.start()

    @rule()
    def the_state_file_is_lost(self) -> None:
        self.node.shipper.close()
        self.node.state_file.unlink(missing_ok=True)
        self.node.start()

    # What must hold

    @invariant()
    def what_was_shipped_is_readable_and_nothing_else(self) -> None:
        files = self.node.files()
        readable: list[tuple[str, bytes]] = []
        for file in files.list(NODE) if files.nodes() else ():
            for each in (file, *files.earlier(file)):
                reader = files.open(each)
                if not reader.gaps:
                    data = b"".join(reader.stream())
                    readable.append((each.name, data))
                    assert any(content.data.startswith(data) for content in self.contents), each.name
        assert files.problems == []
        for content in self.contents:
            if content.shipped:
                assert any(
                    data[: content.shipped] == content.data[: content.shipped]
                    and any(name == known or name.startswith(f"{known}.until-") for known in content.names)
                    for name, data in readable
                ), (content.names, content.shipped, [(name, len(data)) for name, data in readable])


LogsOfANode.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
TestLogsOfANode = LogsOfANode.TestCase
