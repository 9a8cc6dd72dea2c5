"""Runs a command beside its recorder: same output, same terminal, same signals, same exit code.

Invariants:
* the command inherits stdin, stdout and stderr, its process group and its terminal;
* a signal that another process sends to this one is forwarded; one of the terminal reaches the command by itself;
* whatever happens to the recorder, the command runs, and its exit code or signal becomes that of this process.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from . import messages
from .environment import environment_of_command

_FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
}
_STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_WAIT = 40.0
"""Seconds to wait for the recorder after the command has ended; then it goes on alone."""


class CannotStart(Exception):
    """The command cannot be started; `code` is the exit code that a shell has for it."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"{command}: {error.strerror}")
        self.code = 127 if isinstance(error, FileNotFoundError) else 126


@dataclass(frozen=True)
class Outcome:
    """How the command ended, and what was recorded of it; None if the recorder has not finished."""

    returncode: int
    """As in `subprocess`: a signal is a negative number."""
    recorded: messages.Recorded | None


def run(words: Sequence[str], *, storage: dict[str, Any], namespace: str, cluster: str, home: Path) -> Outcome:
    """Run the command to its end, and wait until it is recorded. `home` is an empty directory."""
    mark = f"{os.getpid()}-{time.time_ns()}"
    # Held from here on, and handed over: no other program can take the port, and Ray's first events wait in it.
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    near, far = socket.socketpair()
    order = messages.Order(mark, storage, namespace, cluster, str(home), listener.fileno(), far.fileno())
    start_recorder(order, home)
    far.close()
    environ = environment_of_command(listener.getsockname()[1], mark, os.environ)
    listener.close()
    # Taken one by one below. They are blocked in the recorder's stead, which has a session of its own.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED | {signal.SIGCHLD})
    try:
        process = subprocess.Popen(
            list(words),
            env=environ,
            close_fds=False,  # `<(...)` of a shell and the job server of make are inherited descriptors
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before) and None,
        )
    except OSError as error:
        raise CannotStart(words[0], error) from None
    _send(near, messages.Started(list(words), os.getcwd(), process.pid, time.time()))
    stopped_by = _wait(process)
    code = process.returncode
    name = signal.Signals(-code).name if code < 0 else ""
    _send(near, messages.Ended(time.time(), code if code >= 0 else None, name, stopped_by))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)  # from here on, Ctrl-C only ends the waiting
    return Outcome(code, _answer(near))


def start_recorder(order: messages.Order, home: Path) -> None:
    """Start the recorder, which inherits the sockets of its order."""
    with (home / "recorder.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "ray_history.local.recorder", messages.encode(order).decode()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # neither Ctrl-C nor the end of the terminal reaches it
            pass_fds=(order.listener, order.control),
        )


def _wait(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end of the command; returns the signal with which its user stopped it, if any."""
    stopped_by = ""
    while process.poll() is None:
        received = signal.sigtimedwait(_FORWARDED | {signal.SIGCHLD}, 1.0)
        if received is None or received.si_signo == signal.SIGCHLD:
            continue
        number = signal.Signals(received.si_signo)
        if received.si_code <= 0:  # sent by a process; those of a terminal have reached the command, too
            process.send_signal(number)
        if number in _STOPS:
            stopped_by = stopped_by or number.name
    return stopped_by


def _send(connection: socket.socket, message: messages.Started | messages.Ended) -> None:
    with suppress(OSError):  # a recorder that died is reported at the end
        connection.sendall(messages.encode(message))


def _answer(connection: socket.socket) -> messages.Recorded | None:
    connection.settimeout(_WAIT)
    try:
        line = connection.makefile("rb").readline()
    except (OSError, KeyboardInterrupt):
        return None
    return messages.decode_recorded(line) if line.endswith(b"\n") else None


def leave(returncode: int) -> NoReturn:
    """End as the command did, so that a shell or a supervisor sees the same."""
    sys.stdout.flush()
    sys.stderr.flush()
    if returncode >= 0:
        os._exit(returncode)
    number = -returncode
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
