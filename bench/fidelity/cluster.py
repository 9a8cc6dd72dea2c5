"""A real Ray cluster whose nodes each have a directory, an address and a collector of their own, on one machine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.processes import PartUnavailable, Process, free_ports, port_is_open
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import until

from .recorder import Recorder

NAME = "measured"
NODE_VARIABLE = "RAY_HISTORY_MEASURED_NODE"
SLOW_MACHINE = {
    "RAY_raylet_start_wait_time_s": "90",
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "110",  # after 30 s the dashboard ends
}
"""Ray's patience with its own processes while they start."""
TRIES = 5


@dataclass
class Node:
    """A node: its view of Ray's directory, and its collector behind a recorder."""

    name: str
    folder: Path
    """What the node sees as the cluster's directory."""
    wrapper: Sequence[str]
    """A command that runs the command after it with that view."""
    collector: Process
    recorder: Recorder = field(repr=False)

    @property
    def port(self) -> int:
        return self.recorder.server_port

    def logs(self, session: str) -> Path:
        return self.folder / session / "logs"


class MeasuredCluster(RayCluster):
    """The nodes, by name; the first is the head."""

    def __init__(self, python: Path, out: Path, poll_interval: str) -> None:
        super().__init__(ray=str(python.with_name("ray")))
        self.python = python
        self.archive = out / "archive"
        self.scratch = out / "scratch"
        self.scratch.mkdir(parents=True)
        self.nodes: dict[str, Node] = {}
        self._collector_logs = out
        self._poll_interval = poll_interval
        self._starting = ""

    def environment(self, events_port: int) -> dict[str, str]:
        return {**super().environment(events_port), **SLOW_MACHINE, NODE_VARIABLE: self._starting}

    def add_collector(self, name: str) -> Node:
        """A node with its collector, as yet without Ray."""
        head = not self.nodes
        folder = self.root if head else Path(tempfile.mkdtemp(prefix=f"{self.root.name}-{name}-", dir="/tmp"))
        wrapper = () if head else _mounted(folder, self.root)
        port, recorder_port = free_ports(2)
        spool = Path(tempfile.mkdtemp(prefix=f"spool-{name}-", dir=self.scratch))
        command = [
            *wrapper,
            *(sys.executable, "-m", "ray_history", "collect", f"--storage={self.archive.as_uri()}"),
            *(f"--cluster={NAME}", f"--role={'Head' if head else 'Worker'}", f"--events-port={port}"),
            *(f"--ray-tmp-root={self.root}", f"--event-data-dir={spool}", f"--poll-interval={self._poll_interval}"),
            f"--ray-dashboard-address={self.dashboard}",
        ]
        log = self._collector_logs / f"collector-{name}.log"
        ready = partial(port_is_open, port)
        environment = {**self.authentication, NODE_VARIABLE: "", "RAY_AUTH_TOKEN": ""}
        collector = Process(command, log=log, ready=ready, env=environment, start_seconds=120, stop_seconds=60)
        node = Node(name, folder, wrapper, collector, Recorder(recorder_port, port))
        self.nodes[name] = node
        collector.start()
        return node

    def add_head(self, starting: AbstractContextManager[object], *, alone: bool = False) -> Node:
        """The head with its collector; `starting` is open while Ray starts. Alone it also runs what is for the side."""
        node = self.add_collector("head")
        self._starting = "head"
        with starting:
            self.start_head(node.port, cpus=4, flags=[_resources("head", *(["side"] if alone else []))])
        return node

    def add_node(self, name: str, address: str, cpus: int) -> Node:
        """A worker node with its collector."""
        node = self.add_collector(name)
        self._starting = name
        self.start_node(node.port, f"--node-ip-address={address}", _resources(name), cpus=cpus, wrapper=node.wrapper)
        return node

    def submit_workload(self, script: Path, name: str, variables: dict[str, str], **more: Any) -> None:
        """Submit a script, which runs on the head."""
        file = self.scratch / f"{name}.py"
        file.write_text(script.read_text())
        entrypoint = shlex.join([str(self.python), str(file)])
        body = {"entrypoint": entrypoint, "submission_id": name, "runtime_env": {"env_vars": variables}}
        until(partial(self._submits, {**body, **more}), f"job {name} is submitted", pause=1)

    def _submits(self, body: dict[str, Any]) -> bool:
        """Submit a job, unless the agent that runs jobs is still starting."""
        try:
            self.post("/api/jobs/", body)
        except urllib.error.HTTPError as error:
            if error.code < 500 or any(job["submission_id"] == body["submission_id"] for job in self.get("/api/jobs/")):
                raise
            return False
        return True

    def get(self, path: str) -> Any:
        """GET from the live dashboard, which under load may drop a connection."""
        for _ in range(TRIES):
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                return super().get(path)
            time.sleep(1)
        return super().get(path)

    def is_answering(self) -> bool:
        """Whether the dashboard answers, which needs some moments more than Ray's own start."""
        try:
            return bool(self.list("nodes")) and self.get("/api/jobs/") == []
        except OSError:
            return False

    def node_id(self, name: str) -> str:
        """The id of a node, by the resource that only it has."""
        (found,) = [row for row in self.list("nodes") if name in row["resources_total"]]
        return str(found["node_id"])

    def pids_of(self, node: str) -> list[int]:
        """Ray's processes on one node."""
        mark = f"{NODE_VARIABLE}={node}\0".encode()
        return [pid for pid in self.pids() if mark in _environment(pid)]

    def kill_node(self, name: str) -> None:
        """SIGKILL a node's collector and all of its Ray processes."""
        self.nodes[name].collector.kill9()
        for pid in self.pids_of(name):
            os.kill(pid, signal.SIGKILL)

    def kill_everything(self) -> None:
        """SIGKILL all collectors, then all of Ray, as when the machines fail."""
        for node in self.nodes.values():
            if node.collector.running:
                os.killpg(node.collector.pid, signal.SIGKILL)
        self.kill()

    def close(self) -> None:
        self.remove()

    def remove(self) -> None:
        for node in self.nodes.values():
            node.collector.kill9()
            node.recorder.shutdown()
            node.recorder.server_close()
        super().remove()
        for node in self.nodes.values():
            shutil.rmtree(node.folder, ignore_errors=True)


def _resources(*names: str) -> str:
    return f"--resources={json.dumps(dict.fromkeys(names, 10))}"


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _mounted(source: Path, target: Path) -> tuple[str, ...]:
    """A command that runs the command after it with one directory in place of another."""
    private = ["unshare", "--mount", "--propagation=private"]
    if os.geteuid():
        private += ["--user", "--map-root-user"]
    if subprocess.run([*private, "true"], capture_output=True, check=False).returncode:
        raise PartUnavailable(f"nodes need directories of their own, but `{' '.join(private)} true` fails here")
    return (*private, "sh", "-c", f'mount --bind "{source}" "{target}" && exec "$@"', "sh")
