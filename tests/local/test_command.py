"""`ray-history run` leaves its command alone: output, input, terminal, signals, exit code."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ray_history.local.environment import MARK, environment_of_command
from ray_history.local.places import cluster_name
from ray_history.ray_variables import recording_variables
from tests.cli.installed import COMMAND, run

NO_RAY = "ray-history: the command started no Ray on this machine; nothing was recorded\n"


def test_input_output_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    done = run("run", "bash", "-c", "cat; echo problem >&2; exit 3", text="from stdin", HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (3, "from stdin", f"problem\n{NO_RAY}")
    assert list((tmp_path / ".ray-history" / "runs").iterdir()) == [], "nothing is left of the recorder"


def test_a_command_that_a_signal_ended_looks_the_same(tmp_path: Path) -> None:
    assert run("run", "--", "bash", "-c", "kill -TERM $$", HOME=str(tmp_path)).returncode == -signal.SIGTERM


def test_a_command_that_cannot_be_started_is_reported_like_by_a_shell(tmp_path: Path) -> None:
    missing = run("run", "--", "no-such-command", HOME=str(tmp_path))
    assert (missing.returncode, missing.stderr) == (127, "ray-history: no-such-command: No such file or directory\n")
    assert run("run", "--", str(tmp_path), HOME=str(tmp_path)).returncode == 126


def test_a_wrong_storage_is_refused_before_the_command_starts(tmp_path: Path) -> None:
    done = run("run", "--storage", "tape://x", "--", "touch", str(tmp_path / "started"), HOME=str(tmp_path))
    assert done.returncode == 2
    assert not (tmp_path / "started").exists()


COUNTING = """
import os, signal, sys
counts = dict.fromkeys(("SIGINT", "SIGTERM"), 0)
def count(number, _):
    name = signal.Signals(number).name
    counts[name] += 1
    os.write(1, name.encode())  # printing is not reentrant
for name in counts:
    signal.signal(getattr(signal, name), count)
print("ready", sys.stdin.isatty(), flush=True)
sys.stdin.readline()
print(counts, flush=True)
"""


@contextmanager
def on_terminal(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The counting script, run as the foreground job of a terminal of its own."""
    near, far = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(far), os.O_RDWR))  # the first terminal that a session opens becomes its own

    command = [COMMAND, "run", "--", sys.executable, "-c", COUNTING]
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    process = subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=env, preexec_fn=own_terminal)
    os.close(far)
    try:
        yield process, near
    finally:
        process.kill()
        process.wait()
        os.close(near)


def read_until(terminal: int, text: str) -> str:
    found = ""
    while text not in found:
        found += os.read(terminal, 4096).decode()
    return found


@pytest.mark.timeout(60)
def test_each_signal_reaches_the_command_once(tmp_path: Path) -> None:
    with on_terminal(tmp_path) as (process, terminal):
        assert "ready True" in read_until(terminal, "ready True"), "its standard input is the terminal"
        os.write(terminal, b"\x03")  # Ctrl-C: the terminal sends SIGINT to both
        read_until(terminal, "SIGINT")
        process.send_signal(signal.SIGTERM)  # to the parent alone
        read_until(terminal, "SIGTERM")
        os.write(terminal, b"\n")
        assert "{'SIGINT': 1, 'SIGTERM': 1}" in read_until(terminal, "nothing was recorded")
        assert process.wait(30) == 0


def test_what_the_user_has_set_wins() -> None:
    mine = {"RAY_task_events_report_interval_ms": "5000", "HOME": "/home/me"}
    made = environment_of_command(1234, "1-2", mine)
    assert made == {**recording_variables(1234), **mine, MARK: "1-2"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python train.py --epochs 3", "train"),
        ("/opt/venv/bin/python3.11 -u jobs/Train_Model.py", "train-model"),
        ("python -m jobs.nightly --all", "jobs-nightly"),
        ("uv run --with x train.py", "train"),
        ("bash job.sh", "job"),
        ("OMP_NUM_THREADS=1 ./simulate", "simulate"),
        ("python -c print(1)", "local"),
        ("make all", "make"),
        ("python ...", "local"),
    ],
)
def test_a_cluster_is_named_after_the_script(words: str, name: str) -> None:
    assert cluster_name(words.split()) == name
