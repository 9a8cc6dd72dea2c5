"""What happens to files between two scans is noticed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ray_history.collector.logs import shipper as shipping
from ray_history.collector.logs.scanner import Descriptors

from .log_archive import Node, log_lines, preserved


def test_a_scan_reports_pending_bytes_and_counts_lines_with_bounded_work(node: Node) -> None:
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


def test_a_file_rewritten_and_longer_between_two_scans_is_noticed(node: Node) -> None:
    node.write("a.log", b"old content\n")
    node.interval()
    (node.logs / "a.log").write_bytes(b"other content, and longer\n")
    node.interval()
    assert node.read("a.log") == b"other content, and longer\n"
    assert preserved(node, "a.log") == [b"old content\n"]


def test_a_rewritten_file_with_the_same_first_kilobyte_is_noticed(node: Node) -> None:
    banner = b"the same banner\n" * 100
    node.write("a.log", banner + b"first life\n" * 30)
    node.interval()
    (node.logs / "a.log").write_bytes(banner + b"second life\n" * 40)
    node.interval()
    assert node.read("a.log") == banner + b"second life\n" * 40
    assert preserved(node, "a.log") == [banner + b"first life\n" * 30]


def test_a_stored_file_keeps_its_name_when_another_file_gets_its_inode_number(tmp_path: Path) -> None:
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


def test_a_reused_inode_number_is_another_file(tmp_path: Path) -> None:
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


def test_of_a_deleted_file_that_was_not_open_the_uploaded_bytes_remain(tmp_path: Path) -> None:
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


def test_the_files_of_an_unreadable_folder_do_not_count_as_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_unreadable_file_is_reported_once_and_does_not_stop_the_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
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
