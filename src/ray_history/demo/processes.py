"""Server processes of the demo and of the tests.

A child runs in its own process group with its output in a log file: stopping it stops everything that it spawned,
and the error of a failed start includes its output.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

Ready = Callable[[], bool]

# A port is used some time after it was chosen. Until then its UDP namesake is held, which other processes see too.
_claims: deque[socket.socket] = deque()
CLAIMS_AT_ONCE = 256


class PartUnavailable(Exception):
    """A required server is not available on this machine; the message says why."""


class ProcessFailed(Exception):
    """A server did not become ready; the message ends with the tail of its log."""


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on and that nobody else who asks here gets meanwhile."""
    # The kernel gives ports above this range to outgoing connections, and Ray takes ports below it for its workers.
    for port in random.sample(range(20_000, 32_768), 200):
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), socket.socket() as listener:
            claim.bind(("127.0.0.1", port))
            listener.bind(("127.0.0.1", port))
            _claims.append(claim)
            if len(_claims) > CLAIMS_AT_ONCE:
                _claims.popleft().close()
            return port
        claim.close()
    raise ProcessFailed("no free port found: 200 random ports between 20000 and 32767 are in use")


def free_ports(count: int) -> list[int]:
    """Return `count` different free loopback TCP ports."""
    return [free_port() for _ in range(count)]


def port_is_open(port: int) -> bool:
    """Whether a server accepts connections on this loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Process:
    """A child process that can be stopped and started again with the same command."""

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
        """Start the child and wait until it is ready; a failed start leaves no process behind."""
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
        """Send SIGTERM, and SIGKILL if the child does not exit within `stop_seconds`."""
        if self._child is None:
            return
        self._signal(self._child.pid, signal.SIGTERM)
        try:
            self._child.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill9()  # also if Ctrl-C is pressed once more

    def kill9(self) -> None:
        """Kill the child and everything it spawned without warning, as the OOM killer would."""
        if self._child is None:
            return
        self._signal(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._wait_until_group_is_gone(self._child.pid)
        self._child = None

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log file."""
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
                raise ProcessFailed(f"{self.command[0]} exited with code {code}:\n{self.log_tail()}")
            if self.ready():
                return
            time.sleep(0.05)
        raise ProcessFailed(f"{self.command[0]} was not ready after {self.start_seconds} s:\n{self.log_tail()}")

    def _wait_until_group_is_gone(self, group: int) -> None:
        # Grandchildren cannot be waited for with wait(), and their ports stay open until they exit. The time limit is
        # for containers whose init process does not reap: there they stay as zombies, with their ports closed.
        deadline = time.monotonic() + 1
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(0.01)

    def _signal(self, group: int, number: signal.Signals) -> None:
        # The group may have exited already; wait() must still collect the exit code.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
