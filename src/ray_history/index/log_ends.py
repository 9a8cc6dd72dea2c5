"""The end of a head, from the last lines of its logs.

Ray's GCS and raylets log the signal by which they are stopped; one that is killed logs nothing. The GCS also logs which
jobs are finished: the event about the last one is often not sent any more, because a driver that started its cluster
itself stops it at its own end. The last 64 KiB of both logs are read, of several heads of the one that wrote last.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ray_history.archive.errors import ArchiveError
from ray_history.archive.log_files import LogFile, LogFiles

_GCS, _RAYLET = "gcs_server.out", "raylet.out"
_BYTES = 64 << 10
_MAX_LINE = 300
# The same in Ray 2.49 to 2.60. Raylets also log that they send SIGTERM to their workers, which says nothing.
_SHUTDOWN = re.compile(rb"^.*(?:GCS server received SIGTERM|: received SIGTERM\b).*$", re.MULTILINE)
_TIME = rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) "
_FINISHED = re.compile(_TIME + rb".*: Marking job as finished\. job_id=([0-9a-f]{8})\b")
_NODE_DIED = b"Node is dead, marking all jobs with drivers on this node as finished"


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


def read_end(logs: LogFiles, log_file: LogFile) -> dict[str, Any] | None:
    """The end of one log; None if it is empty or cannot be read.

    `shutdown` is the line that reports a signal to stop, empty if there is none; `last`, the time of the last line;
    `finished_jobs`, when jobs finished. Times are those of the head's zone, as text.
    """
    try:
        reader = logs.open(log_file)
        text = reader.read(max(reader.size - _BYTES, 0), reader.size)
    except ArchiveError:
        return None
    if not text:
        return None
    found = _SHUTDOWN.search(text)
    times = re.findall(rb"^" + _TIME, text, re.MULTILINE)
    return {
        "shutdown": found[0].decode(errors="replace")[:_MAX_LINE] if found else "",
        "last": times[-1].decode() if times else "",
        "finished_jobs": list(_finished_jobs(text)),
    }


def _finished_jobs(text: bytes) -> Iterator[dict[str, str]]:
    """Jobs that finished, and when; not those that their node took along."""
    is_death = False
    for line in text.splitlines():
        found = _FINISHED.match(line)
        if found and not is_death:
            yield {"job_id": found[2].decode(), "time": found[1].decode()}
        is_death = _NODE_DIED in line or (is_death and found is not None)


def _written(log_file: LogFile) -> tuple[float, str]:
    return log_file.modified.timestamp() if log_file.modified else 0.0, log_file.node
