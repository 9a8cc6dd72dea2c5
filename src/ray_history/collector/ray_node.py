"""The Ray node beside us, as its files tell: which session runs, and which node this is.

Ray (2.60) leaves `metrics_export_port_<node id>` and the like in the session directory, and the raylet's log opens with
its node id. Both are on the volume we share with it, so that nothing has to be asked over the network: no load on the
head, and logs of a node that never came up are kept too.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..archive.names import session_time

_PORT_FILE = re.compile(r"(?P<what>[a-z_]+)_port_(?P<node>[0-9a-f]{56})")
_NODE_ID_IN_LOG = re.compile(rb"node_id=([0-9a-f]{56})")
_LOG_HEAD = 64 * 1024


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
            self._from_port_files(session)
            or _from_raylet_log(session)
            or self._told.get(session.name)
            or self._from_hook_file()
            or self._asked(session)
        )

    def metrics_port(self, session: RaySession, node: str) -> int | None:
        """Where the node's agent exports its own counters; Ray writes -1 when it exports none."""
        try:
            port = int((session.directory / f"metrics_export_port_{node}").read_text())
        except (OSError, ValueError):
            return None
        return port if port > 0 else None

    def _from_port_files(self, session: RaySession) -> str | None:
        """Several raylets of one machine share the directory; the one with a GCS port is the head's."""
        newest: dict[str, float] = {}
        heads: set[str] = set()
        for what, node, modified in _port_files(session.directory):
            newest[node] = max(newest.get(node, 0.0), modified)
            if what == "gcs_server":
                heads.add(node)
        wanted = [node for node in newest if (node in heads) == self._head] or list(newest)
        return max(wanted, key=lambda node: newest[node], default=None)

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


def _from_raylet_log(session: RaySession) -> str | None:
    try:
        with (session.logs / "raylet.out").open("rb") as file:
            match = _NODE_ID_IN_LOG.search(file.read(_LOG_HEAD))
    except OSError:
        return None
    return match[1].decode() if match else None
