"""When the ledgers are uploaded, and with which counts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.ledger import Ledger, decode
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.memory import MemorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.ingest.spool import Segment
from ray_history.collector.ledger import UNKNOWN_SESSION, LedgerBook
from ray_history.collector.ledger_publisher import HEARTBEAT, LEDGER_INTERVAL, LedgerPublisher
from ray_history.collector.node.identity import RayNode
from tests.collector.logs.log_archive import CLUSTER

SESSION = "session_2026-01-11_19-38-40_146706_1"
ENDED = "session_2026-01-10_19-38-40_146706_1"


@dataclass
class Counters:
    """Stands in for the HTTP side, of which only the counters matter here."""

    duplicated: int = 0
    refused: dict[str, int] = field(default_factory=lambda: {"full": 0})


class Publishing:
    """A publisher whose clock the test moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / SESSION / "logs").mkdir(parents=True)
        (folder / "session_latest").symlink_to(SESSION)
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: 1e9 + self.now)
        self.store: Store = open_store(MemorySettings(str(folder)))
        self.book = LedgerBook(folder / "ledger.json")
        self.ingest: Any = Counters()
        node = RayNode(folder, head=True, node_id="ab" * 28)
        self.publisher = LedgerPublisher(Destination(self.store, CLUSTER), node, self.book, self.ingest, role="head")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.publisher.publish()

    def uploaded(self, session: str = SESSION, node: str = "a") -> Ledger:
        found = decode(self.store.get(layout.ledger_key("", CLUSTER, session, node)))
        assert found is not None
        return found


@pytest.fixture
def publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publishing:
    return Publishing(tmp_path, monkeypatch)


def test_the_current_session_has_a_heartbeat_and_an_ended_one_has_none(publishing: Publishing) -> None:
    publishing.book.node(SESSION, "a")
    publishing.book.node(ENDED, "a").ended = "graceful"
    publishing.publisher.publish()
    live = publishing.uploaded()
    assert (live.role, live.ended) == ("head", None)
    assert live.alive_until - live.written == HEARTBEAT + 2 * LEDGER_INTERVAL
    ended = publishing.uploaded(ENDED)
    assert (ended.ended, ended.alive_until) == ("graceful", ended.written)


def test_changes_are_uploaded_every_interval_and_heartbeats_less_often(publishing: Publishing) -> None:
    ledger = publishing.book.node(SESSION, "a")
    publishing.publisher.publish()
    first = publishing.uploaded().written
    ledger.events.received = 5
    publishing.pass_time(LEDGER_INTERVAL / 2)
    assert publishing.uploaded().written == first
    publishing.pass_time(LEDGER_INTERVAL / 2)
    assert publishing.uploaded().events.received == 5
    changed = publishing.uploaded().written
    publishing.pass_time(LEDGER_INTERVAL)
    assert publishing.uploaded().written == changed
    publishing.pass_time(HEARTBEAT)
    assert publishing.uploaded().written == changed + LEDGER_INTERVAL + HEARTBEAT


@pytest.mark.parametrize(("all_stored", "ended"), [(True, "graceful"), (False, None)])
def test_the_last_ledger_is_graceful_only_if_everything_is_stored(
    publishing: Publishing, all_stored: bool, ended: str | None
) -> None:
    publishing.book.node(SESSION, "a")
    publishing.publisher.publish_last(all_stored=all_stored, unsent=())
    assert publishing.uploaded().ended == ended
    assert publishing.uploaded().alive_until == publishing.uploaded().written


def test_spool_segments_that_are_left_are_named_until_the_next_start(publishing: Publishing, tmp_path: Path) -> None:
    publishing.book.node(SESSION, "a")
    segment = Segment(7, 1, tmp_path / "00000000000000000007.spool", 1000, 1000, records=3)
    publishing.publisher.publish_last(all_stored=False, unsent=[segment])
    events = publishing.uploaded().events
    assert (events.unsent_batches, events.unsent_segments) == (3, ["00000000000000000007.spool"])
    assert events.unsent_bytes == segment.body_bytes > 0
    publishing.pass_time(LEDGER_INTERVAL)
    events = publishing.uploaded().events
    assert (events.unsent_batches, events.unsent_bytes, events.unsent_segments) == (0, 0, [])


def test_duplicates_and_refusals_count_for_the_current_session(publishing: Publishing) -> None:
    publishing.book.node(SESSION, "a")
    publishing.ingest.duplicated, publishing.ingest.refused = 3, {"full": 1, "busy": 1}
    publishing.publisher.publish()
    publishing.ingest.duplicated = 4
    publishing.pass_time(LEDGER_INTERVAL)
    events = publishing.uploaded().events
    assert (events.received, events.duplicated, events.refused_batches) == (4, 4, 2)


def test_ledgers_without_session_or_node_are_not_uploaded(publishing: Publishing) -> None:
    publishing.book.node(UNKNOWN_SESSION, "a")
    publishing.book.session(SESSION)
    publishing.publisher.publish()
    assert list(publishing.store.list()) == []
