"""Identifies the Ray node on this machine from its files: the current session, and the node id.

Ray (2.60) writes `metrics_export_port_<node id>` and the like into the session directory, and the raylet's log begins
with its node id. Both are on the shared volume, so no request is needed: no load on the head, and the logs of a node
that never started are stored too.

A raylet that restarts in the same session is another node. It opens a log of its own (`raylet.1.out`), which begins
with its id, before it or its workers write any other file; the port files follow a second or two later.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ray_history.archive.names import is_session
from ray_history.decoding import DECODING_ERRORS

_PORT_FILE = re.compile(r"(?P<what>[a-z_]+)_port_(?P<node>[0-9a-f]{56})")
_NODE_ID_IN_LOG = re.compile(rb"node_id=([0-9a-f]{56})")
_LOG_HEAD = 64 * 1024
_ports_by_raylet = msgspec.json.Decoder(dict[str, dict[str, int]])
_MIN_LOG, _MAX_SILENCE = 2048, 5.0
"""Bytes, and seconds since the last write: a raylet's log below both may not have its node id yet."""


@dataclass(frozen=True, slots=True)
class RaySession:
    """A session directory of Ray on this machine."""

    name: str
    directory: Path

    @property
    def logs(self) -> Path:
        return self.directory / "logs"


class RayNode:
    """Reads Ray's temporary directory, anew in every call, because Ray may restart at any time."""

    def __init__(
        self,
        root: Path,
        *,
        head: bool,
        node_id: str | None = None,
        session_dir: Path | None = None,
        lookup: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`lookup` finds the node id of the current session if no file shows it; it limits its own rate."""
        self._root = root
        self._lookup = lookup
        self._head = head
        self._fixed_id = node_id.lower() if node_id else None
        self._session_dir = session_dir
        self._nodes_seen: dict[str, str] = {}

    def current(self) -> RaySession | None:
        """The current or last session; None before Ray created one."""
        link = self._session_dir or self._root / "session_latest"
        try:
            directory = link.resolve(strict=True)
        except OSError:
            return None
        return _session(directory)

    def is_alive(self) -> bool:
        """Whether a raylet of the current session accepts connections on its socket."""
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

    def ended_sessions(self) -> list[RaySession]:
        """Earlier sessions whose directories still exist, oldest first."""
        current = self.current()
        found = [
            session
            for directory in self._root.glob("session_*")
            if not directory.is_symlink()
            and (session := _session(directory)) is not None
            and (current is None or session.name != current.name)
        ]
        return sorted(found, key=lambda session: session.name)

    def has_session(self, name: str) -> bool:
        """Whether a session of this name has a directory on this machine."""
        directory = self._root / name
        if not directory.is_symlink() and _session(directory) is not None:
            return True
        current = self.current()
        return current is not None and current.name == name

    def exports_events(self, session: str) -> bool:  # noqa: ARG002
        """Whether events of the session can be expected: False only if it is known that Ray exports none."""
        return True

    def node_seen(self, session: str, node: str) -> None:
        """Note that an event of the session came from this node: the only source if there are no files."""
        self._nodes_seen.setdefault(session, node)

    def node_id_of(self, name: str) -> str | None:
        """The node id in a session whose directory may be gone."""
        sessions = [session for session in (self.current(), *self.ended_sessions()) if session and session.name == name]
        return self.node_id(sessions[0]) if sessions else self._fixed_id or self._nodes_seen.get(name)

    def node_id(self, session: RaySession) -> str | None:
        """The node id in the session, from the most reliable source."""
        if self._fixed_id:
            return self._fixed_id
        return (
            self._from_files(session)
            or self._nodes_seen.get(session.name)
            or self._from_hook_file()
            or self._from_lookup(session)
        )

    def metrics_port(self, session: RaySession, node: str) -> int | None:
        """Port of the metrics page of the node's agent; Ray writes -1 if there is none."""
        try:
            port = int((session.directory / f"metrics_export_port_{node}").read_text())
        except FileNotFoundError:
            port = _only_metrics_port(session.directory)
        except (OSError, ValueError):
            return None
        return port if port > 0 else None

    def is_starting(self, session: RaySession) -> bool:
        """Whether a raylet with an unknown id may be starting, so that new files may be its own."""
        if self._fixed_id:
            return False
        young = time.time() - _MAX_SILENCE
        return any(not node and size < _MIN_LOG and at > young for node, at, size in _raylet_logs(session.logs))

    def _from_files(self, session: RaySession) -> str | None:
        """The newest node of this machine's role. Raylets of one machine share the directory; a head has a GCS port."""
        newest: dict[str, float] = {}
        heads: set[str] = set()
        for what, node, modified in _port_files(session.directory):
            newest[node] = max(newest.get(node, 0.0), modified)
            if what == "gcs_server":
                heads.add(node)
        for node, modified, _ in _raylet_logs(session.logs):
            if node:
                newest.setdefault(node, modified)  # the time of the last write, not of the start of its raylet
        wanted = [node for node in newest if (node in heads) == self._head] or list(newest)
        pick = min if self._head and not heads else max  # other raylets on the machine of a head start after it
        return pick(wanted, key=lambda node: newest[node], default=None)

    def _from_lookup(self, session: RaySession) -> str | None:
        current = self.current()
        answer = self._lookup() if current is not None and current.name == session.name else None
        if answer is not None:
            self.node_seen(session.name, answer)
        return answer

    def _from_hook_file(self) -> str | None:
        """In KubeRay's 1.6 samples, Ray's start hook writes this file."""
        try:
            text = (self._root / "raylet_node_id").read_text().strip().lower()
        except (OSError, UnicodeDecodeError):
            return None
        return text if re.fullmatch(r"[0-9a-f]{56}", text) else None


def _session(directory: Path) -> RaySession | None:
    return RaySession(directory.name, directory) if is_session(directory.name) and directory.is_dir() else None


def _port_files(directory: Path) -> Iterator[tuple[str, str, float]]:
    try:
        for path in directory.iterdir():
            if match := _PORT_FILE.fullmatch(path.name):
                yield match["what"], match["node"], path.stat().st_mtime
    except OSError:
        return


def _only_metrics_port(directory: Path) -> int:
    """The port in the file of Ray before 2.54, which lists raylets without their node ids; -1 if there are several."""
    try:
        raylets = _ports_by_raylet.decode((directory / "ports_by_node.json").read_bytes())
    except (OSError, *DECODING_ERRORS):
        return -1
    ports = [ports.get("metrics_export_port", -1) for ports in raylets.values()]
    return ports[0] if len(ports) == 1 else -1


def _raylet_logs(logs: Path) -> Iterator[tuple[str, float, int]]:
    """The node id of each log (or an empty string), the time of its last write, and its size."""
    for path in logs.glob("raylet*.out"):
        try:
            with path.open("rb") as file:
                match, status = _NODE_ID_IN_LOG.search(file.read(_LOG_HEAD)), os.fstat(file.fileno())
        except OSError:
            continue
        yield match[1].decode() if match else "", status.st_mtime, status.st_size
