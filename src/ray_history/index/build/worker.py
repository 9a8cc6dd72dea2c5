"""A build process as its server sees it: takes one order at a time, is watched, and can be ended at any moment."""

from __future__ import annotations

import logging
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import msgspec

from ray_history.archive import errors
from ray_history.history.engine import Limits
from ray_history.index.locks import CancelToken
from ray_history.index.manifest import Manifest
from ray_history.index.manifest import decode as decode_manifest

from . import messages
from .forked import can_fork, fork
from .order import BuildFailed, BuildOrder, Progress, Report
from .usage import disk_of, memory_of

_PAUSE = 0.05
"""Seconds between two looks at the memory of a process."""
_DISK_EVERY = 20
"""Looks at the memory for one at the disk."""


@dataclass(frozen=True, slots=True)
class Job:
    """An order with its limits. Those after the first are the limits of the process."""

    order: BuildOrder
    limits: Limits
    memory: int
    disk: int
    processor_seconds: int
    niceness: int

    def failed(self, reason: str) -> BuildFailed:
        match reason:
            case "memory":
                limit = f"{self.memory >> 20} MiB of memory; see --build-memory"
            case "time":
                limit = f"{self.processor_seconds} s of processor time; see --build-seconds"
            case _:
                limit = f"{self.disk >> 20} MiB of disk; see --cache-size"
        return BuildFailed(reason, f"rebuilding the session takes more than its limit of {limit}")  # type: ignore[arg-type]


class _Process(Protocol):
    """What a worker needs of its process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self) -> int:
        """Its exit status; minus the number of the signal that ended it."""


class Gone(Exception):
    """The process had ended before it got the order."""


class Worker:
    """For one thread, except for `end`."""

    def __init__(self, factory: bytes, directory: Path) -> None:
        """`factory`, pickled, makes the indexer in the process, which writes below the directory only."""
        with suppress(OSError):  # the cache says what is wrong
            directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._place = directory, _identity(directory)
        self._connection, theirs = Pipe()
        with theirs:
            self._process: _Process = fork(theirs, directory) if can_fork() else _run(theirs, directory)
        with suppress(OSError):  # it has ended already: the first order finds out
            self._connection.send_bytes(factory)  # now, so that it is ready when an order comes
        self.builds = 0

    @property
    def can_write(self) -> bool:
        """Whether its directory is still the one that it may write to, and was not made anew."""
        return _identity(self._directory) == self._place

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """Kill it; what it has written stays. Can be called from any thread, and again."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.end()
        self._connection.close()

    def build(self, job: Job, report: Report, cancel: CancelToken) -> Manifest:
        with cancel.calling(self._process.kill):
            self._send(job)
            self.builds += 1
            for message in self._messages(job, cancel):
                match message:
                    case messages.Progressed():
                        report(Progress(**msgspec.structs.asdict(message)))
                    case messages.Logged(level, name, text):
                        logging.getLogger(name).log(level, "%s", text)
                    case _:
                        return _result(message)
        raise AssertionError  # the messages end with a result

    def _send(self, job: Job) -> None:
        try:
            self._connection.send_bytes(pickle.dumps((job.order, job.limits, job.processor_seconds, job.niceness)))
        except OSError as error:
            raise Gone from error

    def _messages(self, job: Job, cancel: CancelToken) -> Iterator[messages.Message]:
        """What the process sends while it stays within its limits."""
        for look in count(1):
            try:
                while self._connection.poll(_PAUSE):
                    yield messages.decode(self._connection.recv_bytes())
            except (EOFError, OSError):
                cancel.check()
                raise self._failed(job) from None
            if memory_of(self.pid) > job.memory:
                raise job.failed("memory")
            if look % _DISK_EVERY == 0 and disk_of(job.order.directory) > job.disk:
                raise job.failed("disk")

    def _failed(self, job: Job) -> BuildFailed:
        """Why the process has ended by itself."""
        status = self._process.wait()
        if status == -signal.SIGXCPU:
            return job.failed("time")
        if status == -signal.SIGKILL:
            return BuildFailed("memory", "the system ended the process that rebuilt the session: memory is short")
        return BuildFailed("error", f"the process that rebuilt the session ended with status {status}")


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _run(connection: Connection, directory: Path) -> _Process:
    return subprocess.Popen(  # -P: without the modules of the working directory
        [sys.executable, "-P", "-m", f"{__package__}.process", str(connection.fileno()), str(directory)],
        pass_fds=[connection.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal must reach the server only
    )


def _result(message: messages.Message) -> Manifest:
    match message:
        case messages.Built(manifest):
            return decode_manifest(manifest)
        case messages.NotBuilt(reason, text):
            raise BuildFailed(reason, text)
        case messages.ArchiveFailed(name, text):
            raise getattr(errors, name, errors.ArchiveError)(text)
        case messages.SystemFailed(number, text):
            raise OSError(number, text)
    raise AssertionError(message)
