"""The state file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ray_history.collector.destination import Destination
from ray_history.collector.logs.shipper import LogShipper
from ray_history.collector.logs.state import Counters, LogState, Stream, TrackedFile, WholeObject
from ray_history.collector.saved_file import load

from .log_archive import CLUSTER, NODE, SESSION, Node


def test_a_state_file_that_is_damaged_or_of_another_session_is_not_used(node: Node, tmp_path: Path) -> None:
    node.write("a.log", b"a")
    node.interval()
    node.state_file.write_bytes(node.state_file.read_bytes()[:-5])
    node.crash()
    assert "is damaged" in node.shipper.state_problem
    node.finish()
    other = LogShipper(Destination(node.store, CLUSTER), SESSION, "b" * 56, node.logs, node.state_file)
    assert "is of session" in other.state_problem


def test_the_state_file_keeps_the_field_names_of_released_collectors(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "session": SESSION,
        "node": NODE,
        "next_sequence": 7,
        "next_generation": 9,
        "files": [
            {
                "device": 1,
                "inode": 2,
                "name": "a.log.1",
                "born": "a.log",
                "size": 6,
                "mtime_ns": 5,
                "streams": [{"path": "a.log", "generation": 8, "sent": 6, "extent": 6, "since": 3}],
                "whole": {"name": "a.log", "size": 4, "mtime_ns": 4, "etag": "e"},
                "mark": {"head_size": 4, "head_crc": 1, "edge_end": 6, "edge_crc": 2},
            }
        ],
        "formers": [{"name": "b.log", "mtime_ns": 1, "streams": [{"path": "b.log", "generation": 2}]}],
        "paths": {"a.log": [8, 3]},
        "barriers": [3],
        "remains": {"c.log": 1},
        "leftovers": {"d.log": "e"},
        "counters": msgspec.to_builtins(Counters(files_seen=2, bundles=1)),
    }
    path = tmp_path / "state.json"
    path.write_bytes(msgspec.json.encode(content))
    state = LogState(path, SESSION, NODE)
    (file,) = state.files.values()
    assert (file.first_name, file.fingerprint.edge_end, file.stored, file.is_renamed) == ("a.log", 6, 6, True)
    assert [deleted.name for deleted in state.deleted_files] == ["b.log"]
    path.unlink()
    state.counters.problems = 1
    state.save()
    assert msgspec.json.decode(load(path)) == content | {"counters": content["counters"] | {"problems": 1}}


def test_a_whole_object_makes_bundles_with_its_bytes_superfluous() -> None:
    file = TrackedFile(
        1, 2, "a", "a", streams=[Stream("a", 1, 5, 5, 1), Stream("a", 2, 9, 9, 2), Stream("a", 3, 4, 4, 3)]
    )
    file.covered_by(WholeObject("a", 5, 0))
    assert [(stream.generation, stream.since) for stream in file.streams] == [(2, 2), (3, None)]
    assert (file.stored, file.reach) == (9, 9)
