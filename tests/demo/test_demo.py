"""The demo as a person runs it: a real cluster lives and dies, its dashboard opens, Ctrl-C leaves nothing behind."""

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

from ray_history.demo.run import SMALL, WORKLOAD, _ends_politely
from tests.support.processes import free_port

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(280)]


class Demo:
    """`ray-history demo` under way; everything that it starts inherits a mark."""

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
        self.told = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.process.poll() is None:
                self.interrupt()
        finally:
            self.process.kill()  # if it did not end by itself
            assert self.process.stdout is not None
            self.process.stdout.close()

    def read_until(self, words: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told += line
            if words in line:
                return self.told
        raise AssertionError(f"never said {words!r}, but:\n{self.told}")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        ended = self.process.wait(60)
        assert self.process.stdout is not None
        self.told += self.process.stdout.read()
        return ended

    def relatives(self) -> list[str]:
        """The command lines of all that it started and that still runs."""
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
        demo.read_until("[3/7]")  # Ray runs
        assert demo.relatives()
        assert demo.interrupt() == 1
        assert demo.relatives() == []


def test_the_cluster_dies_and_its_dashboard_opens(directory: Path) -> None:
    with Demo(directory, "s3") as demo:  # a real S3 server
        told = demo.read_until("Ctrl-C ends")
        (base,) = set(re.findall(r"http://localhost:\d+/s/default/demo/latest", told))
        statuses = {row["submission_id"]: row["status"] for row in get(f"{base}/api/jobs/")}
        assert statuses == {job.name: job.until for job in SMALL}
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


def test_the_next_start_shows_the_same_cluster_at_once(directory: Path) -> None:
    with Demo(directory, "s3") as demo:
        told = demo.read_until("Ctrl-C ends")
        assert "The cluster of the last run" in told
        (base,) = set(re.findall(r"http://localhost:\d+/", told))
        assert len(get(f"{base}clusters")) == 1
        demo.process.send_signal(signal.SIGTERM)  # as closing the terminal does
        assert demo.process.wait(60) == 0
        assert demo.relatives() == []


def test_under_nohup_it_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _ends_politely():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_every_job_has_its_script() -> None:
    scripts = Path(sys.modules["ray_history.demo.run"].__file__ or "").with_name("jobs")
    assert {job.name for job in WORKLOAD} == {file.stem for file in scripts.glob("*.py")}


def test_a_port_that_is_taken_is_not_fought_for(directory: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Demo(directory, "s3", port) as demo:
            told = demo.read_until("Ctrl-C ends")
            assert f":{port}/" not in told
            assert demo.interrupt() == 0
