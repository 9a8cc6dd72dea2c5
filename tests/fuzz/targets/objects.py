"""Objects of a bucket besides events and logs, and their keys."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from typing import Any

import msgspec

from ray_history.archive import layout, ledger
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.layout import Cluster, EventFileKey
from ray_history.archive.names import Component, InvalidName, dns_name, hex_id, session_time
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.memory import MemorySettings
from ray_history.history.facts import Facts
from ray_history.index import manifest, summary
from ray_history.index.documents import process_of, write_documents
from tests.fuzz.target import target
from tests.support.captured import captured

SESSION = "session_2026-11-15_20-00-55_739110_9771"
NODE = "3a" * 28
_SPACE = re.compile(r"\s")
CLUSTER = Cluster("default", "demo")


def new_store(objects: Iterable[tuple[str, bytes]]) -> tuple[Store, Session]:
    """An archive in memory with one session and these objects."""
    store = open_store(MemorySettings(secrets.token_hex(8)))
    store.put(layout.marker_key("", CLUSTER, SESSION), b"")
    for key, body in objects:
        store.put(key, body)
    (session,) = read_catalog(store).sessions
    return store, session


def json_of(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _stable(data: bytes, decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Any:
    """What is decoded, and that it is encoded and decoded without a change."""
    decoded = decode(data)
    if decoded is not None:
        again = decode(encode(decoded))
        assert again == decoded
        assert encode(again) == encode(decoded)
    return decoded


# Ledgers, manifests, summaries ------------------------------------------------------------------------------------


def ledgers() -> list[bytes]:
    full = ledger.Ledger(
        node=NODE, role="head", hostname="vm", started=1e9, written=2e9, alive_until=2e9, ended="graceful"
    )
    full.events.add_types({"TASK_LIFECYCLE_EVENT": 7})
    full.logs.problems.append("a.log: unreadable")
    full.polled["/api/jobs/"] = ledger.PolledEndpoint("answered", "", {"answered": 1e9}, 2e9)
    return [ledger.encode(full), ledger.encode(ledger.Ledger()), b"{}"]


@target(
    "ledger", ledgers, tokens=(b'"events":', b'"polled":', b'"alive_until":', b'"since":', b"null", b"1e999", b"-1")
)
def ledger_object(data: bytes) -> None:
    """A ledger, or None; what is decoded can be encoded, and is then the same."""
    found = _stable(data, ledger.decode, ledger.encode)
    if found is not None:
        assert isinstance(found.is_graceful, bool)
        assert all(isinstance(each.outcome, str) for each in found.polled.values())


def _manifests() -> list[bytes]:
    one = manifest.Manifest(
        version=manifest.VERSION,
        session=SESSION,
        sources=[manifest.SourceFile("a/b.jsonl.gz", 7, "etag")],
        other_sources="0f",
        files=[manifest.IndexFile("tasks.parquet", 9, "0" * 64)],
        rows={"tasks": 1},
        events={"TASK_LIFECYCLE_EVENT": 1},
        problems=["x"],
    )
    return [manifest.encode(one)]


@target("manifest", _manifests, tokens=(b'"version":2', b"../", b".parquet", b'"files":[]', b"\xff"))
def manifest_object(data: bytes) -> None:
    """A manifest whose names are files in its directory, each once, or Damaged."""

    def decode(body: bytes) -> manifest.Manifest | None:
        with suppress(manifest.Damaged):
            return manifest.decode(body)
        return None

    found = _stable(data, decode, manifest.encode)
    if found is not None:
        names = [file.name for file in found.files]
        assert len(set(names)) == len(names)
        assert all(name.endswith(".parquet") and not set(name) & set("/\\\0\n") for name in names)
        summary.identify(found)


def summaries() -> list[bytes]:
    job = summary.Job("01000000", "raysubmit_1", "python a.py", "FAILED", "exit code 1", 1_794_772_800_000, None)
    one = summary.Summary(
        version=summary.VERSION,
        index="0f",
        event_files=3,
        newest_file=1e9,
        facts=Facts(ray_version="2.60.0", start_ns=1_794_772_800_000_000_000, alive_until=2e9),
        tasks={"FINISHED": 7, "FAILED": 1},
        jobs_by_status={"FAILED": 1},
        jobs=[job],
        failures=[summary.Failure("task", "f", "ValueError: x", 1)],
        accounts=summary.Accounts(1, 0, True, 0),
        problem_count=0,
        problem="",
    )
    return [msgspec.json.encode(one)]


@target("summary", summaries, tokens=(b'"start_ns":', b"1e400", b"-1", b"null", b"9223372036854775808", b"\xff"))
def summary_object(data: bytes) -> None:
    """A summary, None for another version, or Invalid; what is decoded can be encoded, and is then the same."""
    with suppress(summary.Invalid):
        _stable(data, summary.decode, msgspec.json.encode)


# Keys -------------------------------------------------------------------------------------------------------------


def _keys() -> list[bytes]:
    owned = Cluster("ml", "demo-x", "rayjob", "demo")
    keys = [layout.marker_key("", cluster, SESSION) for cluster in (CLUSTER, owned)]
    keys += [f"metadir/demo_default/{SESSION}", "fetched_endpoints/restful__api__jobs", f"logs/{NODE}/old/raylet.out"]
    keys += [f"node_events/{NODE}-2026-11-15-20.gz", f"job_events/AgAAAA==/{NODE}-2026-11-15-20"]
    keys += [
        f"{NODE}/node_events/{NODE}-2026-11-15-20-1794772800000000000.jsonl.gz",
        f"{NODE}/1794772800000000000.jsonl.gz",
    ]
    return [key.encode() for key in keys]


@target("keys", _keys, tokens=(b"cluster-metadata/", b"rayservice", b"/", b"..", b"_", b"//", b"\xff", b".jsonl.gz"))
def object_keys(data: bytes) -> None:
    """A marker names what makes the same key again; a data key has the parts that stand in it; others are None."""
    key = data.decode(errors="replace")
    marker = layout.parse_marker(key)
    if marker is not None:
        assert str(Component(marker.session)) == marker.session
        assert not {".", ".."} & {marker.cluster.namespace, marker.cluster.name, marker.cluster.owner_name}
        if not marker.legacy and key.split("/")[1].islower() and "__" not in key and not _SPACE.search(key):
            assert layout.marker_key("", marker.cluster, marker.session) == key
    for parsed in (layout.parse_data_key(key), layout.parse_journal_key(key)):
        if isinstance(parsed, EventFileKey):
            assert parsed.node in key
            assert parsed.hour


@target(
    "names",
    lambda: [SESSION.encode(), b"AgAAAA==", b"0f0F", b"team-a.example", b"session_2026-02-30_00-00-00_000000_1"],
)
def names(data: bytes) -> None:
    """A component is safe in every store; an id in hex stays as it is; a session's time is a moment."""
    text = data.decode(errors="surrogateescape")
    for make in (Component, lambda name: dns_name(name, "cluster")):
        with suppress(InvalidName):
            name = make(text)
            assert name.isascii()
            assert 1 <= len(name) <= 255
            assert not set(name) & set("/\\ \n\0")
            assert name not in (".", "..")
    assert hex_id(hex_id(text)) == hex_id(text) or not hex_id(text).isascii()
    moment = session_time(text)
    if moment is not None:
        assert moment.iso[:10] == text[8:18]


# Documents --------------------------------------------------------------------------------------------------------


def _polled() -> list[bytes]:
    return [body for body in captured().polled.values() if len(body) < 4000][:20]


def _documents(objects: Iterable[tuple[str, bytes]]) -> tuple[list[dict[str, Any]], list[str]]:
    store, session = new_store(objects)
    out, problems = BytesIO(), list[str]()
    write_documents(store, list_session(store, session), out, problems)
    lines = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert all(line.keys() == {"source", "name", "node_id", "body"} for line in lines)
    return lines, problems


@target("documents", lambda: [*_polled(), *ledgers()], tokens=(b"\xff", b"\r\n", b"\\ud800", b"[" * 2000), examples=100)
def documents(data: bytes) -> None:
    """A snapshot, a ledger and each event line of a log become one line of JSON with the same value, or a problem."""
    prefix = layout.session_prefix("", CLUSTER, SESSION)
    lines, problems = _documents(
        [
            (layout.endpoint_key(prefix, "/api/jobs/"), data),
            (layout.ledger_key("", CLUSTER, SESSION, NODE), data),
            (layout.log_key(prefix, NODE, "events/event_GCS.log"), data),
        ]
    )
    for source in ("endpoint", "ledger"):
        bodies = [line["body"] for line in lines if line["source"] == source]
        assert bodies or problems or data.strip() == b"null"
        assert not bodies or (source == "ledger" and problems) or bodies == [msgspec.json.decode(data)]
    events = [line["body"] for line in lines if line["source"] == "log_event"]
    fields = len(msgspec.structs.fields(ledger.Ledger))
    assert len(events) + len(problems) <= data.count(b"\n") + 3 + fields
    assert all(isinstance(event, dict) for event in events)


def _logs() -> list[bytes]:
    heads = [body[:2000] for (_, name), body in captured().logs.items() if name in ("gcs_server.out", "raylet.out")]
    ends = [body[-2000:] for (_, name), body in captured().logs.items() if name in ("gcs_server.out", "raylet.out")]
    # The lines about a node, which is that of the listing.
    node = rb"(?s)\n([^\n]*: Raylet of id, )[0-9a-f]{56}(.{2500})"
    raylets = [body for (_, name), body in captured().logs.items() if name == "raylet.out"]
    nodes = [found[1] + NODE.encode() + found[2] for body in raylets if (found := re.search(node, body))]
    return heads + nodes + ends


@target(
    "log_facts",
    _logs,
    tokens=(b"ray_version: ", b"cluster_id=", b"received SIGTERM", b"Marking job as finished. job_id=", b"\r", b"\x85"),
    examples=60,
)
def log_facts(data: bytes) -> None:
    """Facts and ends are short texts that stand in the log."""
    prefix = layout.session_prefix("", CLUSTER, SESSION)
    logs = [(layout.log_key(prefix, NODE, name), data) for name in ("gcs_server.out", "raylet.out", "monitor.log")]
    lines, problems = _documents(logs)
    assert not problems
    for line in lines:
        if line["source"] == "log_head":
            for name, value in line["body"].items():
                assert name == "os" or value.encode() in data
        elif line["source"] == "log_node":
            assert all(line["body"][name].encode() in data for name in ("started", "node_ip", "hostname"))
            assert all(amount >= 0 for amount in line["body"].get("resources_total", {}).values())
        elif line["source"] == "log_end":
            assert len(line["body"]["shutdown"]) <= 300
            assert all(job["job_id"].encode() in data for job in line["body"]["finished_jobs"])


@target("log_names", lambda: [f"worker-{NODE}-01000000-77.out".encode(), f"python-core-driver-{NODE}_77.log".encode()])
def log_names(data: bytes) -> None:
    """A process in the name of a log has an id and a number."""
    found = process_of(data.decode(errors="replace"))
    if found is not None:
        assert len(found["worker_id"]) == 56
        assert 0 <= found["pid"] < 10**10
