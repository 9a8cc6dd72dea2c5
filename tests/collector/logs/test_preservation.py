"""The content of deleted and truncated files is preserved."""

from __future__ import annotations

import os

from .log_archive import Node, log_lines, preserved


def test_the_name_of_a_preserved_file_has_the_time_of_its_last_write(node: Node) -> None:
    node.write("a.log", b"old")
    os.utime(node.logs / "a.log", (1_700_000_000, 1_700_000_000))
    node.interval()
    os.unlink(node.logs / "a.log")
    node.write("a.log", b"new")
    node.interval()
    assert node.objects() == {"a.log.until-20231114T221320Z": b"old"}
    assert node.read("a.log") == b"new"


def test_uploaded_bytes_of_a_truncated_file_are_preserved_and_lost_ones_counted(node: Node) -> None:
    node.write("a.log", b"shipped\n" * 20)
    node.interval()
    node.write("a.log", b"never shipped\n")
    node.shipper.scan()
    os.truncate(node.logs / "a.log", 0)
    node.write("a.log", b"new\n")
    node.interval()
    assert node.read("a.log") == b"new\n"
    assert preserved(node, "a.log") == [b"shipped\n" * 20]
    counters = node.shipper.counters
    assert counters.bytes_lost == len(b"never shipped\n")
    assert counters.bytes_written == counters.bytes_stored + counters.bytes_lost


def test_a_whole_object_and_its_tails_are_joined_when_the_file_is_truncated(node: Node) -> None:
    node.write("a.log", log_lines(1, 3000))
    node.finish()
    node.write("a.log", log_lines(2, 1000))
    node.interval()
    os.truncate(node.logs / "a.log", 0)
    node.write("a.log", b"x")
    node.interval()
    assert preserved(node, "a.log") == [log_lines(1, 3000) + log_lines(2, 1000)]
    assert node.read("a.log") == b"x"


def test_successive_files_of_one_name_are_all_preserved(node: Node) -> None:
    lives = [f"life {number}\n".encode() * 30 for number in range(4)]
    for life in lives:
        node.write("a.log", life)
        node.interval()
        os.unlink(node.logs / "a.log")
    node.interval()
    assert sorted(node.archived().values()) == sorted(lives)


def test_an_empty_file_does_not_hide_the_previous_content_of_its_name(node: Node) -> None:
    node.write("a.log", b"content\n")
    node.interval()
    os.truncate(node.logs / "a.log", 0)
    node.finish()
    assert node.objects()["a.log"] == b""
    assert preserved(node, "a.log") == [b"content\n"]
