"""What a collector reads on its node: Ray's answers and files, and its own files after a crash."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import msgspec

from ray_history.archive.ledger import Ledger
from ray_history.collector.ingest.spool import Spool
from ray_history.collector.ingest.spool import segment as segments
from ray_history.collector.ledger import LedgerBook, SavedLedgers
from ray_history.collector.logs.state import LogState
from ray_history.collector.node.identity import RayNode
from ray_history.collector.polling import answers
from ray_history.collector.polling.agent_metrics import AgentMetrics, dropped_events
from ray_history.decoding import DECODING_ERRORS
from tests.fuzz.target import target
from tests.fuzz.targets.objects import NODE, SESSION
from tests.support.captured import captured


@cache
def _folder() -> Path:
    """One directory for all inputs: each writes the same files again."""
    return Path(tempfile.mkdtemp(prefix="ray-history-fuzz-"))


def _polled() -> list[bytes]:
    small = [body for body in captured().polled.values() if len(body) < 4000]
    return [*small[:20], b'{"result":false,"data":{}}']


@target(
    "polled_answers", _polled, tokens=(b'"data":{"result":{"result":[', b'"result":false', b'"ALIVE"', b"\xff", b"null")
)
def polled_answers(data: bytes) -> None:
    """An answer has content, has none, or is not one of Ray's; ids of nodes are safe in addresses."""
    for path in ((), answers.ROWS, ("data",)):
        assert answers.has_content(data, path) in (True, False, None)
    for read in (answers.job_rows, answers.alive_nodes, answers.is_partial):
        try:
            found = read(data)
        except DECODING_ERRORS:
            continue
        if read is answers.alive_nodes:
            assert all(node.isalnum() for node in found)


_METRICS = (
    b'ray_aggregator_agent_events_received_total{NodeAddress="10.0.0.1"} 7.0\n',
    b'ray_aggregator_agent_queue_dropped_events{event_type="A",consumer="http_service"} 3\n',
    b"ray_event_aggregator_agent_events_published 1e3 1700000000\n# HELP x\nray_other 1\n",
)


@target(
    "agent_metrics",
    lambda: _METRICS,
    tokens=(b"ray_aggregator_agent_", b'{a="', b'\\"', b"} ", b"NaN", b"+Inf", b"1e308", b"\\"),
)
def agent_metrics(data: bytes) -> None:
    """Counters are integers or absent, whatever stands on the page."""
    found = dropped_events(data.decode(errors="replace"))
    assert isinstance(found, AgentMetrics)
    assert found.lost is None or isinstance(found.lost, int)


def _spools() -> list[bytes]:
    return [segments.header(1) + b"".join(segments.frames([b"[]", b'[{"a":1}]'])), segments.header(2)]


@target("spool", _spools, tokens=(b"RAYSPOL\x01", b"\0" * 16), examples=100)
def spool(data: bytes) -> None:
    """After any damage the spool opens, returns only bodies that stand in its file, and accepts new ones."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{7:020}.spool").write_bytes(data)
        opened = Spool(Path(folder))
        try:
            for segment in opened.sealed():
                for body in opened.read(segment):
                    assert body in data
            opened.append([b"new"])
            opened.seal()
            assert [*opened.read(opened.sealed()[-1])] == [b"new"]
        finally:
            opened.close()


def _saved() -> list[bytes]:
    saved = SavedLedgers(7, 1, {SESSION: Ledger(node=NODE)}, {SESSION: {NODE: Ledger()}})
    state = {"session": SESSION, "node": NODE, "next_sequence": 7, "next_generation": 9, "files": []}
    stream = {"path": "a.log", "generation": 1, "sent": 5}
    file = {"device": 1, "inode": 2, "name": "a.log", "born": "a.log", "size": 9, "streams": [stream]}
    return [msgspec.json.encode(saved), msgspec.json.encode(state), msgspec.json.encode({**state, "files": [file]})]


@target(
    "collector_files", _saved, tokens=(b'"files":[', b'"streams":[]', b"\xff", b"-1", b'"next_sequence":'), examples=100
)
def collector_files(data: bytes) -> None:
    """A ledger file or state file that cannot be decoded is set aside or ignored; the collector writes a new one."""
    file = _folder() / "ledger.json"
    file.write_bytes(data)
    book = LedgerBook(file)
    book.session(SESSION).events.received += 1
    book.save()
    assert LedgerBook(file).session(SESSION) == book.session(SESSION)
    for aside in _folder().glob("ledger.damaged-*"):
        aside.unlink()
    file.write_bytes(data)
    state = LogState(file, SESSION, NODE)
    assert state.lost or state.next_sequence >= 0
    state.streams()
    state.save()


def _node_files() -> list[bytes]:
    logs = [body[:1500] for (_, name), body in captured().logs.items() if name == "raylet.out"][:2]
    return [*logs, b'{"127.0.0.1": {"metrics_export_port": 7, "gcs_server_port": 8}}', b"8080\n", b"-1", NODE.encode()]


@target("node_files", _node_files, tokens=(b"node_id=", NODE.encode(), b"\xff", b"_", "٣".encode()), examples=100)
def node_files(data: bytes) -> None:
    """The id of a node is hexadecimal or unknown; a port is a positive number or unknown."""
    session = _folder() / SESSION
    (session / "logs").mkdir(parents=True, exist_ok=True)
    for name in ("ports_by_node.json", f"metrics_export_port_{NODE}", "logs/raylet.out", "../raylet_node_id"):
        (session / name).write_bytes(data)
    for known in (f"metrics_export_port_{NODE}", "logs/raylet.out", "none"):
        node = RayNode(_folder(), head=True, session_dir=session)
        found = node.current()
        assert found is not None
        node_id = node.node_id(found)
        assert node_id is None or not node_id.strip("0123456789abcdef")
        port = node.metrics_port(found, NODE)
        assert port is None or port > 0
        (session / known).unlink(missing_ok=True)
