"""What the parent and its recorder tell each other: one JSON object per line, on a pair of sockets."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Order:
    """What the recorder is to do; an argument of its process."""

    mark: str
    storage: dict[str, Any]
    """The fields of `StorageOptions`."""
    namespace: str
    cluster: str
    home: str
    """A directory for the spool and the log of this recorder alone."""
    listener: int
    control: int
    """Inherited descriptors: the socket to which Ray sends its events, and the one to the parent."""


@dataclass(frozen=True)
class Started:
    """The command runs."""

    arguments: list[str]
    directory: str
    pid: int
    started: float


@dataclass(frozen=True)
class Ended:
    """The command ended."""

    ended: float
    exit_code: int | None
    """None if a signal ended it."""
    signal: str = ""
    """The signal that ended it."""
    stopped_by: str = ""
    """The signal that its user sent it before, such as SIGINT."""


@dataclass(frozen=True)
class RecordedSession:
    """What became of a session."""

    name: str
    is_ours: bool
    exports_to: str
    is_running: bool
    events: int
    """How many events of it arrived."""


@dataclass(frozen=True)
class Recorded:
    """What the recorder did."""

    sessions: list[RecordedSession] = field(default_factory=list)
    is_complete: bool = True
    """Whether everything that was received is in the archive."""


def encode(message: Order | Started | Ended | Recorded) -> bytes:
    return json.dumps(asdict(message)).encode() + b"\n"


def decode_recorded(line: bytes) -> Recorded:
    fields = json.loads(line)
    sessions = [RecordedSession(**session) for session in fields.pop("sessions")]
    return Recorded(sessions, **fields)


class Lines:
    """The lines that arrive at a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def next(self) -> dict[str, Any] | None:
        """The next line; None if the other end is closed."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        return found
