"""Two of one thing, and very many of another."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.chaos.events import Agent
from bench.chaos.life import CollectorRun, Life
from bench.chaos.log_files import line
from bench.chaos.machine import PROGRAM, HistoryServer, clean_environment
from bench.chaos.viewers import path_of
from tests.support.processes import Process

from .scenario import SECONDS, Scenario, steady

LOG_FILES = int(os.environ.get("CHAOS_FILES") or 20_000)
MARKERS = int(os.environ.get("CHAOS_MARKERS") or 100_000)
SECOND_AGENT = 1_000_000
"""Number of its first task."""
ENDLESS = 256 << 20
"""Bytes that the dashboard sends for one question, unless the connection ends before."""


def second_collector(life: Life) -> None:
    """Another sidecar beside the same Ray, with a volume of its own."""
    second = CollectorRun(
        life.folder / "second",
        life.machine.storage,
        *(f"--node-id={life.node}", f"--ray-tmp-root={life.ray}"),
        cluster=life.cluster,
        variables=life.machine.variables(life.machine.collector_proxy),
        data=life.folder / "second" / "data",
    )
    agent = Agent(second.port, life.session, life.node, seed=life.number, first=SECOND_AGENT)
    life.add_second(second, agent)
    life.injected["second collector"] += 1
    life.wait(SECONDS, SECONDS)


def many_log_files(life: Life) -> None:
    folder = life.logs_of(life.session)
    for number in range(LOG_FILES):
        (folder / f"durable-many-{number}.out").write_bytes(line(f"many-{number}", 0))
        life.logs.written[f"many-{number}"] = 1
    life.injected[f"{LOG_FILES:,} log files"] += 1
    life.wait(SECONDS, SECONDS)


def two_servers(life: Life) -> None:
    """And `index --all`, which build and publish the same sessions; the last one is killed if it takes long."""
    variables = life.machine.variables(life.machine.server_proxy)
    other = HistoryServer(life.folder / "other", life.machine.storage, variables)
    command = [*PROGRAM, "index", "--all", f"--storage={life.machine.storage}", f"--cache-dir={life.folder / 'index'}"]
    index = Process(command, log=life.folder / "index.log", ready=lambda: True, env=clean_environment(variables))
    with other.process, index, ThreadPoolExecutor(2) as both:
        for number in range(4):
            life.wait(SECONDS / 8, SECONDS / 4)
            for server in (life.machine.server, other):
                both.submit(server.get, f"{path_of(life, life.session)}/api/v0/tasks?n={number}")
            life.injected["index built by three"] += 1


class _EndlessDashboard(BaseHTTPRequestHandler):
    """A stand-in for a dashboard that hangs, or sends without end."""

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        self.server.injected["dashboard: hung or without end"] += 1
        if len(self.path) % 2:
            self.server.ended.wait(30)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            self.wfile.write(b'{"result": true, "data": ["')
            for _ in range(ENDLESS >> 16):
                self.wfile.write(b"x" * (1 << 16))
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, injected: Counter[str]) -> None:
        super().__init__(("127.0.0.1", 0), _EndlessDashboard)
        self.ended = threading.Event()
        self.injected = injected


def endless_dashboard(life: Life) -> None:
    server = _Server(life.injected)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    life.at_end(server.server_close)
    life.at_end(server.shutdown)
    life.at_end(server.ended.set)
    life.collector.process.command.append(f"--ray-dashboard-address=http://127.0.0.1:{server.server_address[1]}")


def many_markers(life: Life) -> None:
    """A server of its own, on an archive in a directory: a hundred thousand PUTs would take the whole run."""
    archive = life.folder / "markers"
    folder = archive / "cluster-metadata" / "raycluster"
    for cluster in range(100):
        (folder / f"chaos_m{cluster}").mkdir(parents=True)
        for number in range(MARKERS // 100):
            (folder / f"chaos_m{cluster}" / f"session_2026-01-01_00-00-00_{number:06d}_1").touch()
    life.injected[f"{MARKERS:,} markers"] += 1
    server = HistoryServer(life.folder / "many", archive.as_uri(), {})
    with server.process:
        answer = server.get(f"/clusters?limit={MARKERS}")
        if answer.status != 200 or answer.body.count(b"session_2026-01-01") < MARKERS:
            found = answer.body.count(b"session_2026-01-01")
            life.wrong.append(f"{answer.status} with {found} of {MARKERS} sessions for /clusters")


SCENARIOS = {
    "two collectors": Scenario("two collectors upload the logs of one node, under one node id", second_collector),
    "many log files": Scenario(f"{LOG_FILES:,} log files", many_log_files, can_end=False, once=True),
    "two servers": Scenario("two servers and `index --all` build the same sessions", two_servers),
    "endless dashboard": Scenario(
        "the dashboard hangs, or sends without end",
        steady,
        endless_dashboard,
        flags=("--role=Head", "--poll-interval=2s"),
    ),
    "many markers": Scenario(f"{MARKERS:,} sessions are listed", many_markers, once=True),
}
