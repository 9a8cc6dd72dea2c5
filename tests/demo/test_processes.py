"""Processes that the demo and the tests start, and the ports they get."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest

from ray_history.demo.processes import Process, ProcessFailed, free_ports, port_is_open


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_failed_start_shows_the_log(log: Path) -> None:
    process = Process([sys.executable, "-c", "raise SystemExit('no licence')"], log=log, ready=lambda: False)
    with pytest.raises(ProcessFailed, match="no licence"):
        process.start()
    assert not process.running


def test_a_slow_start_ends_at_the_deadline(log: Path) -> None:
    process = Process(
        [sys.executable, "-c", "import time; time.sleep(60)"], log=log, ready=lambda: False, start_seconds=0.3
    )
    with pytest.raises(ProcessFailed, match=r"not ready after 0\.3 s"):
        process.start()
    assert not process.running


def test_a_kill_reaches_what_a_shell_spawned(log: Path) -> None:
    (port,) = free_ports(1)
    command = ["sh", "-c", f"{sys.executable} -m http.server --bind 127.0.0.1 {port}; true"]
    with Process(command, log=log, ready=lambda: port_is_open(port)):
        pass
    assert not port_is_open(port)


def test_an_interrupted_stop_leaves_no_process_behind(log: Path) -> None:
    """Ctrl-C is pressed again while the child, which does not want to end, is given time."""
    script = (
        "signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), signal.SIGINT)); print('ready', flush=True)"
    )
    command = [sys.executable, "-c", f"import os, signal, time; {script}; time.sleep(600)"]
    process = Process(command, log=log, ready=lambda: b"ready" in log.read_bytes(), stop_seconds=60)
    process.start()
    child = process.pid
    with pytest.raises(KeyboardInterrupt):
        process.stop()
    assert not process.running
    assert not Path(f"/proc/{child}").exists()


def test_a_free_port_is_outside_the_ranges_of_linux_and_ray() -> None:
    ports = free_ports(20)
    assert all(20_000 <= port < 32_768 and not port_is_open(port) for port in ports)


def test_a_port_is_given_once_also_to_two_processes() -> None:
    ask = "from ray_history.demo.processes import free_ports; print(*free_ports(200)); input()"
    with ExitStack() as stack:
        others = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", ask], stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(2)
        ]
        ports = [port for other in others if other.stdout for port in other.stdout.readline().split()]
        for other in others:
            other.communicate("\n")
    assert len(set(ports)) == len(ports) == 400
    assert not set(ports) & set(map(str, free_ports(1)))
