"""Records a Ray that runs already, in this process: its logs and its state, since it sends no events.

Ray reads the variables for exporting events only when it starts. Its state API still knows the tasks and actors of the
moment, up to 10,000 of each.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .following import Following
from .messages import Order
from .processes import FoundSession, OneSession, running_sessions

_PACE = 0.5
_STARTS_WITHIN = 15.0


class CannotAttach(Exception):
    """There is no session to record; the message says why."""


@dataclass(frozen=True)
class Attached:
    """What became of the recording."""

    is_complete: bool
    is_left_running: bool


def find_session(directory: Path | None) -> FoundSession:
    """The session to record: of several that run, the one with this directory."""
    running = running_sessions()
    if directory is not None:
        running = [found for found in running if found.directory.name == directory.resolve().name]
    if not running:
        where = f"in {directory}" if directory else "on this machine"
        raise CannotAttach(f"no Ray of this user runs {where}")
    if len(running) > 1:
        names = ", ".join(str(found.directory) for found in running)
        raise CannotAttach(f"several sessions run: choose one with --session-dir: {names}")
    (found,) = running
    if found.exports_to:
        raise CannotAttach(f"{found.directory.name} sends its events to {found.exports_to}: it is recorded already")
    return found


def attach(
    found: FoundSession,
    storage: dict[str, Any],
    names: tuple[str, str],
    home: Path,
    is_over: Callable[[], bool],
) -> Attached:
    """Record a session until it ends or `is_over`; at least once."""
    listener = socket.create_server(("127.0.0.1", 0))
    order = Order("", storage, *names, str(home), listener.fileno(), -1)
    sessions = OneSession(found)
    following = Following(order, sessions, listener)
    following.start()
    following.wait_until_listed(_STARTS_WITHIN)
    while found.is_running and not is_over():
        time.sleep(_PACE)
        sessions.look()
    is_complete = following.finish()
    return Attached(is_complete, found.is_running)
