from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ray_history.archive.ledger import EventCounts, Ledger, LogCounts, PolledEndpoint, decode, encode, read

WRITTEN = (
    b'{"node":"ab12","role":"head","hostname":"ray-head-0","started":1700000000.5,"written":1700000060.0,'
    b'"alive_until":1700000420.0,"ended":null,"collector":"0.9.0",'
    b'"events":{"received":12,"stored":10,"bytes_stored":2048,"duplicated":1,"quarantined":1,"refused_batches":3,'
    b'"dropped_by_ray":null,"last_event":"2026-01-15T10:30:00Z","types":{"TASK_PROFILE_EVENT":12}},'
    b'"logs":{"files":4,"bytes_seen":100,"bytes_stored":90,"bytes_uploaded":50,"bytes_lost":0,"left":1,'
    b'"problems":["raylet.out: permission denied"],"empty_directories":[]},'
    b'"polled":{"/api/jobs/":{"newest":"refused","detail":"401","since":{"refused":1700000030.0},"answered":0.0}},'
    b'"silent":1700000060.0,"export_given_up":null}'
)
READ = Ledger(
    "ab12",
    "head",
    "ray-head-0",
    1700000000.5,
    1700000060.0,
    1700000420.0,
    None,
    "0.9.0",
    EventCounts(12, 10, 2048, 1, 1, 3, None, "2026-01-15T10:30:00Z", {"TASK_PROFILE_EVENT": 12}),
    LogCounts(4, 100, 90, 50, 0, 1, problems=["raylet.out: permission denied"]),
    polled={"/api/jobs/": PolledEndpoint("refused", "401", {"refused": 1700000030.0})},
    silent=1700000060.0,
)


def contains(whole: Any, part: Any) -> bool:
    """Whether every field of `part` is in `whole`."""
    if isinstance(part, dict):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    return bool(whole == part)


def test_a_ledger_is_encoded_as_released_collectors_encode_it() -> None:
    assert contains(json.loads(encode(READ)), json.loads(WRITTEN)), "fields are only ever added"
    assert decode(encode(READ)) == READ
    assert decode(WRITTEN) == READ
    assert decode(WRITTEN.decode()) == READ


@pytest.mark.parametrize(
    ("body", "ledger"),
    [
        (b"{}", Ledger()),
        (b'{"ended":"graceful","added_later":{"x":[1]}}', Ledger(ended="graceful")),
        (
            b'{"node":"a","started":1700000000,"alive_until":1700000001}',
            Ledger(node="a", started=1.7e9, alive_until=1_700_000_001.0),
        ),
        (b'{"node":"a","ended":7,"alive_until":"soon"}', Ledger(node="a")),
        (b'{"node":"a","events":{"received":"many","stored":2}}', Ledger(node="a")),
        (b'{"node":"a","events":null,"logs":[]}', Ledger(node="a")),
        (b'{"node":"a","logs":{"files":3,"problems":[1]}}', Ledger(node="a")),
        (b'{"node":"a","polled":{"/api/jobs/":7},"silent":"yes"}', Ledger(node="a")),
        (b'{"polled":{"/x":{"newest":"timed out","more":1}}}', Ledger(polled={"/x": PolledEndpoint("timed out")})),
        (b"[]", None),
        (b"null", None),
        (b"", None),
        (b"{torn", None),
        (b'{"node":"\xff"}', None),
        (b'{"x":' + b"[" * 100_000, None),
    ],
)
def test_decoding_tolerates_unknown_and_invalid_fields(body: bytes, ledger: Ledger | None) -> None:
    assert decode(body) == ledger


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"node":"a","written":946684799}', "written: expected 0 or a time from the year 2000 on"),
        (b'{"node":"a","alive_until":4102444800}', "alive_until: expected `float` < 4102444800.0"),
        (b'{"node":"a","started":-1}', "started: expected `float` >= 0.0"),
        (b'{"node":"a","events":{"received":-1}}', "events.received: expected `int` >= 0"),
        (b'{"node":"a","events":{"stored":9007199254740992}}', "events.stored: expected `int` <= 9007199254740991"),
        (b'{"node":"a","logs":{"files":1.5}}', "logs.files: expected `int`, got `float`"),
        (b'{"node":"a","hostname":"%s"}' % (b"h" * 1025), "hostname: expected `str` of length <= 1024"),
        (b'{"node":"a","polled":{"/x":{"since":{"answered":-1}}}}', "polled[...].since[...]: expected `float` >= 0.0"),
    ],
)
def test_a_value_out_of_range_counts_as_absent_and_is_reported(body: bytes, problem: str) -> None:
    assert read(body) == (Ledger(node="a"), [problem])


def test_what_is_no_ledger_says_why() -> None:
    assert read(b"[]") == (None, ["expected `object`, got `array`"])
    assert read(b'{"written":1e400}') == (None, ["[...]: number out of range"])
    assert read(WRITTEN) == (READ, [])


@pytest.mark.parametrize(("ended", "graceful"), [("graceful", True), (None, False), ("killed", False)])
def test_only_a_graceful_end_counts_as_one(ended: str | None, graceful: bool) -> None:
    assert Ledger(ended=ended).is_graceful is graceful


def test_an_endpoint_that_answered_once_counts_as_answered() -> None:
    endpoint = PolledEndpoint()
    assert endpoint.outcome == "never asked"
    endpoint.note("refused", "401", 1.0)
    endpoint.note("timed out", "no answer", 2.0)
    endpoint.note("refused", "401", 3.0)
    assert endpoint == PolledEndpoint("refused", "401", {"refused": 1.0, "timed out": 2.0})
    assert endpoint.outcome == "refused"
    endpoint.note("answered", "", 4.0)
    endpoint.note("unreachable", "gone", 5.0)
    assert (endpoint.outcome, endpoint.newest, endpoint.answered) == ("answered", "unreachable", 4.0)


def test_all_fields_have_defaults() -> None:
    for kind in (Ledger, EventCounts, LogCounts, PolledEndpoint):
        assert all(not field.required for field in msgspec.structs.fields(kind))
