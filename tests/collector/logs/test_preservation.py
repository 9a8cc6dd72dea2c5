"""The content of deleted and truncated files is preserved."""

from __future__ import annotations

import itertools
import os

import pytest

from ray_history.collector.logs import preservation
from ray_history.collector.logs.preservation import KEPT_REWRITES

from .log_archive import Node, log_lines, preserved

START = 1_700_000_000


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


def rewrite(node: Node, minute: int) -> bytes:
    """Replace the content of a file in place, as a raylet does with its debug_state.txt."""
    content = f"{minute:06} tasks\n".encode() * (100 + minute % 7)
    path = node.logs / "debug_state.txt"
    path.write_bytes(content)
    os.utime(path, (START + 60 * minute, START + 60 * minute))
    return content


@pytest.mark.parametrize(("most", "bound"), [(10**9, 199), (KEPT_REWRITES, KEPT_REWRITES)])
def test_of_a_file_rewritten_in_place_a_few_contents_far_apart_are_kept(
    node: Node, monkeypatch: pytest.MonkeyPatch, most: int, bound: int
) -> None:
    monkeypatch.setattr(preservation, "KEPT_REWRITES", most)
    written = []
    for minute in range(200):
        written.append(rewrite(node, minute))
        node.interval()
        if minute % 70 == 69:
            node.crash()  # what is kept is known across restarts
    node.finish()
    former = {name: body for name, body in node.objects().items() if ".until-" in name}
    assert bound / 2 < len(former) <= bound
    assert node.objects()["debug_state.txt"] == written[-1]
    minutes = [written.index(former[name]) for name in sorted(former)]
    if most == KEPT_REWRITES:
        gaps = [after - before for before, after in itertools.pairwise(minutes)]
        assert minutes[0] == 0
        assert min(gaps) > 10, "far apart, in steps that doubled"
        assert node.store.requests["put_stream"] < 40, "most contents are never uploaded as objects"
        assert set(former) == {name for name, info in node.listed().items() if ".until-" in name}


def test_a_rotated_file_is_not_thinned_out(node: Node) -> None:
    for number in range(20):
        node.write("a.log", f"{number} ".encode() * 50)
        node.interval()
        node.rotate("a.log", backups=2)
        node.interval()
    node.finish()
    kept = {body for name, body in node.archived().items() if name.startswith("a.log")}
    assert kept == {f"{number} ".encode() * 50 for number in range(20)}
