"""The sessions of a command, as a collector follows them: the newest one, and those before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ray_history.collector.node.identity import RayNode, RaySession
from ray_history.collector.polling.dashboard_client import Answer, Dashboard, Unreachable

from .processes import FoundSession, Sessions

_ADDRESS = re.compile(r"Dashboard head http address: (\S+)|http server initialized at (\S+)")
_LOG_HEAD = 64 * 1024


class WatchedNode(RayNode):
    """The node of the sessions that were found."""

    def __init__(self, watch: Sessions, home: Path) -> None:
        super().__init__(home, head=True)
        self._watch = watch

    def current(self) -> RaySession | None:
        return next(iter(reversed(self._found())), None)

    def ended_sessions(self) -> list[RaySession]:
        return self._found()[:-1]

    def has_session(self, name: str) -> bool:
        return any(session.name == name for session in self._found())

    def exports_events(self, session: str) -> bool:
        found = self._watch.sessions.get(session)
        return found is None or found.is_ours

    def _found(self) -> list[RaySession]:
        found = [each.directory for each in list(self._watch.sessions.values()) if is_recorded(each)]
        return [RaySession(directory.name, directory) for directory in found if directory.is_dir()]


def is_recorded(session: FoundSession) -> bool:
    """Whether this recorder records the session; not one that another collector records."""
    return session.is_ours or not session.exports_to


class WatchedDashboard(Dashboard):
    """The dashboard of the current session, whose log has its address: 8265 may be that of another Ray."""

    def __init__(self, node: WatchedNode, token: Callable[[], str | None]) -> None:
        super().__init__("http://127.0.0.1:8265", token)
        self._node = node
        self._token_of_user = token

    def get(self, url: str, *, timeout: float) -> Answer:
        session = self._node.current()
        address = dashboard_address(session.logs) if session else ""
        if not address:
            raise Unreachable("the dashboard has not started yet")
        return Dashboard(f"http://{address}", self._token_of_user, turn=self.turn).get(url, timeout=timeout)


def dashboard_address(logs: Path) -> str:
    """`host:port` of the dashboard that writes these logs; empty before it listens."""
    with suppress(OSError), (logs / "dashboard.log").open(errors="replace") as file:
        if found := list(_ADDRESS.finditer(file.read(_LOG_HEAD))):
            return found[-1][1] or found[-1][2]
    return ""
