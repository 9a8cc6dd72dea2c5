"""The shutdown of a head, from the last lines of its logs.

Ray's GCS and raylets log the signal by which they are stopped; one that is killed logs nothing. The last 64 KiB of both
logs are read, of several heads of the one that wrote last.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ray_history.archive.errors import ArchiveError
from ray_history.archive.log_files import LogFile, LogFiles

_GCS, _RAYLET = "gcs_server.out", "raylet.out"
_BYTES = 64 << 10
_MAX_LINE = 300
# The same in Ray 2.49 to 2.60. Raylets also log that they send SIGTERM to their workers, which says nothing.
_SHUTDOWN = re.compile(rb"^.*(?:GCS server received SIGTERM|: received SIGTERM\b).*$", re.MULTILINE)


def has_end(name: str) -> bool:
    """Whether the last lines of a log file are read."""
    return name in (_GCS, _RAYLET)


def with_ends(logs: Iterable[LogFile]) -> Sequence[LogFile]:
    """The log files of a session whose last lines are read: those of its last head."""
    by_node: dict[str, dict[str, LogFile]] = defaultdict(dict)
    for log_file in logs:
        if has_end(log_file.name):
            by_node[log_file.node][log_file.name] = log_file
    heads = [files for files in by_node.values() if _GCS in files]
    return list(max(heads, key=lambda files: _written(files[_GCS])).values()) if heads else []


def read_end(logs: LogFiles, log_file: LogFile) -> dict[str, str] | None:
    """The line that reports a signal to stop, empty if there is none; None if the log is empty or cannot be read."""
    try:
        reader = logs.open(log_file)
        text = reader.read(max(reader.size - _BYTES, 0), reader.size)
    except ArchiveError:
        return None
    if not text:
        return None
    found = _SHUTDOWN.search(text)
    return {"shutdown": found[0].decode(errors="replace")[:_MAX_LINE] if found else ""}


def _written(log_file: LogFile) -> tuple[float, str]:
    return log_file.modified.timestamp() if log_file.modified else 0.0, log_file.node
