"""The ledgers on the collector's volume."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from ray_history.collector.ledger import LedgerBook
from ray_history.collector.saved_file import load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"


def test_counts_survive_a_restart(file: Path) -> None:
    book = LedgerBook(file)
    book.node("s1", "a").events.received = 7
    book.saved.shipped_sequence, book.saved.shipped_created_ns = 3, 4
    book.save()
    again = LedgerBook(file)
    assert again.saved == book.saved
    assert again.session("s1").events.received == 7


def test_the_file_keeps_the_field_names_of_released_collectors(file: Path) -> None:
    book = LedgerBook(file)
    book.node("s1", "a")
    book.node("s1", "b")
    book.save()
    content = json.loads(load(file))
    assert set(content) == {"shipped_sequence", "shipped_created_ns", "sessions", "former"}
    assert content["sessions"]["s1"]["node"] == "b"
    assert list(content["former"]["s1"]) == ["a"]


def test_a_restarted_raylet_gets_a_ledger_of_its_own_and_late_counts_go_to_the_former_one(file: Path) -> None:
    book = LedgerBook(file)
    first = book.node("s1", "a")
    second = book.node("s1", "b")
    assert book.session("s1") is second is not first
    assert book.node("s1", "a") is first
    assert book.node("s1", "b") is second
    assert [(name, ledger.node) for name, ledger in book.saved.all()] == [("s1", "a"), ("s1", "b")]


def test_a_ledger_without_node_takes_the_first_one(file: Path) -> None:
    book = LedgerBook(file)
    ledger = book.session("s1")
    assert book.node("s1", "a") is ledger


def test_only_the_oldest_ended_sessions_are_forgotten(file: Path) -> None:
    book = LedgerBook(file)
    for number in range(6):
        book.node(f"s{number}", "a")
    book.node("s0", "b")
    book.forget({"s1"}, most=3)
    assert set(book.saved.sessions) == {"s1", "s3", "s4", "s5"}
    assert book.saved.former == {}


def test_a_damaged_file_is_set_aside(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text("{damaged")
    with caplog.at_level(logging.ERROR):
        assert LedgerBook(file).saved.sessions == {}
    (aside,) = file.parent.glob("ledger.damaged-*")
    assert aside.read_text() == "{damaged"
    assert "counting starts anew" in caplog.text


def test_a_file_that_is_still_json_but_has_another_bit_is_set_aside(file: Path) -> None:
    book = LedgerBook(file)
    book.node("s1", "b")
    book.save()
    file.write_bytes(file.read_bytes().replace(b'"b"', b'"c"'))
    assert LedgerBook(file).saved.sessions == {}
