"""Starts and ends the server processes of the demo, which the tests use too.

A child runs in its own process group with its output in a log file, so that ending it ends everything it
spawned and a failed start can show what the server said.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

Ready = Callable[[], bool]


class PartUnavailable(Exception):
    """A server that is needed cannot be had on this machine; the message says why."""


class ProcessFailed(Exception):
    """A server did not become ready; the message ends with the tail of its log."""


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on right now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return that many different free loopback TCP ports."""
    # All are held open until the last is found: otherwise the kernel may hand out the same one twice.
    held = [socket.socket() for _ in range(count)]
    try:
        for sock in held:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()


def port_for_later() -> int:
    """Return a free loopback TCP port that nobody is likely to take until it is used.

    The system hands out higher ones by itself, and Ray takes lower ones for its workers.
    """
    for port in random.sample(range(20_000, 32_768), 100):
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return port
    raise ProcessFailed("a hundred ports between 20000 and 32767 are taken; there is hardly a free one")


def port_is_open(port: int) -> bool:
    """Tell whether something accepts connections on this loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Process:
    """A child process that can be started, ended, killed and started again with the same command."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        ready: Ready,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        start_seconds: float = 30,
        stop_seconds: float = 5,
    ) -> None:
        self.command = [str(word) for word in command]
        self.log = log
        self.ready = ready
        self.env = {**os.environ, **(env or {})}
        self.cwd = cwd
        self.start_seconds = start_seconds
        self.stop_seconds = stop_seconds
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running child, which is also its process group."""
        if self._child is None:
            raise ProcessFailed(f"{self.command[0]} is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the child is alive."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the child and return once it is ready; a start that fails leaves nothing running."""
        if self.running:
            raise ProcessFailed(f"{self.command[0]} is already running")
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(self._child)
        except BaseException:
            self.kill9()
            raise

    def stop(self) -> None:
        """End the child: SIGTERM, and SIGKILL when it takes longer than `stop_seconds`."""
        if self._child is None:
            return
        self._signal(self._child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(self.stop_seconds)
        self.kill9()

    def kill9(self) -> None:
        """Kill the child and all it spawned without warning, as a power cut or the OOM killer would."""
        if self._child is None:
            return
        self._signal(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._wait_until_group_is_gone(self._child.pid)
        self._child = None

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines the child wrote."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline:
            code = child.poll()
            if code is not None:
                raise ProcessFailed(f"{self.command[0]} ended with code {code}:\n{self.log_tail()}")
            if self.ready():
                return
            time.sleep(0.05)
        raise ProcessFailed(f"{self.command[0]} was not ready after {self.start_seconds} s:\n{self.log_tail()}")

    def _wait_until_group_is_gone(self, group: int) -> None:
        # Grandchildren are not ours to wait() for, and their ports stay open until they are gone. The wait has an
        # end because a container whose init reaps nothing keeps them as zombies, with their ports closed.
        deadline = time.monotonic() + 1
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(0.01)

    def _signal(self, group: int, number: signal.Signals) -> None:
        # The whole group may be gone already; wait() still has to collect the exit code.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
