"""An agent that is too slow for Ray's GCS, as on a head with little CPU time: it is stopped while it starts."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.processes import ProcessFailed
from tests.support.ray_cluster import RayCluster

GIVEN_UP = b"Failed to establish connection to the event+metrics exporter agent"
LIMIT = 180.0
PORT_FILES_SINCE = (2, 54)
"""Since this version the GCS asks for the agent only after the agent has written its last port file."""


class SlowAgent(threading.Thread):
    """Within this context the head starts; its agent continues when the GCS has given up, after 30 s."""

    def __init__(self, cluster: RayCluster, version: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._waits_for_port = version >= PORT_FILES_SINCE
        self._given_up = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.join(LIMIT)
        if error is None and not self._given_up:
            raise ProcessFailed("Ray's GCS reached the agent before it was stopped: try again")

    def run(self) -> None:
        deadline = time.monotonic() + LIMIT
        while not (agents := self._agents()) and time.monotonic() < deadline:
            time.sleep(0.02)
        while self._waits_for_port and not self._has_port() and time.monotonic() < deadline:
            time.sleep(0.001)  # the raylet looks for the file every few milliseconds
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        until = min(deadline, time.monotonic() + 90)
        while not (given_up := self._has_given_up()) and time.monotonic() < until:
            time.sleep(0.5)
        self._given_up = given_up
        for pid in agents:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _agents(self) -> list[int]:
        # A raylet has the command of its agent as an argument; an agent soon changes its own.
        return [pid for pid in self._cluster.pids() if _is_agent(_words(pid))]

    def _has_port(self) -> bool:
        return any(self._session().glob("dashboard_agent_listen_port_*"))

    def _has_given_up(self) -> bool:
        files = [self._session() / "logs" / name for name in ("gcs_server.out", "gcs_server.err")]
        return any(GIVEN_UP in file.read_bytes() for file in files if file.exists())

    def _session(self) -> Path:
        return self._cluster.root / "session_latest"


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _is_agent(words: list[bytes]) -> bool:
    return any(word == b"ray::DashboardAgent" or word.endswith(b"/dashboard/agent.py") for word in words)
