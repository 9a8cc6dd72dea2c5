"""What is in the bucket of events that are still in the spool."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.errors import Unreachable
from ray_history.archive.session_files import SessionFiles, events_of, list_session
from ray_history.collector.ingest.journal import Journal
from tests.collector.collector_process import SESSION, event
from tests.collector.ingest.test_shipper import Desk, FailingStore
from tests.support.waiting import until

LATER = SESSION.replace("20-00-55", "21-00-55")


def batch(*names: str, session: str = SESSION) -> bytes:
    return json.dumps([event(name, session) for name in names]).encode()


class RecordedDesk(Desk):
    """A desk whose sessions have markers, as a collector writes them."""

    def files(self, session: str = SESSION) -> SessionFiles:
        self.store.put(f"cluster-metadata/raycluster/n_c/{session}", b"")
        found: tuple[Session, ...] = read_catalog(self.store).find(session=session).sessions
        return list_session(self.store, found[0])

    def names(self, session: str = SESSION) -> list[str]:
        """The events of the session, sorted; those that are in two places twice."""
        return sorted(json.loads(raw)["eventId"] for raw in events_of(self.store, self.files(session), []))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[RecordedDesk]:
    desk = RecordedDesk(tmp_path, FailingStore())
    yield desk
    desk.spool.close()


def test_waiting_events_are_in_the_history_until_event_files_have_them(desk: RecordedDesk) -> None:
    desk.spool.append([batch("a", "b")])
    desk.journal.write()
    desk.spool.append([batch("c")])
    desk.journal.write()
    assert desk.names() == ["a", "b", "c"]
    (journal,) = desk.files().journals
    assert desk.files().event_files == ()
    assert desk.files().nodes == {journal.key.node}
    desk.spool.seal()
    desk.shipper.ship_all()
    assert desk.names() == ["a", "b", "c"]
    assert desk.files().journals == ()


def test_without_new_events_nothing_is_put(desk: RecordedDesk) -> None:
    desk.spool.append([batch("a")])
    desk.journal.write()
    desk.store.puts_left = 0  # every put fails from now on
    desk.journal.write()


def test_a_failed_put_is_made_up_for(desk: RecordedDesk) -> None:
    desk.spool.append([batch("a")])
    desk.store.puts_left = 0
    with pytest.raises(Unreachable):
        desk.journal.write()
    desk.store.puts_left = None
    desk.journal.write()
    assert desk.names() == ["a"]


def test_each_session_has_its_own_journal(desk: RecordedDesk) -> None:
    desk.spool.append([batch("a"), batch("b", session=LATER)])
    desk.journal.write()
    assert desk.names(SESSION) == ["a"]
    assert desk.names(LATER) == ["b"]
    desk.spool.seal()
    desk.shipper.ship_all()
    assert desk.files(SESSION).journals == desk.files(LATER).journals == ()


def test_the_next_process_deletes_the_journals_of_the_segments_that_it_stores(
    desk: RecordedDesk, tmp_path: Path
) -> None:
    desk.spool.append([batch("a")])
    desk.journal.write()
    desk.spool.close()
    again = RecordedDesk(tmp_path, desk.store)
    again.shipper.ship_all()
    assert again.names() == ["a"]
    assert again.files().journals == ()
    again.spool.close()


def test_a_kill_before_the_deletion_leaves_duplicates_only(desk: RecordedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.spool.append([batch("a", "b")])
    desk.journal.write()
    with monkeypatch.context() as killed:
        killed.setattr(desk.store, "delete", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            desk.ship()
    assert desk.names() == ["a", "a", "b", "b"]
    assert desk.ledgers.session(SESSION).events.stored == 0, (
        "counted after the deletion, so that the next process ships"
    )


def test_a_collector_deletes_no_journal_of_a_lost_spool(desk: RecordedDesk, tmp_path: Path) -> None:
    desk.spool.append([batch("a")])
    desk.journal.write()
    successor = RecordedDesk(tmp_path / "new volume", desk.store)
    successor.spool.append([batch("b")])
    successor.journal.write()
    successor.spool.seal()
    successor.shipper.ship_all()
    assert successor.names() == ["a", "b"]
    successor.spool.close()


def test_a_put_that_ends_after_the_upload_leaves_no_journal(desk: RecordedDesk) -> None:
    put, entered, released = desk.store.put, threading.Event(), threading.Event()

    def slow_put(key: str, data: bytes) -> None:
        if "journal" in key:
            entered.set()
            released.wait(60)
        put(key, data)

    desk.store.put = slow_put  # type: ignore[method-assign]
    desk.spool.append([batch("a")])
    writer = threading.Thread(target=desk.journal.write)
    writer.start()
    assert entered.wait(60)
    desk.spool.seal()
    assert desk.shipper.ship_all() == 1, "the upload does not wait for the journal"
    released.set()
    writer.join(60)
    assert desk.names() == ["a"]
    assert desk.files().journals == ()


def test_a_backlog_is_not_written_ahead(desk: RecordedDesk) -> None:
    for number in range(10):
        desk.spool.append([batch(f"event {number}")])
        desk.spool.seal()
    desk.journal.write()
    assert desk.files().journals == ()


def test_damage_is_left_to_the_upload(desk: RecordedDesk) -> None:
    desk.spool.append([b"no JSON", batch("a")])
    desk.journal.write()
    assert desk.names() == ["a"]


def test_a_journal_keeps_events_that_were_damaged_on_disk(desk: RecordedDesk, tmp_path: Path) -> None:
    desk.spool.append([batch("a"), batch("b"), batch("c")])
    desk.journal.write()
    (segment,) = desk.spool.waiting()
    desk.spool.close()
    data = segment.path.read_bytes()
    segment.path.write_bytes(data.replace(b'"b"', b'"x"'))
    successor = RecordedDesk(tmp_path, desk.store)
    successor.journal.write()
    successor.spool.seal()
    successor.shipper.ship_all()
    assert set(successor.names()) == {"a", "b", "c"}
    assert successor.files().event_files
    successor.spool.close()


def test_it_is_due_an_interval_after_the_first_event(desk: RecordedDesk) -> None:
    journal = Journal(desk.spool, desk.shipper._destination, desk.sessions, 0.05)
    due = threading.Event()
    waiting = threading.Thread(target=lambda: journal.wait_until_due() and due.set())
    waiting.start()
    assert not due.wait(0.2), "nothing was acknowledged"
    journal.event_acknowledged()
    assert due.wait(60)
    waiting.join(60)
    journal.stop()
    until(lambda: not journal.wait_until_due())
