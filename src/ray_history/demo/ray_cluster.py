"""A real Ray cluster on loopback: a head, more nodes, jobs, and ways to kill them.

`ray stop` is not used, because it stops every cluster of the machine. Processes are found by the cluster's temporary
directory, in their command lines and open files, and signalled by their ids.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray_history.ray_variables import recording_variables

from .processes import PartUnavailable, ProcessFailed, free_ports

QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray lowers the priority of workers; on a machine with few cores they would start late.
    "RAY_worker_niceness": "0",
}


def plain_environment() -> dict[str, str]:
    """The environment without Ray's variables, and without authentication, also if the home directory has a token."""
    return {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {
        "RAY_AUTH_MODE": "disabled"
    }


def ray_binary() -> str:
    found = Path(sysconfig.get_path("scripts")) / "ray"
    if not found.exists():
        raise PartUnavailable("`ray` is not installed: pip install 'ray[default]'")
    return str(found)


class RayCluster:
    """One cluster. `start_head` begins a session and can be called again after the session has ended."""

    def __init__(self, token: str = "", ray: str = "") -> None:
        """A cluster that requires this token; without one, authentication is disabled.

        `ray` is the program that starts it, if not the one of this environment.
        """
        self.ray = ray or ray_binary()
        # Ray creates sockets below it, whose paths are limited to 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="rh", dir="/tmp"))
        self._mark = f"RAY_HISTORY_DEMO={self.root}\0".encode()
        self.gcs_port, self.dashboard_port = free_ports(2)
        self.dashboard = f"http://127.0.0.1:{self.dashboard_port}"
        self.metrics_ports = dict[str, str]()
        """Variables of Ray and of a collector, for ports that are otherwise the same for all heads of a machine."""
        self._token = token
        self._token_file = self.root / "auth_token"
        if token:
            self._token_file.write_text(token)
            self._token_file.chmod(0o600)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.gcs_port}"

    @property
    def session(self) -> Path:
        return (self.root / "session_latest").resolve(strict=True)

    @property
    def authentication(self) -> dict[str, str]:
        """The variables with which Ray's processes and clients authenticate."""
        if not self._token:
            return {"RAY_AUTH_MODE": "disabled"}
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self._token_file)}

    def environment(self, events_port: int) -> dict[str, str]:
        """The variables with which Ray processes, drivers included, export their events to this port."""
        plain = plain_environment()
        del plain["RAY_AUTH_MODE"]
        return {
            **plain,
            **self.authentication,
            **QUIET_RAY,
            **recording_variables(events_port),
            **self.metrics_ports,
            "RAY_HISTORY_DEMO": str(self.root),
        }

    def choose_metrics_ports(self) -> None:
        """Let another head of this machine have the usual ports of the autoscaler's and the dashboard's metrics."""
        names = ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT")
        self.metrics_ports = {name: str(port) for name, port in zip(names, free_ports(2), strict=True)}

    def start_head(self, events_port: int, *, cpus: int = 2, flags: Sequence[str] = ()) -> None:
        agent, client = free_ports(2)
        self._ray_start(
            events_port,
            "--head",
            "--node-ip-address=127.0.0.1",
            f"--port={self.gcs_port}",
            f"--dashboard-port={self.dashboard_port}",
            f"--dashboard-agent-listen-port={agent}",
            f"--ray-client-server-port={client}",
            f"--temp-dir={self.root}",
            f"--num-cpus={cpus}",
            *flags,
        )

    def start_node(self, events_port: int, *flags: str, cpus: int = 1, wrapper: Sequence[str] = ()) -> None:
        """Add a node; `wrapper` is a command that runs the command after it, such as `unshare`."""
        (agent,) = free_ports(1)
        self._ray_start(
            events_port,
            f"--address={self.address}",
            f"--dashboard-agent-listen-port={agent}",
            f"--num-cpus={cpus}",
            *flags,
            wrapper=wrapper,
        )

    def _ray_start(self, events_port: int, *arguments: str, wrapper: Sequence[str] = ()) -> None:
        command = [
            *wrapper,
            self.ray,
            "start",
            *arguments,
            "--object-store-memory=100000000",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--disable-usage-stats",
        ]
        environment = self.environment(events_port)
        if self._token and "--head" in arguments:
            del environment["RAY_AUTH_MODE"]  # a head (2.60) enables authentication by itself where it finds a token
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise ProcessFailed(f"ray start failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def get(self, path: str) -> Any:
        """GET from the live dashboard."""
        return self._send(urllib.request.Request(self.dashboard + path), timeout=30)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """POST to the live dashboard."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.dashboard + path, json.dumps(body).encode(), headers)
        return self._send(request, timeout=60)

    def _send(self, request: urllib.request.Request, timeout: float) -> Any:
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)

    def list(self, resource: str) -> list[dict[str, Any]]:
        """All rows of a resource of the live state API."""
        rows: list[dict[str, Any]] = self.get(f"/api/v0/{resource}?detail=1&limit=10000")["data"]["result"]["result"]
        return rows

    def submit_file(self, script: Path, name: str, variables: dict[str, str], metadata: dict[str, str]) -> None:
        """Like `ray job submit --no-wait`, without the seconds that its start takes."""
        file = self.root / f"{name}.py"
        file.write_text(script.read_text())
        body = {
            "entrypoint": f"{sys.executable} {file}",
            "submission_id": name,
            "metadata": metadata,
            "runtime_env": {"env_vars": variables},
        }
        self.post("/api/jobs/", body)

    def submit(self, script: str, events_port: int, *, submission_id: str, wait: bool = True) -> None:
        """Run a driver script as a submitted job."""
        file = self.root / f"{submission_id}.py"
        file.write_text(script)
        command = [self.ray, "job", "submit", f"--address={self.dashboard}", f"--submission-id={submission_id}"]
        command += [] if wait else ["--no-wait"]
        done = subprocess.run(
            [*command, "--", sys.executable, str(file)],
            env=self.environment(events_port),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if done.returncode:
            raise ProcessFailed(f"the job failed: {done.stdout[-3000:]}{done.stderr[-1000:]}")

    def pids(self, word: str = "") -> Sequence[int]:
        """Processes of this cluster whose command line contains the word, without the collectors beside it."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    files = [os.readlink(file) for file in (entry / "fd").iterdir()]
                    environment = (entry / "environ").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                # Some processes overwrite their command line; their open files or environment identify them.
                ours = any(f"{self.root}/" in text for text in (line, *files)) or self._mark in environment
                ours &= not any(name in line for name in ("ray-history", "ray_history"))
                if ours and word in line and state != "Z":
                    found.append(int(entry.name))
        return found

    def kill(self, word: str = "", number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the processes; with SIGKILL until none is left, because new ones start while others are killed."""
        deadline = time.monotonic() + 10
        while (pids := self.pids(word)) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number != signal.SIGKILL:
                return
            time.sleep(0.05)

    def end(self) -> None:
        """End the session like `ray stop`: SIGTERM, and SIGKILL after ten seconds."""
        self.kill(number=signal.SIGTERM)
        deadline = time.monotonic() + 10
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.kill()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)
