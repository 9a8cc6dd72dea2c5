"""A session whose objects are not what they should be costs only its own row, and the row says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from ray_history.archive.ledger import EventCounts, Ledger
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.cli.installed import run
from tests.server.poisons import BODIES, VALUES, poisoned
from tests.server.serving import Served, served
from tests.server.ui.fleets import Made, session_name, summary_of, write_made
from tests.server.ui.markup import Element, parsed
from tests.support.waiting import until

NOW = 1_794_800_000.0
HEALTHY = ("healthy-a", "healthy-b")
SUMMARY_PLACES = (
    ("facts", "nodes"),
    ("facts", "start_ns"),
    ("facts", "alive_until"),
    ("facts", "cpus"),
    ("tasks", "FINISHED"),
    ("jobs", 0, "start_ms"),
    ("newest_file",),
    ("accounts", "cut_off"),
)
LEDGER_PLACES = (
    ("written",),
    ("alive_until",),
    ("started",),
    ("events", "received"),
    ("events", "types", "TASK_PROFILE_EVENT"),
    ("logs", "bytes_lost"),
    ("polled", "/api/jobs/", "answered"),
    ("polled", "/api/jobs/", "since", "answered"),
)
VALID = {
    (("facts", "cpus"), "fraction"),
    # As large numbers of things, these are possible.
    (("facts", "nodes"), "year-9999"),
    (("facts", "cpus"), "year-9999"),
    (("tasks", "FINISHED"), "year-9999"),
    (("accounts", "cut_off"), "year-9999"),
    (("events", "received"), "year-9999"),
    (("events", "types", "TASK_PROFILE_EVENT"), "year-9999"),
    (("logs", "bytes_lost"), "year-9999"),
    # Shown as an age at most.
    (("polled", "/api/jobs/", "answered"), "fraction"),
    (("polled", "/api/jobs/", "since", "answered"), "fraction"),
}
SUMMARY = msgspec.json.encode(
    summary_of(Made(Cluster("ns", "x"), "", NOW - 9000, "ended", "python x.py", "s-1", 0, "", "2.60.0"), NOW)
)
LEDGER = msgspec.json.encode(
    Ledger(
        role="head",
        started=NOW - 9000,
        written=NOW - 8000,
        alive_until=NOW - 8000,
        ended="graceful",
        events=EventCounts(9, 9),
    )
)
ODD_NAMES = (
    "session_0001-01-01_00-00-00_000000_1",
    "session_1969-12-31_23-59-59_000000_1",
    "session_2100-01-01_00-00-00_000000_1",
    "session_9999-12-31_23-59-59_999999_1",
)


def made(cluster: str) -> Made:
    started = NOW - 9000
    return Made(
        Cluster("ns", cluster), session_name(started, 1), started, "ended", "python x.py", "s-1", 0, "", "2.60.0"
    )


@dataclass
class Poisoned:
    server: Served
    storage: str
    before: dict[str, str]
    """The rows of healthy sessions before there was anything else."""
    bad: set[str]
    """The clusters of poisoned sessions."""


def rows(server: Served) -> dict[str, Element]:
    """The rows of all pages of the list, by cluster."""
    found: dict[str, Element] = {}
    path: str | None = "/"
    while path:
        answer = server.get(path, {"Accept": "text/html"})
        assert answer.status == 200, answer.body[-2000:]
        page = parsed(answer.body)
        for row in page.all("tr", where=lambda row: bool(row.all("td", "c-name"))):
            found[row.one("td", "c-name").one("a").text] = row
        path = next(
            ("/" + link.attributes["href"] for link in page.all("a") if link.attributes.get("rel") == "next"), None
        )
    return found


def is_read(server: Served, cluster: str) -> bool:
    """Whether the list has read everything that was stored before this session."""
    answer = server.get(f"/?q={cluster}")
    return b">2.60.0<" in answer.body and b'data-again="1"' not in answer.body


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poisoned]:
    folder = tmp_path_factory.mktemp("poisoned")
    store = open_store(DirectorySettings(folder / "archive"))
    for name in HEALTHY:
        write_made(store, made(name), NOW, summarized=True)
    with served(store, folder / "cache") as server:
        until(lambda: all(is_read(server, name) for name in HEALTHY))
        before = {name: row.text for name, row in rows(server).items()}
        bad = poison(folder / "archive")
        write_made(store, made("healthy-last"), NOW, summarized=True)
        until(lambda: is_read(server, "healthy-last"))
        yield Poisoned(server, store.url, before, bad)


def poison(folder: Path) -> set[str]:
    """Write a session for every poison. Not through a store, which would sync each of the many objects."""
    bad: set[str] = set()

    def write(name: str, summary: bytes | None, ledger: bytes | None) -> None:
        one = made(name)
        put(layout.marker_key("", one.cluster, one.session), b"")
        put(layout.summary_key(one.cluster, one.session), summary)
        put(layout.ledger_key("", one.cluster, one.session, "head-1"), ledger)
        bad.add(name)

    def put(key: str, body: bytes | None) -> None:
        if body is not None:
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(body)

    for kind, value in VALUES.items():
        for number, place in enumerate(SUMMARY_PLACES):
            if (place, kind) not in VALID:
                write(f"summary-{number}-{kind}", poisoned(SUMMARY, place, value), LEDGER)
        for number, place in enumerate(LEDGER_PLACES):
            if (place, kind) not in VALID:
                write(f"ledger-{number}-{kind}", None, poisoned(LEDGER, place, value))
    for kind, body in BODIES.items():
        write(f"all-of-summary-{kind}", body, None)
        write(f"all-of-ledger-{kind}", None, body)
    for name in ODD_NAMES:
        put(f"cluster-metadata/raycluster/ns_{name[8:18]}/{name}", b"")
        bad.add(name[8:18])
    return bad


def test_no_row_is_lost_and_no_other_row_changes(archive: Poisoned) -> None:
    listed = rows(archive.server)
    assert archive.bad <= listed.keys()
    assert {name: listed[name].text for name in HEALTHY} == archive.before


def test_each_poisoned_session_says_why(archive: Poisoned) -> None:
    listed = rows(archive.server)
    silent = [name for name in sorted(archive.bad) if "cannot be" not in listed[name].one("td", "c-jobs").text]
    assert silent == []
    assert listed["2100-01-01"].one("td", "c-start").text == "unknown"
    assert listed["summary-0-text"].one("td", "c-jobs").text == (
        "not indexed yet Not all of it can be shown, because this cannot be used: "
        "the summary (facts.nodes: expected `int | null`, got `str`; "
        "opening the session writes a new one)."
    )


def test_kuberays_list_has_all_of_them(archive: Poisoned) -> None:
    answer = archive.server.get("/clusters?limit=9999")
    assert answer.status == 200
    problems = {row["name"]: row.get("problem") for row in answer.json}
    assert archive.bad <= problems.keys()
    assert {name for name, problem in problems.items() if problem} == {name[8:18] for name in ODD_NAMES}


def test_the_command_line_lists_all_of_them(archive: Poisoned) -> None:
    shown = run("sessions", "--storage", archive.storage, "--details", "--json")
    assert shown.returncode == 0, shown.stderr
    problems = {row["name"]: row.get("problem", "") for row in json.loads(shown.stdout)}
    assert archive.bad <= problems.keys()
    told = {name for name, problem in problems.items() if problem}
    assert told == {name for name in archive.bad if not name.startswith(("summary-", "all-of-summary-"))}
    assert problems["ledger-3-negative"] == "invalid ledger: events.received: expected `int` >= 0"
