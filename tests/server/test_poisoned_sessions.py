"""A session with objects that are not what they should be can be opened, every route of it answers, and it says why."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.ledger import EventCounts, Ledger
from ray_history.archive.ledger import encode as encode_ledger
from ray_history.archive.log_tails import BundleWriter
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.facts import Facts
from ray_history.index import manifest
from ray_history.server.routes import ROUTES
from tests.server.poisons import BODIES, VALUES, poisoned
from tests.server.serving import Answer, Served, served
from tests.support.captured import captured, write_archive
from tests.support.waiting import until

SESSION = captured().session
HEALTHY = Cluster("team", "healthy")
STARTED = 1_794_772_855.0
NODE = "ab" * 28
PARTS = {
    "media_type": "events",
    "job_or_submission_id": "01000000",
    "node_id": NODE,
    "actor_id": "0" * 32,
    "job_id": "01000000",
    "name:path": "raylet.out",
    "protocol": "gcs",
    "label": "State",
    "package_name": "a.zip",
}
ENDLESS = ("/logs/stream", "/_status", "/tail")
"""Routes that go on while the session is live."""


@dataclass
class Poisoned:
    server: Served
    before: dict[str, bytes]
    """Answers about the healthy session before there was anything else."""
    sessions: list[str]


def put(folder: Path, key: str, body: bytes) -> None:
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    (folder / key).write_bytes(body)


def ledgers(folder: Path) -> None:
    """Each with one bad value, or none that is good."""
    good = encode_ledger(
        Ledger(role="head", started=STARTED, written=STARTED + 9, alive_until=STARTED + 9, events=EventCounts(9, 9))
    )
    places = (
        ("written",),
        ("alive_until",),
        ("started",),
        ("events", "received"),
        ("polled", "/api/jobs/", "since", "x"),
    )
    cluster = Cluster("team", "ledgers")
    for number, value in enumerate(VALUES.values()):
        for index, place in enumerate(places):
            key = layout.ledger_key("", cluster, SESSION, f"{number:02x}{index:02x}" * 14)
            put(folder, key, poisoned(good, place, value))
    for kind, body in BODIES.items():
        put(folder, layout.ledger_key("", cluster, SESSION, f"whole-{kind}"), body)


def polled(folder: Path) -> None:
    """Every answer of the dashboard, with another kind of nonsense in each."""
    prefix = layout.session_prefix("", Cluster("team", "polled"), SESSION)
    nonsense = [body for kind, body in BODIES.items() if kind != "10-MB"]
    nonsense += [b'{"data":{"result":{"result":[%s]}}}' % value for value in VALUES.values()]
    nonsense += [b'{"data":{"result":%s}}' % value for value in VALUES.values()]
    nonsense += [b'{"data":{"summary":[{"now":%s,"raylet":7}],"clients":%s}}' % (v, v) for v in VALUES.values()]
    for number, name in enumerate(captured().polled):
        put(folder, f"{prefix}/fetched_endpoints/{name}", nonsense[number * 7 % len(nonsense)])
    for number, url in enumerate(
        ("/api/v0/tasks", "/api/v0/actors", "/nodes?view=summary", "/api/jobs/", "/api/version")
    ):
        for at, body in enumerate(nonsense[number::5]):
            put(folder, layout.endpoint_key(prefix, f"{url}{'&' if '?' in url else '?'}n={at}"), body)


def shapes(folder: Path) -> None:
    """Answers of the dashboard whose every value has another type."""
    prefix = layout.session_prefix("", Cluster("team", "shapes"), SESSION)
    for number, (name, body) in enumerate(captured().polled.items()):
        try:
            value = msgspec.json.decode(body)
        except msgspec.DecodeError:
            continue
        put(folder, f"{prefix}/fetched_endpoints/{name}", json.dumps(_twisted(value, number)).encode())


def _twisted(value: object, seed: int) -> object:
    """The value with every leaf replaced."""
    if isinstance(value, dict):
        return {name: _twisted(inner, seed + at) for at, (name, inner) in enumerate(value.items())}
    if isinstance(value, list):
        return [_twisted(inner, seed + at) for at, inner in enumerate(value)]
    odd = (-1, 2**63, 1e308, "", "x" * 5000, True, None, [], {}, [[1]], {"a": {"b": 1}}, "9999-99-99T99:99:99Z", "NaN")
    return odd[seed % len(odd)]


def bytes_of_a_node(folder: Path) -> None:
    """Event files, journals, bundles and logs."""
    cluster = Cluster("team", "bytes")
    prefix = layout.session_prefix("", cluster, SESSION)
    for number, body in enumerate([*BODIES.values(), *VALUES.values()]):
        created = 1_794_772_855_000_000_000 + number
        put(folder, layout.event_file_key(prefix, NODE, None, created), body if number % 2 else gzip.compress(body))
        put(folder, layout.journal_key("", cluster, SESSION, NODE, created), gzip.compress(body))
        put(folder, layout.tail_key("", cluster, SESSION, NODE, number), body)
        put(folder, layout.log_key(prefix, NODE, f"events/event_{number}.log"), body)
        put(folder, layout.log_key(prefix, NODE, f"export_events/event_EXPORT_{number}.log"), body)
    for number, moment in enumerate(("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2261-01-01T00:00:00Z", "soon")):
        event = {
            "eventId": f"{number}",
            "eventType": "NODE_DEFINITION_EVENT",
            "timestamp": moment,
            "sessionName": SESSION,
        }
        event |= {"nodeDefinitionEvent": {"nodeId": NODE, "startTimestamp": moment, "labels": 7}}
        put(
            folder,
            layout.event_file_key(prefix, NODE, None, 1_794_772_900_000_000_000 + number),
            gzip.compress(json.dumps(event).encode()),
        )
    writer = BundleWriter()
    writer.add("raylet.out", 1, 2**53 - 10, b"at the end of the world\n")
    writer.add("gcs_server.out", 2**53 - 1, 0, b"a line\n")
    put(folder, layout.tail_key("", cluster, SESSION, NODE, 1000), writer.finish())
    logs = os.fsencode(folder / prefix / NODE / "logs")
    for name in (b"caf\xe9.log", b"\xff\xfe.out", b"new\nline.log", b"\\xe9.log"):
        with open(os.path.join(logs, name), "wb") as file:
            file.write(b"one line\n")
    os.utime(os.path.join(logs, b"caf\xe9.log"), (4e10, 4e10))


def manifests(folder: Path) -> None:
    """Published indexes with a manifest that is none: one session for each."""
    plain = manifest.encode(
        manifest.Manifest(
            version=manifest.VERSION, session=SESSION, sources=[], other_sources="", files=[], rows={}, events={},
            problems=[], facts=Facts(tasks=1),
        )
    )  # fmt: skip
    places = (("facts", "start_ns"), ("events", "x"), ("problem_count",), ("files",), ("sources",))
    for number, (place, value) in enumerate(zip(places * 4, VALUES.values(), strict=False)):
        if number in (0, 3, 5, 6, 9):
            cluster = Cluster("team", f"manifest-{number}")
            put(folder, layout.index_prefix("", cluster, SESSION) + "/manifest.json", poisoned(plain, place, value))


SESSIONS = (ledgers, polled, shapes, bytes_of_a_node, manifests)
CLUSTERS = ("ledgers", "polled", "shapes", "bytes", *(f"manifest-{number}" for number in (0, 3, 5, 6, 9)))
ASKED = ("/_completeness", "/api/v0/tasks?limit=10", "/api/v0/nodes", "/api/jobs/", "/_digest")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poisoned]:
    folder = tmp_path_factory.mktemp("poisoned")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, HEALTHY)
    with served(store, folder / "cache", most_open=20) as server:
        before = {path: get(server, HEALTHY.name, path).body for path in ASKED}
        for write in SESSIONS:
            write(folder / "archive")
        for name in CLUSTERS:
            put(folder / "archive", layout.marker_key("", Cluster("team", name), SESSION), b"")
        until(lambda: all(name in server.get("/clusters").body.decode() for name in CLUSTERS), "they are listed")
        yield Poisoned(server, before, list(CLUSTERS))


def get(server: Served, cluster: str, path: str, accept: str = "application/json") -> Answer:
    return server.get(f"/s/team/{cluster}/{SESSION}{path}", {"Accept": accept})


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_route_answers(archive: Poisoned, cluster: str) -> None:
    for route in ROUTES:
        path = route.path
        for part, value in PARTS.items():
            path = path.replace(f"{{{part}}}", value)
        if any(path.endswith(ending) for ending in ENDLESS):
            continue
        answer = get(archive.server, cluster, path)
        assert answer.status != 500, (cluster, path, answer.body[:2000])
        if answer.status >= 400 or "text/html" in route.content:
            assert get(archive.server, cluster, path, "text/html").status in (200, answer.status), (cluster, path)
    assert get(archive.server, cluster, "/api/v0/nodes").status == 200


def test_completeness_says_what_is_wrong(archive: Poisoned) -> None:
    problems = {
        name: "\n".join(get(archive.server, name, "/_completeness").json["problems"])
        for name in ("ledgers", "polled", "bytes")
    }
    assert "written: expected" in problems["ledgers"]
    assert "has more than 1048576 bytes" in problems["ledgers"]
    assert "not JSON" in problems["polled"]
    assert "node_events" in problems["bytes"]


def test_names_that_are_not_utf_8_can_be_listed_and_read(archive: Poisoned) -> None:
    listed = get(archive.server, "bytes", f"/api/v0/logs?node_id={NODE}&glob=*").json["data"]["result"]
    names = [name for names in listed.values() for name in names]
    assert {"caf\\xe9.log", "\\xff\\xfe.out", "\\xe9.log"} <= set(names)
    answer = get(archive.server, "bytes", f"/api/v0/logs/file?node_id={NODE}&filename=caf%5Cxe9.log")
    assert (answer.status, answer.body) == (200, b"one line\n")


def test_an_impossible_time_moves_neither_start_nor_end(archive: Poisoned) -> None:
    page = get(archive.server, "bytes", "/_session", "text/html").body.decode()
    assert "9999" not in page.partition('<dl class="facts">')[0]


def test_the_healthy_session_answers_as_before(archive: Poisoned) -> None:
    assert {path: get(archive.server, HEALTHY.name, path).body for path in ASKED} == archive.before
