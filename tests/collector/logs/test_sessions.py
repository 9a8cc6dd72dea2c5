"""The logs of the current session, of ended ones, and of successive nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ray_history.archive.catalog import Session
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

    def whole(self, session: str) -> dict[tuple[str, str], bytes]:
        files = list_session(self.store, Session(CLUSTER, session, 0))
        return {(node, name): self.store.get(info.key) for node, name, info in files.whole_logs}

    def read(self, session: str) -> dict[tuple[str, str], bytes]:
        logs = list_session(self.store, Session(CLUSTER, session, 0)).logs(self.store)
        found = [file for node in logs.nodes() for file in logs.list(node)]
        return {(file.node, file.name): b"".join(logs.open(file).stream()) for file in found}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_new_lines_of_the_current_session_are_uploaded_and_counted(machine: Machine) -> None:
    machine.write(OLD, "worker-1.out", "a line\n")
    machine.logs.ship_now()
    assert machine.read(OLD) == {(FIRST, "worker-1.out"): b"a line\n"}
    counts = machine.ledgers.session(OLD).logs
    assert (counts.files, counts.bytes_seen, counts.bytes_stored) == (1, 7, 7)


def test_empty_directories_are_in_the_ledger_while_they_are_empty(machine: Machine) -> None:
    profiles = machine.root / OLD / "logs" / "profiles"
    profiles.mkdir()
    machine.logs.ship_now()
    assert machine.ledgers.session(OLD).logs.empty_directories == ["profiles/"]
    (profiles / "one.svg").write_text("x")
    machine.logs.ship_now()
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


@pytest.mark.parametrize("restart", [False, True])
def test_a_restarted_raylet_is_another_node_with_files_of_its_own(machine: Machine, restart: bool) -> None:
    machine.write(OLD, "worker-1.out", "first\n")
    machine.logs.ship_now()
    os.utime(machine.node_file(OLD, FIRST), (1e9, 1e9))
    machine.start_raylet(OLD, SECOND)
    machine.logs.tick()
    if restart:
        machine.start()
    machine.write(OLD, "worker-1.out", "late\n")
    machine.write(OLD, "worker-2.out", "second\n")
    machine.logs.ship_now()
    assert machine.read(OLD) == {(FIRST, "worker-1.out"): b"first\nlate\n", (SECOND, "worker-2.out"): b"second\n"}
