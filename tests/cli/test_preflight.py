"""A server that would be useless does not start, and says why in one line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector.collector_process import run_cli


def serve(folder: Path, **options: str) -> list[str]:
    (folder / "archive").mkdir()
    given = {"storage": (folder / "archive").as_uri(), "cache-dir": str(folder / "cache"), "kube": "off"} | options
    return ["serve", *(word for name, value in given.items() for word in (f"--{name}", value))]


def check(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "serving" not in done.stderr


@pytest.mark.parametrize("place", ["/proc/nothing", "{folder}/file", "{folder}/file/below"])
def test_an_unusable_cache_directory(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    directory = place.format(folder=tmp_path)
    message = f"the cache in {directory} cannot be used"
    check(run_cli(*serve(tmp_path, **{"cache-dir": directory})), message)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_in_use(tmp_path: Path, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        check(run_cli(*serve(tmp_path, host=host, port=str(port))), f"port {port} of {host} is in use: choose another")


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    done = run_cli(*serve(tmp_path, host="192.0.2.1", auth="none"))
    assert done.returncode == 2
    assert "192.0.2.1 is not an address of this machine: check --host" in done.stderr
    check(
        run_cli("serve", "--storage", "file:///tmp", "--host", "no-such.invalid", "--auth", "token"),
        "--auth token needs",
    )


def test_a_clock_that_was_never_set(tmp_path: Path) -> None:
    program = "import sys, time; time.time = lambda: 3600.0; from ray_history.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, *serve(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    check(done, "the clock of this machine says 1970-01-01 01:00:00 UTC")
