"""The archive that both servers read: sessions in every state and layout, some of them damaged."""

from __future__ import annotations

import copy
import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.generated import generate
from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.log_tails import BundleWriter
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.support.captured import captured, write_archive, write_every_generation

MANY_TASKS = 25_000  # more than the server sends in one piece
FEW_TASKS = 500
HOUR = 3600.0
GENERATED = "session_2026-01-01_00-00-00_000001_1"
STORED = 1_767_250_000
"""Modification time of all files: the server does not cache answers about a session whose files are recent."""


@dataclass(frozen=True)
class Target:
    """A session of the archive, and how thoroughly its routes are compared."""

    cluster: Cluster
    session: str
    thorough: bool = False

    @property
    def path(self) -> str:
        return f"/s/{self.cluster.namespace}/{self.cluster.name}/{self.session}"

    def briefly(self) -> Target:
        return replace(self, thorough=False)


def write(folder: Path) -> list[Target]:
    """Write the archive into an empty folder."""
    store = open_store(DirectorySettings(folder))
    name = captured().session
    targets = [Target(cluster, name) for cluster in write_every_generation(store).values()]
    for state, ledgers in _ledgers().items():
        cluster = Cluster("states", state)
        write_archive(store, Generation.C, cluster)
        for node, ledger in ledgers.items():
            _put_ledger(store, cluster, name, node, ledger)
        targets.append(Target(cluster, name, thorough=state == "ended"))
    _add_log_tails(store, folder, Cluster("states", "running"), name)
    _damage(folder, Cluster("states", "damaged"))
    _leave_only_polled(folder, Cluster("states", "polled"))
    empty = Cluster("states", "empty")
    store.put(layout.marker_key("", empty, name), b"")
    targets.append(Target(empty, name))
    targets += [_generated(folder, "few", FEW_TASKS), _generated(folder, "many", MANY_TASKS, thorough=True)]
    for file in folder.rglob("*"):
        os.utime(file, (STORED, STORED))
    return targets


def _ledgers() -> dict[str, dict[str, dict[str, Any]]]:
    """By state, the ledgers of the nodes of the captured session: the head comes first."""
    nodes = captured().events
    head, worker = nodes
    last = max(json.loads(line)["timestamp"] for events in nodes.values() for line in events)
    end = datetime.fromisoformat(last).timestamp()
    later = time.time() + 100 * HOUR
    graceful = {node: _ledger(node, len(events), end, ended="graceful") for node, events in nodes.items()}
    lost = {node: _ledger(node, len(events), end) for node, events in nodes.items()}
    running = {node: _ledger(node, len(events), end, alive_until=later) for node, events in nodes.items()}
    lossy = json.loads(json.dumps(graceful))
    lossy[head]["events"] |= {"dropped_by_ray": 17, "quarantined": 3, "duplicated": 5}
    lossy[worker]["logs"] |= {"bytes_lost": 4096, "left": 2, "problems": ["worker.out: No space left on device"]}
    return {
        "ended": graceful,
        "lost": lost,
        "running": running,
        "half-ended": {head: graceful[head], worker: running[worker]},
        "half-lost": {head: lost[head], worker: graceful[worker]},
        "one-ledger": {worker: graceful[worker]},
        "lossy": lossy,
        "damaged": graceful,
        "polled": {},
    }


def _ledger(
    node: str, events: int, end: float, *, ended: str | None = None, alive_until: float | None = None
) -> dict[str, Any]:
    return {
        "node": node,
        "role": "head" if node == next(iter(captured().events)) else "worker",
        "hostname": f"host-{node[:4]}",
        "started": end - HOUR,
        "written": end,
        "alive_until": alive_until or end + 60,
        "ended": ended,
        "collector": "0.1.0",
        "events": {
            "received": events,
            "stored": events,
            "bytes_stored": 1000 * events,
            "dropped_by_ray": 0,
            "last_event": datetime.fromtimestamp(end).astimezone().isoformat(),
        },
        "logs": {"files": 10, "bytes_seen": 10_000, "bytes_stored": 10_000, "bytes_uploaded": 11_000},
    }


def _put_ledger(store: Store, cluster: Cluster, session: str, node: str, ledger: dict[str, Any]) -> None:
    store.put(f"history-ledger/{cluster.path}/{session}/{node}.json", json.dumps(ledger).encode())


def _session_folder(folder: Path, cluster: Cluster) -> Path:
    return folder / layout.session_prefix("", cluster, captured().session)


def _add_log_tails(store: Store, folder: Path, cluster: Cluster, session: str) -> None:
    """One file that has tails only, and one of which the last bytes are in a tail."""
    (node, name), body = max(captured().logs.items(), key=lambda item: len(item[1]))
    bundle = BundleWriter()
    bundle.add("worker-only-in-tails.out", 1, 0, b"first line\nsecond line with \x1b[31mcolour\x1b[0m\n")
    bundle.add(name, 1, len(body) // 2, body[len(body) // 2 :] + b"a line after the upload\n")
    store.put(f"history-tails/{cluster.path}/{session}/{node}/00000000000000000001", bundle.finish())
    (log,) = (path for path in _session_folder(folder, cluster).rglob(Path(name).name) if node in str(path))
    log.write_bytes(body[: len(body) // 2])


def _damage(folder: Path, cluster: Cluster) -> None:
    """Tear one event file, and put garbage into another."""
    files = sorted(_session_folder(folder, cluster).rglob("*.jsonl.gz"))
    files[0].write_bytes(files[0].read_bytes()[:-100])
    files[1].write_bytes(b"no gzip")


def _leave_only_polled(folder: Path, cluster: Cluster) -> None:
    """As if Ray's events were off; one node ended as planned, one did not."""
    session = _session_folder(folder, cluster)
    for file in session.rglob("*.jsonl.gz"):
        file.unlink()
    answer = copy.deepcopy(captured().truth["v0_nodes"])
    endings = ("Expected termination: received SIGTERM", "health check failed due to missing too many heartbeats")
    for number, (row, message) in enumerate(zip(answer["data"]["result"]["result"], endings, strict=True)):
        row |= {"state": "DEAD", "state_message": message, "end_time_ms": row["start_time_ms"] + 60_000 + number}
    polled = session / "fetched_endpoints" / "restful__api__v0__nodes?detail=1&limit=10000"
    polled.write_text(json.dumps(answer))


def _generated(folder: Path, name: str, tasks: int, *, thorough: bool = False) -> Target:
    cluster = Cluster("generated", name)
    made = Path(".parts/bench/answers") / str(tasks)
    generate(made, tasks=tasks, cluster=cluster, session=GENERATED)
    shutil.copytree(made, folder, copy_function=os.link, dirs_exist_ok=True)
    (folder / "generated.json").unlink()
    return Target(cluster, GENERATED, thorough)
