"""A build process as a copy of this one, which has loaded everything already: starting a program takes 0.3 s.

A copy has the one thread that makes it, and whatever other threads had locked stays locked in it. So only a process
without other threads can be copied, such as a command that has just begun.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path


def can_fork() -> bool:
    """Whether this process has no other threads, those of libraries included; False where that is unknown."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def fork(connection: Connection, directory: Path) -> Forked:
    """Run a build process at this end of a connection, in a copy of this process; see `process.run`."""
    from .process import run

    pid = os.fork()
    if pid:
        return Forked(pid)
    try:
        _let_go(connection.fileno())
        run(connection, directory)
    finally:
        os._exit(1)  # whatever happens, it must not continue as its parent


def _let_go(kept: int) -> None:
    """Leave the terminal to the parent, and all open files but one: that includes the other end of
    the connection, without which the copy would not notice that its parent ends."""
    gc.freeze()  # an object that is collected later must not close a file of the same number
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    os.close(nothing)


class Forked:
    """A copy of this process, with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None
        self._waiting = threading.Lock()

    def kill(self) -> None:
        if self._status is None:  # its number belongs to it until it is waited for
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status; minus the number of the signal that ended it."""
        with self._waiting:
            if self._status is None:
                _, status = os.waitpid(self.pid, 0)
                self._status = os.waitstatus_to_exitcode(status)
            return self._status
