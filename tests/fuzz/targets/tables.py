"""Events and documents of any content, made into tables and listed."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.history.build.event_lines import EventLines
from ray_history.history.events import in_camel_case
from tests.archive.event_files.samples import lines
from tests.fuzz.target import target
from tests.fuzz.targets.ingest import captured_events
from tests.fuzz.targets.objects import NODE, ledgers
from tests.history.rebuilt import TABLES, rebuild
from tests.support.captured import captured


def _events() -> list[bytes]:
    events = captured_events(40)
    return [lines(events[start : start + 4])[:4096] for start in range(0, len(events), 4)]


@target("event_lines", _events, tokens=(b'"eventType":"', b'"TASK_', b'"event_type": "', b"\n", b"\r"))
def event_lines(data: bytes) -> None:
    """Lines are sorted into files without a change, in any pieces; renaming keeps all values."""
    with tempfile.TemporaryDirectory() as folder:
        sorter = EventLines(Path(folder) / "x")
        with sorter.writing():
            for start in range(0, len(data), 500):
                sorter.add(data[start : start + 500])
        found = Counter(line for file in sorter.files.values() for line in file.read_bytes().split(b"\n"))
        expected = Counter(data.split(b"\n"))
        assert found - Counter({b"": found[b""]}) == expected - Counter({b"": expected[b""]})
    rejected = Counter[str]()
    for line in data.split(b"\n"):
        renamed = in_camel_case(line, rejected)
        if renamed is not None:
            kind, event = renamed
            assert msgspec.json.decode(event)["eventType"] == kind


@target(
    "tables_of_events",
    _events,
    tokens=(b'"9999-12-31T23:59:59Z"', b'"stateTransitions":[]'),
    is_linear=False,
    examples=2,
)
def tables_of_events(data: bytes) -> None:
    """Whatever the events are, the tables are built and listed; no more events are counted than there are lines."""
    with tempfile.TemporaryDirectory() as folder:
        built = rebuild(Path(folder), data.split(b"\n"))
        try:
            assert built.counts.events <= data.count(b"\n") + 1
            for table in TABLES:
                built.rows(table)
        finally:
            built.tables.close()


def _documents() -> list[bytes]:
    polled = [
        msgspec.json.encode({"source": "endpoint", "name": name, "node_id": "", "body": msgspec.json.decode(body)})
        for name, body in captured().polled.items()
        if len(body) < 3000 and body[:1] in b"[{"
    ]
    known = [
        {"source": "ledger", "name": NODE, "node_id": NODE, "body": msgspec.json.decode(ledgers()[0])},
        {
            "source": "log_head",
            "name": "gcs_server.out",
            "node_id": NODE,
            "body": {"ray_version": "2.60.0", "os": "linux"},
        },
        {"source": "log_end", "name": "gcs_server.out", "node_id": NODE, "body": {"shutdown": "x", "last": "y"}},
        {
            "source": "worker_log",
            "name": "w",
            "node_id": NODE,
            "body": {"worker_id": NODE, "worker_type": "WORKER", "pid": 7},
        },
        {"source": "node", "name": NODE, "node_id": NODE, "body": {"event_files": 1, "log_files": 2}},
    ]
    return polled[:1] + [msgspec.json.encode(document) for document in known]


@target("tables_of_documents", _documents, is_linear=False, examples=2)
def tables_of_documents(data: bytes) -> None:
    """Whatever polled snapshots, ledgers and logs say, the tables are built and listed."""
    try:
        document = msgspec.json.decode(data)
    except DECODING_ERRORS:
        return
    if not isinstance(document, dict) or document.keys() != {"source", "name", "node_id", "body"}:
        return
    document |= {name: str(document[name]) for name in ("source", "name", "node_id")}
    with tempfile.TemporaryDirectory() as folder:
        built = rebuild(Path(folder), captured_events(3), [document])
        try:
            for table in TABLES:
                built.rows(table)
        finally:
            built.tables.close()
