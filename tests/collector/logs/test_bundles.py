"""The bundles of one node: their size, merging and deletion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ray_history.collector.logs import bundles

from .log_archive import MIB, Node, log_lines


def test_many_bytes_are_uploaded_in_bundles_of_bounded_size(tmp_path: Path) -> None:
    node = Node(tmp_path, bundle_bytes=MIB)
    node.write("small.log", b"small\n")
    node.write("flood.log", log_lines(1, 5 * MIB + 17))
    node.shipper.scan()
    node.shipper.ship_tails()
    assert len(node.bundles()) == 6
    assert node.archived() == node.on_disk()


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


def test_a_session_of_weeks_has_few_bundles_and_every_byte(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles.Bundles, "max_run", 8)
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
        node.shipper.ship_renamed()
        most = max(most, len(node.bundles()))
    assert most <= 24
    assert {name: node.read(name) for name in written} == written
    node.crash()
    node.shipper.scan()
    node.shipper.ship_renamed()
    assert {name: node.read(name) for name in written} == written


def test_merged_bundles_can_still_be_read_for_a_while(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles.Bundles, "max_run", 4)
    for number in range(4):
        node.write("raylet.out", b"line %d\n" % number)
        node.shipper.scan()
        node.shipper.ship_tails()
    before = node.bundles()
    node.shipper.ship_renamed()
    assert node.bundles()[:4] == before
    assert len(node.bundles()) == 5
    monkeypatch.setattr(bundles.Bundles, "grace", 0.0)
    node.shipper.ship_renamed()
    assert len(node.bundles()) == 1
    assert node.read("raylet.out") == b"line 0\nline 1\nline 2\nline 3\n"
