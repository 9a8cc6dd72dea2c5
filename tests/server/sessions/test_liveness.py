"""The state of a session and its end, from ledgers and from the age of its files."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster, EventFileKey, Generation, parse_data_key
from ray_history.archive.ledger import Ledger
from ray_history.archive.session_files import EventFile, SessionFiles
from ray_history.archive.stores import ObjectInfo
from ray_history.server.sessions.liveness import LifeSigns, State, is_shut_down, node_is_over

STARTED = 1_794_776_136
NOW = STARTED + 1_000_000.0
MINUTE, HOUR = 60.0, 3600.0
LAST_NS = round((NOW - 90_000) * 1e9)
KEYS = {
    Generation.A: "job_events/AgAAAA==/node-2026-11-15-20",
    Generation.A_PRIME: "job_events/AgAAAA==/node-2026-11-15-20.gz",
    Generation.B: "node/job_events/AgAAAA==/node-2026-11-15-20.gz",
    Generation.C: "node/job_events/02000000/node-2026-11-15-20-1794776136000000000.jsonl",
}


def stored(age: float, key: str = "x") -> ObjectInfo:
    return ObjectInfo(key, 1, datetime.fromtimestamp(NOW - age, UTC))


def event_file(generation: Generation, age: float) -> EventFile:
    key = parse_data_key(KEYS[generation])
    assert isinstance(key, EventFileKey), generation
    assert key.generation is generation
    return EventFile(key, stored(age))


def files(
    *events: EventFile, polled: float | None = None, log: float | None = None, tails: float | None = None
) -> SessionFiles:
    session = Session(Cluster("default", "demo"), "session_2026-11-15_20-55-36_563127_31460", STARTED)
    return SessionFiles(
        session,
        events,
        {} if polled is None else {"restful__timezone": stored(polled)},
        () if log is None else (("node", "raylet.out", stored(log)),),
        () if tails is None else (("node", stored(tails)),),
        (),
    )


def end_of(those: SessionFiles, *ledgers: Ledger, last_event_ns: int | None = LAST_NS) -> int | None:
    signs = LifeSigns.from_archive(ledgers, those)
    return signs.end_ns(NOW, started=STARTED, last_event_ns=last_event_ns)


@pytest.mark.parametrize("generation", [Generation.A, Generation.A_PRIME, Generation.B])
def test_a_cluster_with_hourly_events_is_live_for_more_than_an_hour(generation: Generation) -> None:
    assert end_of(files(event_file(generation, HOUR + 5 * MINUTE))) is None
    assert end_of(files(event_file(generation, 3 * HOUR))) == LAST_NS


def test_a_quiet_cluster_is_live_while_snapshots_are_stored() -> None:
    quiet = event_file(Generation.C, 30 * HOUR)
    assert end_of(files(quiet, polled=30.0)) is None
    assert end_of(files(quiet, polled=11 * MINUTE)) == LAST_NS


def test_logs_are_signs_of_life_too() -> None:
    quiet = event_file(Generation.C, 30 * HOUR)
    assert end_of(files(quiet, polled=HOUR, log=MINUTE)) is None
    assert end_of(files(quiet, polled=HOUR, tails=MINUTE)) is None


def test_a_cluster_without_polling_may_be_silent_for_longer() -> None:
    assert end_of(files(event_file(Generation.C, HOUR))) is None
    assert end_of(files(event_file(Generation.C, 2 * HOUR))) == LAST_NS


def test_ledgers_decide_before_files() -> None:
    silent = Ledger(alive_until=NOW - HOUR)
    assert end_of(files(event_file(Generation.A, MINUTE)), silent) == LAST_NS
    assert end_of(files(), Ledger(alive_until=NOW - MINUTE)) is None
    assert end_of(files(polled=1.0), Ledger(ended="graceful")) == LAST_NS


@pytest.mark.parametrize(
    ("ledgers", "those", "end"),
    [
        ((), files(polled=5 * HOUR, log=4 * HOUR), NOW - 4 * HOUR),
        ((), files(log=NOW - STARTED + 90 * HOUR), STARTED),
        ((), files(), STARTED),
        ((Ledger(alive_until=NOW - HOUR),), files(log=MINUTE), NOW - HOUR),
        ((Ledger(ended="graceful"),), files(log=2 * HOUR), NOW - 2 * HOUR),
    ],
)
def test_a_session_without_events_ended_at_its_last_sign_of_life(
    ledgers: tuple[Ledger, ...], those: SessionFiles, end: float
) -> None:
    assert end_of(those, *ledgers, last_event_ns=None) == pytest.approx(end * 1e9)


FRESH = {"newest_object": NOW - 60, "longest_silence": HOUR}


@pytest.mark.parametrize(
    ("signs", "state"),
    [
        (LifeSigns(), "unknown"),
        (LifeSigns(is_running=True), "live"),
        (LifeSigns(is_running=True, is_shut_down=True, alive_until=NOW - HOUR), "live"),
        (LifeSigns(is_shut_down=True, alive_until=NOW + HOUR, **FRESH), "ended"),
        (LifeSigns(alive_until=NOW + HOUR), "live"),
        (LifeSigns(alive_until=NOW - 120), "live"),
        (LifeSigns(alive_until=NOW - 121), "lost"),
        (LifeSigns(alive_until=NOW - 121, **FRESH), "lost"),
        (LifeSigns(**FRESH), "live"),
        (LifeSigns(newest_object=NOW - HOUR, longest_silence=HOUR), "live"),
        (LifeSigns(newest_object=NOW - HOUR - 1, longest_silence=HOUR), "ended"),
    ],
)
def test_the_first_sign_that_applies_decides(signs: LifeSigns, state: State) -> None:
    assert signs.state(NOW) == state
    assert (signs.end_ns(NOW, started=STARTED, last_event_ns=LAST_NS) is None) == (state == "live")


HEAD, WORKER = Ledger(role="head"), Ledger(role="worker")


def ended(ledger: Ledger, started: float = 0.0) -> Ledger:
    return msgspec.structs.replace(ledger, ended="graceful", started=started)


@pytest.mark.parametrize(
    ("ledgers", "is_over"),
    [
        ((), False),
        ((HEAD,), False),
        ((ended(HEAD), WORKER), True),
        ((HEAD, ended(WORKER)), False),
        ((ended(WORKER), ended(WORKER)), True),
        ((ended(WORKER), WORKER), False),
        ((HEAD, ended(HEAD, 1.0)), True),
        ((ended(HEAD), msgspec.structs.replace(HEAD, started=1.0)), False),
        ((HEAD, ended(HEAD)), False),
        ((Ledger(ended="killed", role="head"),), False),
    ],
)
def test_the_newest_head_decides_whether_a_session_was_shut_down(ledgers: tuple[Ledger, ...], is_over: bool) -> None:
    assert is_shut_down(ledgers) is is_over
    assert is_shut_down(ledgers[::-1]) is is_over


def test_a_node_is_over_with_its_own_collector() -> None:
    assert node_is_over(Ledger(ended="graceful", alive_until=NOW + HOUR), NOW)
    assert not node_is_over(Ledger(alive_until=NOW - 120), NOW)
    assert node_is_over(Ledger(alive_until=NOW - 121), NOW)
