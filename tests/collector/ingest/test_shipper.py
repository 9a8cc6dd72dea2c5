"""From the spool to event files."""

from __future__ import annotations

import gzip
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive import ledger
from ray_history.archive.catalog import read_catalog
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster
from ray_history.archive.session_files import events_of, list_session
from ray_history.archive.stores.cloud import CloudStore
from ray_history.archive.stores.memory import MemorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.ingest.foreign_sessions import ForeignSessions
from ray_history.collector.ingest.journal import Journal
from ray_history.collector.ingest.shipper import EventShipper
from ray_history.collector.ingest.spool import Segment, Spool
from ray_history.collector.ledger import LedgerBook
from tests.collector.collector_process import SESSION, event
from tests.support.captured import captured

OWN = "f" * 56


class FailingStore(CloudStore):
    """A memory store whose puts fail on demand."""

    def __init__(self) -> None:
        super().__init__(MemorySettings(secrets.token_hex(8)))
        self.puts_left: int | None = None

    def put(self, key: str, data: bytes) -> None:
        if self.puts_left is not None:
            if self.puts_left == 0:
                raise Unreachable("the store is away")
            self.puts_left -= 1
        super().put(key, data)


class SessionObserver:
    """A collector that knows one session."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.local = {SESSION}
        self._foreign = ForeignSessions(self.local.__contains__, Path("/tmp/ray"), most=3)

    def own_node(self, session: str) -> str | None:
        return OWN

    def session_seen(self, session: str, node: str) -> None:
        self.seen.append((session, node))

    def current_session(self) -> str | None:
        return SESSION

    def is_local(self, session: str) -> bool:
        return self._foreign.is_local(session)

    def admits(self, session: str) -> bool:
        return self._foreign.admits(session)


class Desk:
    """A shipper with everything around it, on a volume that outlives it."""

    def __init__(self, folder: Path, store: FailingStore) -> None:
        self.store = store
        self.sessions = SessionObserver()
        self.spool = Spool(folder / "spool")
        self.ledgers = LedgerBook(folder / "ledger.json")
        destination = Destination(store, Cluster("n", "c"))
        self.journal = Journal(self.spool, destination, self.sessions, 2.0)
        self.shipper = EventShipper(self.spool, destination, self.ledgers, self.sessions, self.journal)

    def ship(self, *bodies: bytes) -> int:
        self.spool.append(bodies)
        self.spool.seal()
        return self.shipper.ship_all()

    def stored_by(self, session: str) -> list[str]:
        """The ids of the stored events of one session, sorted."""
        found = [each.key for each in self.store.list("cluster-history") if f"/{session}/" in each.key]
        events = [json.loads(line) for key in found for line in gzip.decompress(self.store.get(key)).splitlines()]
        return sorted(each["eventId"] for each in events)

    def stored(self) -> Counter[bytes]:
        for session, _ in self.sessions.seen:
            self.store.put(f"cluster-metadata/raycluster/n_c/{session}", b"")
        found: Counter[bytes] = Counter()
        for entry in read_catalog(self.store).sessions:
            found.update(events_of(self.store, list_session(self.store, entry), []))
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, FailingStore())
    yield desk
    desk.spool.close()


def test_a_real_session_is_filed_by_node_and_job_without_changing_a_byte(desk: Desk) -> None:
    capture = captured()
    for events in capture.events.values():
        for start in range(0, len(events), 700):
            desk.spool.append([b"[" + b",".join(events[start : start + 700]) + b"]"])
    desk.spool.seal()
    desk.shipper.ship_all()
    assert desk.stored() == Counter(raw for events in capture.events.values() for raw in events)
    (entry,) = read_catalog(desk.store).sessions
    files = list_session(desk.store, entry)
    for file in files.event_files:
        jobs = {json.loads(raw).get("taskLifecycleEvent", {}).get("jobId") for raw in read(desk, file.stored.key)}
        assert len(jobs - {None}) <= 1
        assert file.stored.key.endswith(".jsonl.gz")
    assert desk.ledgers.session(capture.session).events.stored == capture.event_count
    assert desk.spool.pending.bodies == 0


def read(desk: Desk, key: str) -> list[bytes]:
    return gzip.decompress(desk.store.get(key)).splitlines()


def test_shipping_again_after_a_crash_writes_the_same_objects_and_counts_once(tmp_path: Path) -> None:
    store = FailingStore()
    desk = Desk(tmp_path, store)
    store.puts_left = 1
    bodies = [json.dumps([event(f"{n}", job=job) for n in range(5)]).encode() for job in ("AQAAAA==", "AgAAAA==")]
    with pytest.raises(Unreachable):
        desk.ship(*bodies)
    before = {found.key: store.get(found.key) for found in store.list()}
    assert len(before) == 1
    desk.spool.close()

    store.puts_left = None
    desk = Desk(tmp_path, store)
    assert desk.shipper.ship_all() == 1
    after = {found.key: store.get(found.key) for found in store.list()}
    assert before.items() <= after.items()
    assert len(after) == 2
    assert desk.ledgers.session(SESSION).events.stored == 10
    desk.spool.close()


def killed(_: Segment) -> None:
    raise InterruptedError("the process dies here")


def test_a_segment_that_was_counted_but_not_removed_is_not_counted_again(tmp_path: Path) -> None:
    store = FailingStore()
    desk = Desk(tmp_path, store)
    desk.spool.remove = killed  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        desk.ship(json.dumps([event("1")]).encode())
    desk.spool.close()
    desk = Desk(tmp_path, store)
    assert desk.shipper.ship_all() == 1
    assert desk.ledgers.session(SESSION).events.stored == 1
    desk.spool.close()


def test_a_spool_that_somebody_deleted_does_not_make_new_events_look_counted(tmp_path: Path) -> None:
    store = FailingStore()
    desk = Desk(tmp_path, store)
    for number in range(3):
        desk.ship(json.dumps([event(str(number))]).encode())
    desk.spool.close()
    for path in (tmp_path / "spool").iterdir():
        path.unlink()
    desk = Desk(tmp_path, store)
    desk.ship(json.dumps([event("new")]).encode())
    assert any(b'"new"' in raw for raw in desk.stored())
    desk.spool.close()


def test_events_without_session_are_quarantined_and_counted(desk: Desk) -> None:
    nameless = json.dumps({"eventId": "x"}).encode()
    desk.ship(b"no json", b"[" + nameless + b"," + json.dumps(event("1")).encode() + b"]")
    (key,) = [found.key for found in desk.store.list("history-quarantine")]
    assert read(desk, key) == [b"no json", nameless]
    account = desk.ledgers.session(SESSION).events
    assert (account.received, account.stored, account.quarantined) == (3, 1, 2)


def test_an_event_whose_names_are_not_utf_8_does_not_hold_up_others(desk: Desk) -> None:
    foreign, good = json.dumps(event("1")).encode().replace(b"TASK", b"TA\xffK"), json.dumps(event("2")).encode()
    assert b"\xff" in foreign
    desk.ship(b"[" + foreign + b"," + good + b"]")
    assert list(desk.stored()) == [good]
    (key,) = [found.key for found in desk.store.list("history-quarantine")]
    assert gzip.decompress(desk.store.get(key)) == foreign + b"\n"


def test_an_event_that_does_not_name_its_node_is_filed_under_this_one(desk: Desk) -> None:
    desk.ship(json.dumps([{**event("1"), "nodeId": ""}]).encode())
    assert any(f"/{OWN}/" in found.key for found in desk.store.list("cluster-history"))


def test_sessions_in_one_batch_are_separated(desk: Desk) -> None:
    other = "session_2026-11-16_20-00-55_739110_9771"
    desk.ship(json.dumps([event("1"), event("2", session=other)]).encode())
    assert desk.ledgers.session(SESSION).events.stored == 1
    assert desk.ledgers.session(other).events.stored == 1
    assert {session for session, _ in desk.sessions.seen} == {SESSION, other}


def test_events_are_counted_by_type_within_bounds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_TYPES", 2)

    def body(*types: str) -> bytes:
        return json.dumps([{**event(f"e{n}"), "eventType": each} for n, each in enumerate(types)]).encode()

    desk.ship(body("A", "B", "A", "C"), body("A"))
    desk.ship(body("B", "D" * 1000))
    assert desk.ledgers.session(SESSION).events.types == {"A": 3, "B": 2}
    assert desk.ledgers.session(SESSION).events.received == 7


def forged(number: int) -> bytes:
    """A batch in which each event names another session."""
    return json.dumps([event(f"forged{n}", session=f"{SESSION}{n}") for n in range(number)]).encode()


def real(name: str) -> bytes:
    return json.dumps([event(name)]).encode()


def test_few_sessions_that_this_machine_does_not_have_are_stored(desk: Desk) -> None:
    desk.ship(forged(5000))
    assert {session for session, _ in desk.sessions.seen} == {f"{SESSION}{n}" for n in range(3)}
    assert len(list(desk.store.list("cluster-history"))) == 3
    (key,) = [found.key for found in desk.store.list("history-quarantine")]
    assert len(read(desk, key)) == 4997, "nothing is lost"
    assert len(desk.ledgers.saved.sessions) == 4
    assert desk.ledgers.session(SESSION).events.quarantined == 4997


def test_real_events_do_not_wait_behind_forged_sessions(desk: Desk) -> None:
    for number in range(3):
        desk.spool.append([forged(10), real(f"real{number}")])
        desk.spool.seal()
    desk.store.puts_left = 3
    with pytest.raises(Unreachable):
        desk.shipper.ship_all()
    stored = desk.stored_by(SESSION)
    assert stored == ["real0", "real1", "real2"], "the first three puts"
    assert desk.spool.pending.bodies == 6, "a segment stays until all of it is stored"
    desk.store.puts_left = None
    assert desk.shipper.ship_all() == 3
    assert desk.ledgers.session(SESSION).events.stored == 3
    assert desk.ledgers.session(f"{SESSION}0").events.stored == 3


def test_segments_that_were_stored_ahead_are_stored_again_after_a_crash(tmp_path: Path) -> None:
    store = FailingStore()
    desk = Desk(tmp_path, store)
    for number in range(2):
        desk.spool.append([forged(2), real(f"real{number}")])
        desk.spool.seal()
    store.puts_left = 3
    with pytest.raises(Unreachable):
        desk.shipper.ship_all()
    desk.spool.close()
    store.puts_left = None
    desk = Desk(tmp_path, store)
    assert desk.shipper.ship_all() == 2
    assert desk.ledgers.session(SESSION).events.stored == 2
    assert desk.stored_by(SESSION) == ["real0", "real1"]
    assert desk.stored_by(f"{SESSION}1") == ["forged1", "forged1"]
    desk.spool.close()


def test_a_session_that_gets_its_directory_meanwhile_is_stored(desk: Desk) -> None:
    desk.spool.append([forged(2)])
    desk.spool.seal()
    desk.store.puts_left = 0
    with pytest.raises(Unreachable):
        desk.shipper.ship_all()
    desk.sessions.local.add(f"{SESSION}0")
    desk.store.puts_left = None
    assert desk.shipper.ship_all() == 1
    assert desk.stored_by(f"{SESSION}0") == ["forged0"]
    assert desk.stored_by(f"{SESSION}1") == ["forged1"]


def test_a_segment_becomes_a_bounded_number_of_files(desk: Desk) -> None:
    nodes = [f"{n:056x}" for n in range(1000)]
    desk.ship(json.dumps([{**event(f"{n:04}"), "nodeId": node} for n, node in enumerate(nodes)]).encode())
    assert len(list(desk.store.list("cluster-history"))) == 101
    assert desk.stored_by(SESSION) == [f"{n:04}" for n in range(1000)]


def test_events_with_and_without_this_nodes_id_share_a_file(desk: Desk) -> None:
    desk.ship(json.dumps([event("1") | {"nodeId": ""}, event("2") | {"nodeId": OWN}]).encode())
    assert desk.stored_by(SESSION) == ["1", "2"]


def test_an_event_without_time_does_not_stop_the_others(desk: Desk) -> None:
    desk.ship(json.dumps([event("1") | {"timestamp": ""}]).encode())
    assert desk.ship(real("2")) == 1
    assert desk.stored_by(SESSION) == ["1", "2"]
