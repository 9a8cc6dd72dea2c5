"""Brings the directory of a session that no collector recorded into an archive: its log files.

What these tell is known: versions, nodes, workers, cluster events, submitted jobs, how the head ended. Tasks, and most
jobs and actors, are not read from log files, so the session says that no events were recorded.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ray_history import __version__
from ray_history.archive import ledger as ledger_object
from ray_history.archive.errors import NotFound
from ray_history.archive.layout import Cluster
from ray_history.archive.ledger import Ledger, LogCounts
from ray_history.archive.stores import Store
from ray_history.archive.stores.interface import read_small
from ray_history.collector.destination import Destination
from ray_history.collector.logs.shipper import FOREVER, LogShipper
from ray_history.collector.node.identity import RayNode

from .processes import running_sessions

_HEAD_FILE = "gcs_server.out"


class CannotImport(Exception):
    """The directory is not imported; the message says why."""


@dataclass(frozen=True)
class Imported:
    """The session directory of one node, in the archive."""

    session: str
    node: str
    is_head: bool
    files: int
    bytes: int
    is_new: bool = True
    """False if the archive had it before."""


def import_directory(store: Store, cluster: Cluster, directory: Path) -> Imported:
    """Store the log files of one node."""
    directory = directory.resolve()
    if not (directory / "logs").is_dir():
        raise CannotImport(f"{directory} is not the directory of a session: it has no logs")
    if any(found.directory == directory for found in running_sessions()):
        raise CannotImport(f"{directory} is in use by a running Ray: record it with `ray-history attach`")
    is_head = (directory / "logs" / _HEAD_FILE).exists()
    node = RayNode(directory.parent, head=is_head, session_dir=directory)
    session = node.current()
    node_id = node.node_id(session) if session else None
    if session is None:
        raise CannotImport(f"{directory} is not named like a session: session_YYYY-MM-DD_HH-MM-SS_ffffff_PID")
    if node_id is None:
        raise CannotImport(f"{directory}: no file in it has the id of its node, such as logs/raylet.out")
    destination = Destination(store, cluster)
    key = destination.ledger(session.name, node_id)
    if before := _ledger(store, key):
        if not before.imported:
            raise CannotImport(f"{session.name} was recorded as node {node_id[:8]}… of {cluster.path} already")
        return Imported(session.name, node_id, is_head, before.logs.files, before.logs.bytes_stored, is_new=False)
    newest = max((path.stat().st_mtime for path in session.logs.rglob("*") if path.is_file()), default=0.0)
    logs = _store_logs(destination, session.name, node_id, session.logs)
    ledger = Ledger(
        node=node_id,
        role="head" if is_head else "worker",
        started=newest,
        written=time.time(),
        alive_until=newest,
        ended="graceful",
        collector=__version__,
        logs=logs,
        imported=time.time(),
    )
    store.put(destination.marker(session.name), b"")
    store.put(key, ledger_object.encode(ledger))  # last: with it the import is complete
    return Imported(session.name, node_id, is_head, logs.files, logs.bytes_stored)


def _store_logs(destination: Destination, session: str, node: str, logs: Path) -> LogCounts:
    with tempfile.TemporaryDirectory(prefix="ray-history-") as work:
        shipper = LogShipper(destination, session, node, logs, Path(work) / "state.json")
        try:
            result = shipper.finish(FOREVER, final=False)
            counted, problems = shipper.counters, list(shipper.problems)[-20:]
        finally:
            shipper.close()
    if not result.complete:
        raise CannotImport("; ".join(result.failures) or f"{result.files_left} files could not be stored")
    return LogCounts(
        files=counted.files_seen,
        bytes_seen=counted.bytes_written,
        bytes_stored=counted.bytes_stored,
        bytes_uploaded=counted.bytes_uploaded,
        problems=problems,
    )


def _ledger(store: Store, key: str) -> Ledger | None:
    try:
        return ledger_object.decode(read_small(store, key, ledger_object.MAX_SIZE))
    except NotFound:
        return None
