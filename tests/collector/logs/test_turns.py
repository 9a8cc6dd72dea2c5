"""No file keeps another one's lines from the archive, however large it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.collector.logs import full_uploads
from ray_history.collector.logs.turns import LEAST_SHARE

from .log_archive import MIB, Node, log_lines

HUGE = 100 << 30
"""Bytes of a sparse file: no test is long enough to upload it."""


def sparse(node: Node, name: str) -> None:
    node.write(name, b"the first line\n")
    with (node.logs / name).open("r+b") as file:
        file.truncate(HUGE)


def tail_bytes(node: Node, name: str) -> bytes:
    return node.archived()[name]


def turn(node: Node) -> bool:
    node.shipper.scan()
    return node.shipper.ship_round()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, bundle_bytes=MIB)


def test_a_huge_file_does_not_keep_new_lines_of_others(node: Node) -> None:
    sparse(node, "huge.log")
    for number in range(3):
        node.write("worker.out", f"line {number}\n".encode())
        assert turn(node), "the huge file has more"
        assert tail_bytes(node, "worker.out").endswith(f"line {number}\n".encode())
    assert 0 < node.shipper.counters.bytes_stored < 4 * MIB, "at most a bundle of it in each round"


def test_a_huge_file_does_not_keep_new_lines_of_its_successor(node: Node) -> None:
    sparse(node, "worker.out")
    turn(node)
    node.rename("worker.out", "worker.out.1")
    for number in range(2):
        node.write("worker.out", f"after the rotation {number}\n".encode())
        turn(node)
        assert tail_bytes(node, "worker.out").endswith(f"after the rotation {number}\n".encode())


def test_large_files_take_turns(node: Node) -> None:
    for name in "abc":
        node.write(f"{name}.log", log_lines(ord(name), 4 * MIB))
    for number in range(1, 3):
        assert turn(node)
        sizes = [len(tail_bytes(node, f"{name}.log")) for name in "abc"]
        assert min(sizes) > 0
        assert max(sizes) <= number * MIB
    node.interval()
    assert node.archived() == node.on_disk()


def test_a_round_that_ends_early_continues_with_the_files_that_had_no_turn(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_history.collector.logs.turns.ROUND_SECONDS", 0.0)
    for name in "abc":
        node.write(f"{name}.log", log_lines(ord(name), 4 * LEAST_SHARE * 5))
    for number in range(3):
        assert turn(node)
        assert len(node.archived()) == number + 1


@pytest.mark.parametrize("size", [3 * MIB, 40 * MIB])
def test_new_lines_do_not_wait_for_whole_files(node: Node, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(full_uploads, "_MEANWHILE", 0.01)
    node.write("worker.out", log_lines(1, size))
    node.interval()
    node.rename("worker.out", "worker.out.1")
    node.write("other.out", b"before\n")
    shown: list[bytes] = []
    released = threading.Event()

    def held(source: Any) -> Iterator[bytes]:
        for number, chunk in enumerate(source):
            yield chunk
            if not number:
                assert released.wait(60)

    real = node.real_store.put_stream
    monkeypatch.setattr(node.real_store, "put_stream", lambda key, source: real(key, held(source)))

    def observe() -> None:
        node.write("other.out", b"during the upload\n")
        node.write("worker.out", b"a new file of that name\n")
        for _ in range(6000):
            found = node.archived()
            if b"during" in found.get("other.out", b"") and b"new file" in found.get("worker.out", b""):
                shown.append(found["other.out"])
                break
            time.sleep(0.01)
        released.set()

    thread = threading.Thread(target=observe)
    thread.start()
    node.shipper.scan()
    node.shipper.ship_renamed()
    thread.join()
    assert shown
    node.interval()
    assert node.archived() == node.on_disk()
    node.finish()
    assert node.objects() == node.on_disk()


def test_slow_stores_get_smaller_bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, bundle_bytes=MIB)
    monkeypatch.setattr("ray_history.collector.logs.bundles.PUT_SECONDS", 0.0)
    node.write("a.log", log_lines(1, 2 * MIB))
    node.interval()
    assert len(node.bundles()) == 1 + 4, "the first has 1 MiB, the others a quarter of it"
    assert node.archived() == node.on_disk()


def test_a_stop_is_noticed_between_bundles_and_within_whole_files(tmp_path: Path) -> None:
    stop = threading.Event()
    node = Node(tmp_path, bundle_bytes=MIB, is_stopping=stop.is_set)
    sparse(node, "huge.log")
    node.write("rotated.log", b"rotated\n")
    turn(node)
    node.rename("huge.log", "huge.log.1")
    threading.Timer(0.3, stop.set).start()
    node.shipper.scan()
    node.shipper.ship_tails()
    node.shipper.ship_renamed()
    stop.clear()
    assert node.shipper.unsent_bytes()["huge.log.1"] > HUGE // 2
    assert tail_bytes(node, "rotated.log") == b"rotated\n"
