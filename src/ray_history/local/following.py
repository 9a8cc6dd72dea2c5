"""A collector that follows the sessions of a command."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from ray_history.archive.ledger import Command
from ray_history.archive.settings import StorageOptions
from ray_history.archive.stores import open_store
from ray_history.collector.collector import Collector
from ray_history.collector.final_uploads import Ending
from ray_history.collector.polling.dashboard_client import ray_token
from ray_history.collector.process import serve
from ray_history.collector.settings import resolve

from .messages import Ended, Order, Started
from .processes import Sessions
from .sessions import WatchedDashboard, WatchedNode, is_recorded

_QUIET = 0.1
"""Seconds without a batch after which nothing more comes from processes that are known to be dead."""


class Following:
    """The collector of a recorder."""

    def __init__(self, order: Order, watch: Sessions, listener: socket.socket) -> None:
        self._watch = watch
        self._listener = listener
        self._command: Command | None = None
        self._noted: set[str] = set()
        flags = {
            "role": "Head",
            "namespace": order.namespace,
            "cluster": order.cluster,
            "ray_tmp_root": order.home,
            "event_data_dir": str(Path(order.home) / "data"),
            "push_interval": "2s",
            "shutdown_grace": "15s",
        }
        node = WatchedNode(watch, Path(order.home))
        self._collector = Collector(
            resolve(flags, {}),  # without the variables of a collector that the user runs elsewhere
            open_store(StorageOptions(**order.storage).resolve(os.environ)),
            WatchedDashboard(node, lambda: ray_token(os.environ)),
            lambda: None,
            node,
        )

    def start(self) -> None:
        serve(self._collector.ingest, self._listener)
        self._collector.start()

    def wait_until_listed(self, seconds: float) -> None:
        """Wait until the archive lists the session: what follows then finds the store reached and the node known."""
        deadline = time.monotonic() + seconds
        while not self._collector.has_marker and time.monotonic() < deadline:
            time.sleep(0.05)

    def note_command(self, started: Started | None) -> None:
        """Note the command in the ledgers of its sessions."""
        if started is None:
            return
        if self._command is None:
            self._command = Command(started.arguments, started.directory, started.pid, started.started)
        for name in self._recorded():
            if name not in self._noted:
                self._noted.add(name)
                self._collector.note_command(name, self._command)

    def note_end(self, ended: Ended | None, *, is_over: bool) -> None:
        """Note the end of the command in the ledger of its last session, unless that outlives it."""
        recorded = self._recorded()
        if ended is None or self._command is None or not recorded or not is_over:
            return
        command = Command(
            self._command.arguments,
            self._command.directory,
            self._command.pid,
            self._command.started,
            ended.ended,
            ended.exit_code,
            ended.signal,
            ended.stopped_by,
        )
        self._collector.note_command(recorded[-1], command)

    def finish(self) -> bool:
        """Store the rest; True if nothing is left."""
        self._collector.finish_earlier_sessions()
        recorded = self._recorded()
        is_left_running = bool(recorded) and self._watch.sessions[recorded[-1]].is_running
        return self._collector.finish(Ending(_QUIET, is_left_running=is_left_running))

    def events_of(self, session: str) -> int:
        """How many events of a session arrived."""
        return self._collector.events_of(session)

    def _recorded(self) -> list[str]:
        return [name for name, found in list(self._watch.sessions.items()) if is_recorded(found)]
