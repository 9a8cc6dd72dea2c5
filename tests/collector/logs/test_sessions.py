"""The logs of the current session, of ended ones, and of successive nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.catalog import Session
from ray_history.archive.errors import Unreachable
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.memory import MemorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.logs import SessionLogs
from ray_history.collector.logs import sessions as module
from ray_history.collector.node.identity import RayNode
from ray_history.collector.settings import resolve

from .log_archive import CLUSTER

OLD = "session_2026-01-10_19-38-40_146706_1"
NEW = "session_2026-01-11_19-38-40_146706_1"
NEWEST = "session_2026-01-12_19-38-40_146706_1"
FIRST, SECOND = "a" * 56, "b" * 56


class Machine:
    """Ray's directory on one machine, and the collector's part for its logs."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "ray"
        self.data = folder / "data"
        self.data.mkdir()
        self.store: Store = open_store(MemorySettings(str(folder)))
        flags = {"cluster": "demo", "ray_tmp_root": str(self.root), "event_data_dir": str(self.data)}
        self.settings = resolve(flags, {})
        self.start_session(OLD, FIRST)
        self.start()

    def start(self) -> None:
        """The collector starts (again)."""
        if hasattr(self, "logs"):
            self.logs.close()
        self.ledgers = LedgerBook(self.data / "ledger.json")
        node = RayNode(self.root, head=False)
        self.logs = SessionLogs(Destination(self.store, CLUSTER), node, self.ledgers, self.settings)

    def start_session(self, session: str, node: str) -> None:
        (self.root / session / "logs").mkdir(parents=True)
        link = self.root / "session_latest"
        link.unlink(missing_ok=True)
        link.symlink_to(session)
        self.start_raylet(session, node)

    def start_raylet(self, session: str, node: str) -> None:
        self.node_file(session, node).write_text("1")

    def node_file(self, session: str, node: str) -> Path:
        return self.root / session / f"metrics_export_port_{node}"

    def write(self, session: str, name: str, data: str) -> None:
        with (self.root / session / "logs" / name).open("a") as file:
            file.write(data)

    def ship(self) -> None:
        """Upload what was written so far, without waiting for the interval."""
        self.logs._due = 0.0
        self.logs.tick()

    def whole(self, session: str) -> dict[tuple[str, str], bytes]:
        files = list_session(self.store, Session(CLUSTER, session, 0))
        return {(node, name): self.store.get(info.key) for node, name, info in files.whole_logs}

    def read(self, session: str) -> dict[tuple[str, str], bytes]:
        logs = list_session(self.store, Session(CLUSTER, session, 0)).logs(self.store)
        found = [file for node in logs.nodes() for file in logs.list(node)]
        return {(file.node, file.name): b"".join(logs.open(file).stream()) for file in found}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.logs.close()


def test_new_lines_of_the_current_session_are_uploaded_and_counted(machine: Machine) -> None:
    machine.write(OLD, "worker-1.out", "a line\n")
    machine.ship()
    assert machine.read(OLD) == {(FIRST, "worker-1.out"): b"a line\n"}
    counts = machine.ledgers.session(OLD).logs
    assert (counts.files, counts.bytes_seen, counts.bytes_stored) == (1, 7, 7)


def test_empty_directories_are_in_the_ledger_while_they_are_empty(machine: Machine) -> None:
    profiles = machine.root / OLD / "logs" / "profiles"
    profiles.mkdir()
    machine.ship()
    assert machine.ledgers.session(OLD).logs.empty_directories == ["profiles/"]
    (profiles / "one.svg").write_text("x")
    machine.ship()
    assert machine.ledgers.session(OLD).logs.empty_directories == []


def test_at_exit_all_files_become_whole_objects(machine: Machine) -> None:
    machine.write(OLD, "worker-1.out", "a line\n")
    assert machine.logs.finish(time.monotonic() + 30)
    assert machine.whole(OLD) == {(FIRST, "worker-1.out"): b"a line\n"}
    assert machine.ledgers.session(OLD).logs.left == 0


def test_an_ended_session_is_finished_in_the_background(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write(OLD, "worker-1.out", "old\n")
    machine.logs.tick()
    machine.start_session(NEW, SECOND)
    machine.write(NEW, "worker-1.out", "new\n")
    machine.logs.tick()
    assert machine.whole(OLD) == {}, "its processes may still write"
    monkeypatch.setattr(module, "_QUIET", -1.0)
    machine.logs.tick()
    thread = machine.logs._finishing
    assert thread is not None
    thread.join()
    assert machine.whole(OLD) == {(FIRST, "worker-1.out"): b"old\n"}
    assert machine.read(NEW) == {(SECOND, "worker-1.out"): b"new\n"}
    assert machine.ledgers.session(OLD).ended == "graceful"
    machine.start()
    machine.logs.tick()
    assert machine.logs._finishing is None, "a finished session is remembered across restarts"


def test_an_ended_session_that_cannot_be_finished_does_not_keep_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUIET", -1.0)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    put = machine.store.put_stream

    def refused(key: str, source: Any) -> int:
        if f"/{OLD}/" in key:
            raise Unreachable("the store refuses this session")
        return put(key, source)

    monkeypatch.setattr(machine.store, "put_stream", refused)
    machine.write(OLD, "worker-1.out", "old\n")
    machine.start_session(NEW, SECOND)
    machine.write(NEW, "worker-1.out", "new\n")
    machine.start_session(NEWEST, SECOND)
    for _ in range(2):
        machine.logs.tick()
        assert machine.logs._finishing is not None
        machine.logs._finishing.join()
    assert machine.whole(NEW) == {(SECOND, "worker-1.out"): b"new\n"}
    assert machine.ledgers.session(OLD).ended is None


def test_a_new_session_does_not_wait_for_whole_files_of_the_one_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write(OLD, "worker-1.out", "old\n")
    machine.ship()
    with (machine.root / OLD / "logs" / "worker-1.out").open("r+b") as file:
        file.truncate(100 << 30)
    (machine.root / OLD / "logs" / "worker-1.out").rename(machine.root / OLD / "logs" / "worker-1.out.1")
    put = machine.store.put_stream

    def begun(key: str, source: Any) -> int:
        machine.start_session(NEW, SECOND)
        return put(key, source)

    monkeypatch.setattr(machine.store, "put_stream", begun)
    machine.ship()  # returns, long before it has uploaded 100 GB
    machine.write(NEW, "worker-1.out", "new\n")
    machine.ship()
    assert machine.read(NEW) == {(SECOND, "worker-1.out"): b"new\n"}


def test_what_is_not_stored_at_exit_is_named_in_the_ledger(machine: Machine) -> None:
    machine.write(OLD, "worker-1.out", "a line\n")
    machine.ship()
    machine.write(OLD, "worker-1.out", "last\n")
    with (machine.root / OLD / "logs" / "huge.log").open("wb") as file:
        file.truncate(100 << 30)
    machine.logs.stop()
    machine.ship()
    assert machine.read(OLD)[FIRST, "worker-1.out"] == b"a line\n", "a stopped loop uploads nothing more"
    machine.logs.ship_last_lines(time.monotonic() + 30, backlog=False)
    assert machine.read(OLD)[FIRST, "worker-1.out"] == b"a line\nlast\n"
    assert not machine.logs.finish(time.monotonic())
    machine.logs.count_unsent()
    logs = machine.ledgers.session(OLD).logs
    assert (logs.unsent, logs.bytes_unsent, logs.left) == ({"huge.log": 100 << 30}, 100 << 30, 2)


def test_the_status_shows_how_far_a_huge_file_is(machine: Machine) -> None:
    with (machine.root / OLD / "logs" / "huge.log").open("wb") as file:
        file.truncate(100 << 30)
    machine.ship()
    logs = machine.ledgers.session(OLD).logs
    assert (logs.files, logs.bytes_seen) == (1, 100 << 30)
    assert 0 < logs.bytes_stored < 1 << 30


def test_another_collector_of_the_same_node_waits_until_the_first_one_ends(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine.write(OLD, "worker-1.out", "one\n")
    machine.ship()
    other = SessionLogs(
        Destination(machine.store, CLUSTER),
        RayNode(machine.root, head=False),
        LedgerBook(tmp_path / "ledger.json"),
        resolve({"cluster": "demo", "ray_tmp_root": str(machine.root), "event_data_dir": str(tmp_path / "other")}, {}),
    )
    machine.write(OLD, "worker-1.out", "two\n")
    other.tick()
    other.tick()
    assert machine.read(OLD) == {(FIRST, "worker-1.out"): b"one\n"}
    assert [each for each in caplog.messages if "another collector uploads" in each] == caplog.messages
    assert len(caplog.messages) == 1
    machine.logs.close()
    other.tick()
    assert machine.read(OLD) == {(FIRST, "worker-1.out"): b"one\ntwo\n"}
    other.close()


@pytest.mark.parametrize("restart", [False, True])
def test_a_restarted_raylet_is_another_node_with_files_of_its_own(machine: Machine, restart: bool) -> None:
    machine.write(OLD, "worker-1.out", "first\n")
    machine.ship()
    os.utime(machine.node_file(OLD, FIRST), (1e9, 1e9))
    machine.start_raylet(OLD, SECOND)
    machine.logs.tick()
    if restart:
        machine.start()
    machine.write(OLD, "worker-1.out", "late\n")
    machine.write(OLD, "worker-2.out", "second\n")
    machine.ship()
    assert machine.read(OLD) == {(FIRST, "worker-1.out"): b"first\nlate\n", (SECOND, "worker-2.out"): b"second\n"}
