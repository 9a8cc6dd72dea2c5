"""The Ray node beside us, as its files tell: which session runs, and which node this is.

Ray (2.60) leaves `metrics_export_port_<node id>` and the like in the session directory, and the raylet's log opens with
its node id. Both are on the volume we share with it, so that nothing has to be asked over the network: no load on the
head, and logs of a node that never came up are kept too.

A raylet that starts again in the same session is another node. It opens a log of its own (`raylet.1.out`) before it or
its workers write any other file, and tells its id there at once; the port files come a second or two later.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ray_history.archive.names import session_time

_PORT_FILE = re.compile(r"(?P<what>[a-z_]+)_port_(?P<node>[0-9a-f]{56})")
_NODE_ID_IN_LOG = re.compile(rb"node_id=([0-9a-f]{56})")
_LOG_HEAD = 64 * 1024
_FIRST_WORDS, _AT_ONCE = 2048, 5.0
"""A raylet's log that is shorter, written so many seconds ago, and does not tell its node yet, will do so."""


@dataclass(frozen=True, slots=True)
class RaySession:
    """A session directory of Ray on this machine."""

    name: str
    directory: Path

    @property
    def logs(self) -> Path:
        return self.directory / "logs"


class RayNode:
    """Looks at Ray's temporary directory; every call looks anew, because Ray may restart beside us."""

    def __init__(
        self,
        root: Path,
        *,
        head: bool,
        node_id: str | None = None,
        session_dir: Path | None = None,
        ask: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`ask` is called for the current session when nothing else tells the node; it minds itself how often."""
        self._root = root
        self._ask = ask
        self._head = head
        self._fixed_id = node_id.lower() if node_id else None
        self._session_dir = session_dir
        self._told: dict[str, str] = {}

    def current(self) -> RaySession | None:
        """The session that runs or ran last; None before Ray made one."""
        link = self._session_dir or self._root / "session_latest"
        try:
            directory = link.resolve(strict=True)
        except OSError:
            return None
        return _session(directory)

    def is_alive(self) -> bool:
        """Whether a raylet of the current session still answers on its socket."""
        session = self.current()
        if session is None:
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(session.directory / "sockets" / "raylet"))
            except OSError:
                return False
        return True

    def others(self) -> list[RaySession]:
        """Sessions of earlier lives of Ray whose directories are still there, oldest first."""
        current = self.current()
        found = [
            session
            for directory in self._root.glob("session_*")
            if not directory.is_symlink()
            and (session := _session(directory)) is not None
            and (current is None or session.name != current.name)
        ]
        return sorted(found, key=lambda session: session.name)

    def tell(self, session: str, node: str) -> None:
        """An event of the session came from this node; our only source where Ray left no files."""
        self._told.setdefault(session, node)

    def node_id_of(self, name: str) -> str | None:
        """The same for a session whose directory may be gone."""
        known = [session for session in (self.current(), *self.others()) if session and session.name == name]
        return self.node_id(known[0]) if known else self._fixed_id or self._told.get(name)

    def node_id(self, session: RaySession) -> str | None:
        """Which node this machine was in that session, by the surest sign there is."""
        if self._fixed_id:
            return self._fixed_id
        return (
            self._from_files(session) or self._told.get(session.name) or self._from_hook_file() or self._asked(session)
        )

    def metrics_port(self, session: RaySession, node: str) -> int | None:
        """Where the node's agent exports its own counters; Ray writes -1 when it exports none."""
        try:
            port = int((session.directory / f"metrics_export_port_{node}").read_text())
        except (OSError, ValueError):
            return None
        return port if port > 0 else None

    def is_starting(self, session: RaySession) -> bool:
        """Whether a raylet begins whose id is not known yet: new files may be its own."""
        if self._fixed_id:
            return False
        young = time.time() - _AT_ONCE
        return any(not node and size < _FIRST_WORDS and at > young for node, at, size in _raylet_logs(session.logs))

    def _from_files(self, session: RaySession) -> str | None:
        """Several raylets of one machine share the directory; the one with a GCS port is the head's."""
        newest: dict[str, float] = {}
        heads: set[str] = set()
        for what, node, modified in _port_files(session.directory):
            newest[node] = max(newest.get(node, 0.0), modified)
            if what == "gcs_server":
                heads.add(node)
        for node, modified, _ in _raylet_logs(session.logs):
            if node:
                newest.setdefault(node, modified)  # a log grows, which says nothing of when its raylet started
        wanted = [node for node in newest if (node in heads) == self._head] or list(newest)
        pick = min if self._head and not heads else max  # raylets beside a head come after it
        return pick(wanted, key=lambda node: newest[node], default=None)

    def _asked(self, session: RaySession) -> str | None:
        current = self.current()
        answer = self._ask() if current is not None and current.name == session.name else None
        if answer is not None:
            self.tell(session.name, answer)
        return answer

    def _from_hook_file(self) -> str | None:
        """KubeRay's 1.6 samples have Ray's start hook write this file."""
        try:
            text = (self._root / "raylet_node_id").read_text().strip().lower()
        except OSError:
            return None
        return text if re.fullmatch(r"[0-9a-f]{56}", text) else None


def _session(directory: Path) -> RaySession | None:
    return RaySession(directory.name, directory) if session_time(directory.name) and directory.is_dir() else None


def _port_files(directory: Path) -> Iterator[tuple[str, str, float]]:
    try:
        for path in directory.iterdir():
            if match := _PORT_FILE.fullmatch(path.name):
                yield match["what"], match["node"], path.stat().st_mtime
    except OSError:
        return


def _raylet_logs(logs: Path) -> Iterator[tuple[str, float, int]]:
    """Of each: the node that it tells, when it was last written, its size."""
    for path in logs.glob("raylet*.out"):
        try:
            with path.open("rb") as file:
                match, status = _NODE_ID_IN_LOG.search(file.read(_LOG_HEAD)), os.fstat(file.fileno())
        except OSError:
            continue
        yield match[1].decode() if match else "", status.st_mtime, status.st_size
