"""Overviews of sessions without opening them, and the caching of lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster
from ray_history.archive.ledger import EventCounts, Ledger
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.cache import Cache
from ray_history.index.summary import Summaries, Summary
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.sessions.overview import OverviewCache, SessionOverview
from ray_history.server.ui.home.rows import Row, make_row
from ray_history.server.ui.home.session_list import ArchiveSource, SessionList
from tests.server.ui.fleets import Made, session_name, summary_of, write_fleet
from tests.support.waiting import until

NOW = 1_794_800_000.0


def made(state: str = "ended", failed: int = 0) -> Made:
    return Made(
        Cluster("ns", "c", "rayjob", "owner"),
        session_name(NOW - 9000, 1),
        NOW - 9000,
        state,
        "python x.py",
        "submit-00001",
        failed,
        "KeyError: 'x'" if failed else "",
        "2.60.0",
    )


def summary(state: str = "ended", failed: int = 0, **changes: object) -> Summary:
    return msgspec.structs.replace(summary_of(made(state, failed), NOW), **changes)  # type: ignore[arg-type]


def session() -> Session:
    return Session(made().cluster, made().session, int(made().started))


def account(role: str = "head", ended: str | None = None, alive_until: float = 0.0, **events: int) -> Ledger:
    counts = EventCounts(**events)  # type: ignore[arg-type]
    return Ledger(role=role, ended=ended, alive_until=alive_until, written=alive_until - 30, events=counts)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        (SessionOverview(), "unknown"),
        (SessionOverview(None, (account(alive_until=NOW + 10),)), "live"),
        (SessionOverview(None, (account(alive_until=NOW - 100),)), "live"),
        (SessionOverview(None, (account(alive_until=NOW - 1000),)), "lost"),
        (SessionOverview(None, (account(ended="graceful"), account("worker", alive_until=NOW - 5000))), "ended"),
        (SessionOverview(None, (account("worker", "graceful"), account(alive_until=NOW - 5000))), "lost"),
        (SessionOverview(summary("live"), (account(ended="graceful"),)), "ended"),
        (SessionOverview(summary("live")), "live"),
        (SessionOverview(summary("lost")), "lost"),
        (SessionOverview(summary("ended")), "ended"),
    ],
)
def test_the_state_follows_from_the_heads_last_sign_of_life(known: SessionOverview, state: str) -> None:
    assert known.state(NOW) == state


def test_a_session_without_ledgers_is_live_while_files_are_stored() -> None:
    silent = msgspec.structs.replace(summary().facts, ended=None, alive_until=None)
    accounts = msgspec.structs.replace(summary().accounts, collectors=0, head_ended=False)
    for newest, state in ((NOW - 60, "live"), (NOW - 3600, "ended")):
        known = SessionOverview(summary(facts=silent, accounts=accounts, newest_file=newest))
        assert known.state(NOW) == state
        assert make_row(session(), known, state, redact=True).completeness.short == "not counted"
    hourly = SessionOverview(summary(facts=silent, accounts=accounts, newest_file=NOW - 3900, longest_silence=5400.0))
    assert hourly.state(NOW) == "live"


@pytest.mark.parametrize(
    ("known", "share", "short"),
    [
        (SessionOverview(), None, "not indexed yet"),
        (SessionOverview(summary()), 1.0, ""),
        (SessionOverview(None, (account(ended="graceful", received=90, stored=80, duplicated=10),)), 1.0, ""),
        (
            SessionOverview(None, (account(ended="graceful", received=90, stored=90, dropped_by_ray=10),)),
            0.9,
            "Ray dropped 10",
        ),
        (SessionOverview(None, (account(ended="graceful", received=100, stored=75),)), 0.75, "25 not stored"),
        (
            SessionOverview(None, (account(ended="graceful", received=90, stored=80, quarantined=10),)),
            1.0,
            "10 not understood",
        ),
        (
            SessionOverview(None, (account(alive_until=NOW, received=90, stored=40, dropped_by_ray=10),)),
            0.9,
            "Ray dropped 10",
        ),
        (
            SessionOverview(None, (account(ended="graceful", received=5, stored=5), account("worker"))),
            1.0,
            "1 node cut off",
        ),
        (
            SessionOverview(
                None, (account(ended="graceful", received=5, stored=5), account("worker", unsent_bytes=90_000))
            ),
            1.0,
            "90.0 KB of events left",
        ),
        (SessionOverview(summary("lost")), 1.0, "lost contact"),
        (SessionOverview(summary(problem_count=3, problem="x: torn")), 1.0, "3 problems"),
        (
            SessionOverview(summary(facts=msgspec.structs.replace(summary().facts, nodes_without_files=2))),
            1.0,
            "2 nodes missing",
        ),
    ],
)
def test_missing_events_are_reported_with_a_reason(known: SessionOverview, share: float | None, short: str) -> None:
    row = make_row(session(), known, known.state(NOW), redact=True)
    assert (row.completeness.share, row.completeness.short) == (share, short)
    assert bool(row.completeness.why) == bool(short)
    assert row.is_incomplete == (share is not None and bool(short))


def test_a_row_shows_a_running_job_first_and_counts_the_others() -> None:
    base = summary("live").jobs[0]
    jobs = [
        msgspec.structs.replace(base, job_id=f"0{number}000000", status=status, start_ms=number)
        for number, status in enumerate(["FAILED", "RUNNING", "FAILED", "SUCCEEDED"])
    ]
    told = summary("live", jobs=jobs, jobs_by_status={"FAILED": 2, "RUNNING": 1, "SUCCEEDED": 1})
    row = make_row(session(), SessionOverview(told), "live", redact=True)
    assert row.job is not None
    assert (row.job.status, row.other_jobs, row.other_failed) == ("RUNNING", 3, 2)


def test_secrets_in_entrypoints_are_neither_shown_nor_searchable() -> None:
    told = summary_of(made(failed=1), NOW, entrypoint="train --api-key hunter2", error="login failed: password=hunter3")
    row = make_row(session(), SessionOverview(told), "ended", redact=True)
    assert row.job is not None
    assert "hunter" not in row.job.entrypoint + "".join(row.fields.values()) + "".join(row.lines)
    shown = make_row(session(), SessionOverview(told), "ended", redact=False)
    assert "hunter2" in shown.fields["job"]
    assert "hunter3" in shown.fields["error"]


class Counting:
    """A store that counts reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gets = 0

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.gets += 1
        return self._store.get_range(key, start, length)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_each_object_is_read_once_and_summaries_are_cached_on_disk(tmp_path: Path) -> None:
    store = Counting(open_store(DirectorySettings(tmp_path / "archive")))
    write_fleet(store, 40, NOW)  # type: ignore[arg-type]
    sessions = read_catalog(store).sessions  # type: ignore[arg-type]

    def known() -> OverviewCache:
        summaries = Summaries(store, Cache(tmp_path / "cache", 1 << 20), share=True)  # type: ignore[arg-type]
        return OverviewCache(store, summaries, tmp_path / "cache")  # type: ignore[arg-type]

    first = known()
    first.refresh(sessions, NOW)
    unsettled = [entry for entry in sessions if not first.of(entry).is_settled(NOW)]
    assert store.gets == 40 + 2 * len(unsettled)
    assert 0 < len(unsettled) < 20
    store.gets = 0
    first.refresh(sessions, NOW)
    assert store.gets == 0
    second = known()
    second.refresh(sessions, NOW)
    assert store.gets == 2 * len(unsettled)
    assert all(second.of(entry).summary == first.of(entry).summary for entry in sessions)


def test_changed_removed_and_damaged_summaries_are_noticed(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    fleet = write_fleet(store, 10, NOW)
    sessions = {entry.name: entry for entry in read_catalog(store).sessions}
    known = OverviewCache(store, Summaries(store, Cache(tmp_path / "cache", 1 << 20), share=True), tmp_path / "cache")
    known.refresh(list(sessions.values()), NOW)
    changed, gone, damaged = (sessions[one.session] for one in fleet[5:8])
    more = msgspec.structs.replace(summary(), event_files=99)
    store.put(layout.summary_key(changed.cluster, changed.name), msgspec.json.encode(more))
    store.delete(layout.summary_key(gone.cluster, gone.name))
    store.put(layout.summary_key(damaged.cluster, damaged.name), b'{"version": 1}')
    known.refresh(list(sessions.values()), NOW)
    assert known.of(changed).summary == more
    assert known.of(gone).summary is None
    assert known.of(damaged).summary is None


@pytest.mark.parametrize("first", [None, "graceful"])
def test_the_ledger_decides_though_the_summary_already_tells_the_end(tmp_path: Path, first: str | None) -> None:
    """A viewer opens the session between the end and the next reading of the ledgers, or a collector is restarted."""
    store = open_store(DirectorySettings(tmp_path / "archive"))
    known = OverviewCache(store, Summaries(store, Cache(tmp_path / "cache", 1 << 20), share=True), tmp_path / "cache")
    one, then = session(), "graceful" if first is None else None
    ledger_key = layout.ledger_key(one.root, one.cluster, one.name, "a" * 56)

    def write(ended: str | None, at: float) -> None:
        ledger = account(ended=ended, alive_until=at + 330)
        store.put(ledger_key, msgspec.json.encode(ledger))

    write(first, NOW)
    known.refresh([one], NOW)
    told = summary()
    store.put(layout.summary_key(one.cluster, one.name), msgspec.json.encode(told))
    write(then, NOW + 20)
    known.refresh([one], NOW + 30)
    known.refresh([one], NOW + 45)
    assert known.of(one).state(NOW + 45) == ("ended" if then else "live")


def test_ledgers_of_removed_sessions_are_forgotten(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    known = OverviewCache(store, Summaries(store, Cache(tmp_path / "cache", 1 << 20), share=True), tmp_path / "cache")
    source = ArchiveSource(SessionCatalog(store, fresh_for=0), known, redact=True)
    one, body = session(), msgspec.json.encode(account(alive_until=NOW))
    store.put(layout.marker_key(one.root, one.cluster, one.name), b"")
    store.put(layout.ledger_key(one.root, one.cluster, one.name, "a" * 56), body)
    source.refresh(NOW)
    assert len(known.of(one).ledgers) == 1
    store.delete(layout.marker_key(one.root, one.cluster, one.name))
    source.refresh(NOW)
    assert known.of(one).ledgers == ()


class Told:
    """A stand-in for a source that returns or raises what the test sets."""

    def __init__(self) -> None:
        self.answer: Callable[[], list[Row]] = list

    def rows(self, now: float) -> list[Row]:
        return self.answer()

    def refresh(self, now: float) -> None:
        self.answer()


def fail() -> list[Row]:
    raise Unreachable("no route to host")


def test_a_failure_is_raised_without_a_list_and_reported_beside_one(tmp_path: Path) -> None:
    clock = [NOW]
    source = Told()
    fleet = SessionList([source], lambda: clock[0])
    source.answer = fail
    with pytest.raises(Unreachable):
        fleet.current()
    one = make_row(session(), SessionOverview(), "unknown", redact=True)
    source.answer = lambda: [one]
    assert fleet.current().rows == (one,)
    until(lambda: fleet.current().complete)
    source.answer = fail
    clock[0] += 3600
    listed = fleet.current()
    assert (listed.rows, listed.at, listed.error) == ((one,), NOW, "no route to host")
    clock[0] += 10
    source.answer = list
    until(lambda: not fleet.current().error)
    assert fleet.current().rows == ()
    fleet.close()


def test_an_older_list_is_shown_while_a_newer_one_is_read() -> None:
    clock = [NOW]
    source = Told()
    fleet = SessionList([source], lambda: clock[0])
    fleet.current()
    until(lambda: fleet.current().complete)
    fleet.close()
    one = make_row(session(), SessionOverview(), "unknown", redact=True)
    source.answer = lambda: [one]
    clock[0] += 10
    listed = fleet.current()
    assert listed.rows == ()
    assert listed.is_refreshing(clock[0])
    until(lambda: fleet.current().rows == (one,))
    fleet.close()
