"""The recorder of a command: a collector that follows the sessions of marked processes.

It loads the collector when the first process of Ray appears, so that a command without Ray costs nothing, and ends when
the command and its Ray have ended. If the parent dies, it records to the end all the same, without an exit code.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ray_history.log_setup import LogSettings, configure_logging

from . import messages
from .messages import Ended, Lines, Order, Recorded, RecordedSession, Started
from .processes import Watch

if TYPE_CHECKING:
    from .following import Following

logger = logging.getLogger(__name__)

_FIRST_PACE, _SLOWEST_PACE = 0.05, 0.5
"""Seconds between two looks until a session is found: a script may be over in two seconds."""
_PACE = 0.25
_END_OF_RAY = 4.0
"""Seconds in which Ray ends after the command that started it; longer is a Ray that is meant to stay."""
_LAST_POSTS = 0.2
"""Seconds in which an agent that has lost its raylet sends what it holds."""


class Recorder:
    """Watches, records, and reports to the parent."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._watch = Watch(order.mark)
        self._control = socket.socket(fileno=order.control)
        self._listener = socket.socket(fileno=order.listener)
        self._command: Started | None = None
        self._end: Ended | None = None
        self._has_ended = threading.Event()

    def run(self) -> bool:
        """Record until everything has ended; returns whether everything is in the archive."""
        threading.Thread(target=self._listen, name="parent", daemon=True).start()
        if not self._wait_for_ray():
            self._leave_nothing()
            self._report(Recorded())
            return True
        following = self._follow()
        while not self._has_ended.wait(_PACE):
            self._look(following)
        self._wait_for_end_of_ray()
        following.note_end(self._end, is_over=not self._running())
        if lasting := self._running():
            # The parent does not wait for a Ray that stays, such as one of `ray start`. It is recorded to its end.
            self._report(Recorded(self._sessions(following)))
            logger.info("going on with %s, which the command left running", ", ".join(lasting))
            while self._running():
                time.sleep(_PACE)
                self._look(following)
        time.sleep(_LAST_POSTS)
        is_complete = following.finish()
        if is_complete:
            self._leave_nothing()
        self._report(Recorded(self._sessions(following), is_complete))
        return is_complete

    def _listen(self) -> None:
        """Take what the parent tells; its death is the end of the command as far as anybody knows."""
        lines = Lines(self._control)
        with suppress(OSError, ValueError):
            if started := lines.next():
                self._command = Started(**started)
            if ended := lines.next():
                self._end = Ended(**ended)
        self._has_ended.set()

    def _wait_for_ray(self) -> bool:
        pace = _FIRST_PACE
        while True:
            is_last = self._has_ended.is_set()
            self._watch.look()
            if self._watch.sessions:
                return True
            if is_last:
                return False
            self._has_ended.wait(pace)
            pace = min(pace * 1.05, _SLOWEST_PACE)

    def _follow(self) -> Following:
        from .following import Following  # the collector takes 0.2 s to load

        following = Following(self._order, self._watch, self._listener)
        following.start()
        self._look(following)
        return following

    def _look(self, following: Following) -> None:
        self._watch.look()
        following.note_command(self._command)

    def _running(self) -> list[str]:
        self._watch.look()
        return [name for name, found in self._watch.sessions.items() if found.is_ours and found.is_running]

    def _wait_for_end_of_ray(self) -> None:
        deadline = time.monotonic() + _END_OF_RAY
        while time.monotonic() < deadline and self._running():
            time.sleep(0.05)

    def _sessions(self, following: Following) -> list[RecordedSession]:
        return [
            RecordedSession(name, found.is_ours, found.exports_to, found.is_running, following.events_of(name))
            for name, found in self._watch.sessions.items()
        ]

    def _leave_nothing(self) -> None:
        """Remove the spool, and the log."""
        shutil.rmtree(Path(self._order.home), ignore_errors=True)

    def _report(self, recorded: Recorded) -> None:
        with suppress(OSError):  # the parent did not wait
            self._control.sendall(messages.encode(recorded))


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    configure_logging(LogSettings())
    try:
        is_complete = Recorder(order).run()
    except Exception:
        logger.exception("the recorder failed")
        is_complete = False
    logging.shutdown()
    os._exit(0 if is_complete else 1)  # without waiting for threads that are blocked by a store


if __name__ == "__main__":
    main()
