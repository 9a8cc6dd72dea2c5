"""Finds the processes of a command by the mark in their environment, and the sessions of Ray that they have open.

Nothing else names them reliably: `session_latest` is that of the newest Ray of any user, the port of the dashboard is
another one if 8265 is taken, and a script may choose the temporary directory, start Ray several times, or connect to a
Ray that runs already. Linux only: other systems do not show the environment of a process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .environment import export_address_in, mark_in

_SESSION = re.compile(r"(/[^\0\s=]*?/session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{1,9}_\d{1,9})(?=[/\0\s]|$)")
_RAYLET = re.compile(r"/raylet\0.*--node_manager_port=", re.DOTALL)
_PROC = Path("/proc")
_LOOKS = 3


@dataclass
class FoundSession:
    """A session that the command used."""

    directory: Path
    is_ours: bool = False
    """Whether the command started it: a raylet of it has the mark."""
    exports_to: str = ""
    """Of a session that ran before the command: where it sends its events; empty for nowhere."""
    is_running: bool = False
    """Whether a raylet of it runs; others of its processes may outlive it by seconds."""


class Sessions(Protocol):
    """Sessions that are looked for again and again."""

    sessions: dict[str, FoundSession]

    def look(self) -> None:
        """Bring them up to date."""


class Watch:
    """The sessions of the processes with a mark, in the order in which they were found."""

    def __init__(self, mark: str, proc: Path = _PROC) -> None:
        self._mark, self._proc = mark, proc
        self._marked: set[int] = set()
        self._unmarked: dict[int, int] = {}
        """By process: how often it was found without the mark."""
        self.sessions: dict[str, FoundSession] = {}

    def look(self) -> None:
        """Look at all processes; at the environment of new ones only."""
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()} - {os.getpid(), os.getppid()}
        self._marked &= pids
        self._unmarked = {pid: looks for pid, looks in self._unmarked.items() if pid in pids}
        for pid in pids - self._marked:
            # A process gets its environment between fork and exec, so the first look may be too early.
            if (looks := self._unmarked.get(pid, 0)) < _LOOKS:
                if mark_in(self._read(pid, "environ"), self._mark):
                    self._marked.add(pid)
                    self._unmarked.pop(pid, None)
                else:
                    self._unmarked[pid] = looks + 1
        self._look_at_marked()

    def _look_at_marked(self) -> None:
        running: set[str] = set()
        for pid in self._marked:
            line = self._read(pid, "cmdline").decode(errors="replace")
            is_raylet = _RAYLET.search(line) is not None
            for directory in self._open_sessions(pid, line):
                found = self.sessions.setdefault(directory.name, FoundSession(directory))
                found.is_ours |= is_raylet
                if is_raylet:
                    running.add(directory.name)
        self._look_for_others(running)
        for name, found in self.sessions.items():
            found.is_running = name in running

    def _look_for_others(self, running: set[str]) -> None:
        """Find the raylets of sessions that ran before the command."""
        others = {name: found for name, found in self.sessions.items() if not found.is_ours}
        if not others:
            return
        for session in running_sessions(self._proc):
            if found := others.get(session.directory.name):
                running.add(session.directory.name)
                found.exports_to = session.exports_to

    def _open_sessions(self, pid: int, line: str) -> Iterator[Path]:
        names = [line]
        with suppress(OSError):
            for file in os.listdir(self._proc / str(pid) / "fd"):
                with suppress(OSError):  # a busy raylet opens and closes files all the time
                    names.append(os.readlink(self._proc / str(pid) / "fd" / file))
        yield from _sessions_in("\0".join(names))

    def _read(self, pid: int, file: str) -> bytes:
        return _read(self._proc, pid, file)


class OneSession:
    """One session, which any process may have started."""

    def __init__(self, found: FoundSession, proc: Path = _PROC) -> None:
        self._proc, self._name = proc, found.directory.name
        self.sessions = {self._name: found}

    def look(self) -> None:
        self.sessions[self._name].is_running = any(
            found.directory.name == self._name for found in running_sessions(self._proc)
        )


def running_sessions(proc: Path = _PROC) -> list[FoundSession]:
    """The sessions whose raylets run on this machine, as far as this user may see them."""
    found: dict[Path, FoundSession] = {}
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        line = _read(proc, pid, "cmdline").decode(errors="replace")
        if _RAYLET.search(line):
            for directory in _sessions_in(line):
                session = found.setdefault(directory, FoundSession(directory, is_running=True))
                session.exports_to = session.exports_to or export_address_in(_read(proc, pid, "environ"))
    return list(found.values())


def _read(proc: Path, pid: int, file: str) -> bytes:
    try:
        return (proc / str(pid) / file).read_bytes()
    except OSError:  # ended since, or of another user
        return b""


def _sessions_in(text: str) -> Iterator[Path]:
    yield from dict.fromkeys(Path(found[1]) for found in _SESSION.finditer(text))
