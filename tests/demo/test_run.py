"""The demo as users run it: a real cluster runs and dies, its dashboard opens, Ctrl-C leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from ray_history.demo.run import SMALL, WORKLOAD, _interrupt_on_termination
from tests.support.processes import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(280)]


class Demo:
    """A running `ray-history demo`; every process that it starts inherits a mark."""

    def __init__(self, directory: Path, storage: str, port: int | None = None) -> None:
        self.mark = f"DEMO_MARK={uuid.uuid4()}"
        name, value = self.mark.split("=")
        command = [
            sys.executable,
            "-m",
            "ray_history",
            "demo",
            f"--directory={directory}",
            f"--storage={storage}",
            "--small",
        ]
        self.process = subprocess.Popen(
            [*command, f"--port={port or free_port()}"],
            env={**os.environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.process.poll() is None:
                self.interrupt()
        finally:
            self.process.kill()  # if it did not exit
            assert self.process.stdout is not None
            self.process.stdout.close()

    def read_until(self, words: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if words in line:
                return self.output
        raise AssertionError(f"{words!r} is not in the output:\n{self.output}")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        ended = self.process.wait(60)
        assert self.process.stdout is not None
        self.output += self.process.stdout.read()
        return ended

    def relatives(self) -> list[str]:
        """The command lines of the processes that it started and that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def directory(real_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return msgspec.json.decode(answer.read())


def test_an_interrupted_demo_leaves_no_process_behind(directory: Path) -> None:
    with Demo(directory, "file") as demo:
        demo.read_until("✓ [3/7]")  # Ray runs
        assert demo.relatives()
        assert demo.interrupt() == 1
        until(lambda: demo.relatives() == [])  # they were killed; a busy machine takes a while to end them


def test_the_dashboard_of_the_dead_cluster_opens(directory: Path) -> None:
    with Demo(directory, "s3") as demo:  # a real S3 server
        output = demo.read_until("Ctrl-C stops")
        (base,) = set(re.findall(r"http://localhost:\d+/s/default/demo/latest", output))
        statuses = {row["submission_id"]: row["status"] for row in get(f"{base}/api/jobs/")}
        assert statuses == {job.name: job.status for job in SMALL}
        failed = get(f"{base}/api/v0/tasks?filter_keys=state&filter_predicates=%3D&filter_values=FAILED")
        names = {row["name"] for row in failed["data"]["result"]["result"]}
        assert names >= {"load", "evaluate", "report", "Trainer.step"}
        actors = get(f"{base}/api/v0/actors?detail=1")["data"]["result"]["result"]
        assert "1" in {actor["num_restarts"] for actor in actors}
        account = get(f"{base}/_completeness")
        assert [node["has_ledger"] for node in account["nodes"]] == [True, True]
        assert account["events"]["received"] == account["events"]["read"] > 100
        assert not any("ray::" in line or "gcs_server" in line for line in demo.relatives()), "the cluster is dead"
        assert demo.interrupt() == 0
        assert demo.relatives() == []


def test_the_next_start_shows_the_same_cluster(directory: Path) -> None:
    with Demo(directory, "s3") as demo:
        output = demo.read_until("Ctrl-C stops")
        assert "The cluster of the last run" in output
        (base,) = set(re.findall(r"http://localhost:\d+/", output))
        assert len(get(f"{base}clusters")) == 1
        demo.process.send_signal(signal.SIGTERM)  # as closing the terminal does
        assert demo.process.wait(60) == 0
        assert demo.relatives() == []


def test_under_nohup_a_closed_terminal_does_not_interrupt() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _interrupt_on_termination():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_every_job_has_a_script() -> None:
    scripts = Path(sys.modules["ray_history.demo.run"].__file__ or "").with_name("jobs")
    assert {job.name for job in WORKLOAD} == {file.stem for file in scripts.glob("*.py")}


def test_another_port_is_used_if_the_port_is_taken(directory: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Demo(directory, "s3", port) as demo:
            output = demo.read_until("Ctrl-C stops")
            assert f":{port}/" not in output
            assert demo.interrupt() == 0
