"""How a session ended, and what shows it.

A session without a word for its end is `ended`: nothing in the archive says whether Ray was stopped or killed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ray_history.archive.errors import ArchiveError
from ray_history.archive.ledger import UNREACHABLE
from ray_history.archive.log_files import LogFile
from ray_history.server.formatting import clip
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session

Word = Literal["live", "ended", "stopped", "killed", "lost contact", "unknown"]

_GCS, _RAYLET = "gcs_server.out", "raylet.out"
_LAST_BYTES = 64 << 10
# As Ray 2.60 writes it. Raylets also send SIGTERM to their workers, which says nothing.
_SHUTDOWN = re.compile(rb"^.*(?:GCS server received SIGTERM|: received SIGTERM\b).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ending:
    word: Word
    evidence: str


@cached_per_session
def ending(request: SessionRequest) -> Ending:
    """The word for the end of a session, as badges show it."""
    session = request.open
    if session.state == "live":
        return Ending("live", "Its collectors still send heartbeats.")
    if session.state == "lost":
        return Ending("lost contact", "The heartbeats stopped without a shutdown. It may have run on after that.")
    if session.state == "unknown":
        return Ending("unknown", "The archive has neither a ledger nor a file of it.")
    head_logs = _head_logs(request)
    if line := next(filter(None, (_shutdown_line(request, file) for file in head_logs)), ""):
        return Ending("stopped", f"Ray received a signal to stop: {line}")
    if head_logs and _is_unreachable_at_the_end(request):
        return Ending(
            "killed",
            f"The dashboard was gone while the collector still ran, and {_GCS} reports no shutdown.",
        )
    if session.signs.is_shut_down:
        return Ending("ended", "Its collectors shut down cleanly.")
    return Ending("ended", "The time of its last sign of life: its collectors wrote no ledger.")


def _head_logs(request: SessionRequest) -> list[LogFile]:
    """The logs of the GCS and of the head's raylet; of several heads those that were written last."""
    logs = request.open.logs
    heads = []
    for node in logs.nodes():
        files = {file.name: file for file in logs.list(node)}
        if _GCS in files:
            written = files[_GCS].modified
            heads.append((written.timestamp() if written else 0.0, node, files))
    if not heads:
        return []
    _, _, files = max(heads, key=lambda head: head[:2])
    return [files[name] for name in (_GCS, _RAYLET) if name in files]


def _shutdown_line(request: SessionRequest, file: LogFile) -> str:
    """The line in which a process of Ray reports a signal to stop; empty without one."""
    try:
        reader = request.open.logs.open(file)
        text = reader.read(max(reader.size - _LAST_BYTES, 0), reader.size)
    except ArchiveError:
        return ""  # opening the log reports the error
    found = _SHUTDOWN.search(text)
    return f"{file.name}: {clip(request.redacted(found[0].decode(errors='replace')), 200)}" if found else ""


def _is_unreachable_at_the_end(request: SessionRequest) -> bool:
    """Whether the head's collector, which polls once more before it ends, no longer reached the dashboard."""
    heads = [ledger for ledger in request.open.ledgers.values() if ledger.role == "head"]
    newest = max(heads, key=lambda ledger: ledger.started, default=None)
    if newest is None or not newest.is_graceful:
        return False
    asked = newest.polled.values()
    return any(each.newest == UNREACHABLE for each in asked) and any("answered" in each.since for each in asked)
