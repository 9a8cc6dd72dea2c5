"""A collector in its own process, and a stand-in for the Ray agent that posts events to it."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from tests.support.processes import Process, free_port, port_is_open
from tests.support.waiting import until

COMMAND = str(Path(sys.executable).with_name("ray-history"))
SESSION = "session_2026-11-15_20-00-55_739110_9771"
NODE64 = "OuG+50xYa19aEjQYEeHpEj0CKvY965tCrJeFTA=="


class CollectorProcess:
    """`ray-history collect` with its own port and volume, which can be killed and restarted."""

    def __init__(self, folder: Path, storage: str, *flags: str, env: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "AWS_", "S3"))}
        self.process = Process(
            [
                COMMAND,
                "--log-level=debug",
                "collect",
                f"--storage={storage}",
                "--cluster=oracle",
                f"--events-port={self.port}",
                f"--event-data-dir={folder / 'data'}",
                "--push-interval=500ms",
                *flags,
            ],
            log=folder / "collector.log",
            ready=lambda: port_is_open(self.port),
            env={**clean, **(env or {})},
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill9()

    def start(self) -> None:
        self.process.start()

    def kill9(self) -> None:
        self.process.kill9()

    def lose_pod(self) -> float:
        """Kill the process and delete its volume; returns the moment of the kill, monotonic."""
        died = time.monotonic()
        self.process.kill9()
        rmtree(self.folder / "data")
        return died

    def end(self) -> None:
        """Send SIGTERM, and wait until it has ended by itself."""
        os.kill(self.process.pid, signal.SIGTERM)
        try:
            until(lambda: not self.process.running, f"the collector ends: {self.process.log_tail(20)}")
        finally:
            self.process.kill9()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if path == "/v1/status" else body.decode()

    def log(self) -> str:
        return (self.folder / "collector.log").read_text(errors="replace")


def event(identity: str, session: str = SESSION, job: str = "AQAAAA==") -> dict[str, Any]:
    return {
        "eventId": identity,
        "sourceType": "CORE_WORKER",
        "eventType": "TASK_LIFECYCLE_EVENT",
        "timestamp": "2026-11-15T20:01:02.231054422Z",
        "severity": "INFO",
        "sessionName": session,
        "taskLifecycleEvent": {"jobId": job, "taskId": identity, "padding": "x" * 300},
        "nodeId": NODE64,
        "message": "",
    }


class AgentStandIn(threading.Thread):
    """Posts one batch at a time and retries it until it is acknowledged, as Ray's aggregator agent does."""

    def __init__(self, port: int, *, seed: int = 0, pause: float = 0.002, largest: int = 40) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._random = random.Random(seed)
        self._pause = pause
        self._largest = largest
        self._ending = threading.Event()
        self.sent: set[str] = set()
        self.acknowledged: set[str] = set()
        self.acknowledged_at: dict[str, float] = {}
        """Monotonic."""
        self.retries = 0
        self.statuses: dict[int, int] = {}

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            batch = []
            for _ in range(self._random.randint(1, self._largest)):
                number += 1
                batch.append(event(f"id-{number}", job=self._random.choice(["AQAAAA==", "AgAAAA=="])))
            identities = {entry["eventId"] for entry in batch}
            self.sent |= identities
            body = json.dumps(batch).encode()
            while not self._post(body):
                self.retries += 1
                if self._ending.wait(0.05):
                    return
            self.acknowledged |= identities
            self.acknowledged_at |= dict.fromkeys(identities, time.monotonic())
            self._ending.wait(self._pause)

    def _post(self, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3)
        try:
            connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
            status = connection.getresponse().status
            self.statuses[status] = self.statuses.get(status, 0) + 1
            return status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        self._ending.set()
        self.join(10)


def run_cli(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env}
    return subprocess.run([COMMAND, *arguments], env=clean, capture_output=True, text=True, timeout=60, check=False)
