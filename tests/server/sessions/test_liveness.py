"""Whether a session goes on is judged by whatever was stored last, and by how long its collector may be silent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster, EventFileKey, Generation, parse_data_key
from ray_history.archive.session_files import EventFile, SessionFiles
from ray_history.archive.stores import ObjectInfo
from ray_history.server.sessions.liveness import end_of_session

STARTED = 1_794_776_136
NOW = STARTED + 1_000_000.0
MINUTE, HOUR = 60.0, 3600.0
LAST = {"last_ns": round((NOW - 90_000) * 1e9)}
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


@pytest.mark.parametrize("generation", [Generation.A, Generation.A_PRIME, Generation.B])
def test_a_cluster_whose_events_come_once_an_hour_goes_on_for_more_than_one(generation: Generation) -> None:
    assert end_of_session(LAST, files(event_file(generation, HOUR + 5 * MINUTE)), NOW) is None
    assert end_of_session(LAST, files(event_file(generation, 3 * HOUR)), NOW) == LAST["last_ns"]


def test_a_quiet_cluster_goes_on_while_its_answers_are_stored_again() -> None:
    quiet = event_file(Generation.C, 30 * HOUR)
    assert end_of_session(LAST, files(quiet, polled=30.0), NOW) is None
    assert end_of_session(LAST, files(quiet, polled=11 * MINUTE), NOW) == LAST["last_ns"]


def test_logs_are_signs_of_life_too() -> None:
    quiet = event_file(Generation.C, 30 * HOUR)
    assert end_of_session(LAST, files(quiet, polled=HOUR, log=MINUTE), NOW) is None
    assert end_of_session(LAST, files(quiet, polled=HOUR, tails=MINUTE), NOW) is None


def test_a_cluster_that_nobody_polls_may_be_silent_for_longer() -> None:
    assert end_of_session(LAST, files(event_file(Generation.C, HOUR)), NOW) is None
    assert end_of_session(LAST, files(event_file(Generation.C, 2 * HOUR)), NOW) == LAST["last_ns"]


def test_ledgers_tell_better_than_files() -> None:
    told = LAST | {"alive_until": NOW - HOUR}
    assert end_of_session(told, files(event_file(Generation.A, MINUTE)), NOW) == LAST["last_ns"]
    assert end_of_session(told | {"alive_until": NOW - MINUTE}, files(), NOW) is None
    assert end_of_session(LAST | {"ended": "graceful"}, files(polled=1.0), NOW) == LAST["last_ns"]


NO_EVENTS: list[tuple[dict[str, Any], SessionFiles, float]] = [
    ({}, files(polled=5 * HOUR, log=4 * HOUR), NOW - 4 * HOUR),
    ({}, files(log=NOW - STARTED + 90 * HOUR), STARTED),
    ({}, files(), STARTED),
    ({"alive_until": NOW - HOUR}, files(log=MINUTE), NOW - HOUR),
    ({"ended": "graceful"}, files(log=2 * HOUR), NOW - 2 * HOUR),
]


@pytest.mark.parametrize(("facts", "those", "end"), NO_EVENTS)
def test_a_session_without_events_ended_when_it_was_last_heard_of(
    facts: dict[str, Any], those: SessionFiles, end: float
) -> None:
    assert end_of_session(facts, those, NOW) == pytest.approx(end * 1e9)
