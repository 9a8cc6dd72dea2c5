"""Facts about the cluster from the first lines of Ray's logs, for sessions that were not polled.

`gcs_server.out` and `monitor.log`, which only a head has, contain the version (in the same form in Ray 2.49 to 2.60),
`monitor.log` also that of Python without the patch number; `raylet.out` and `gcs_server.out` the id of the cluster, and
`raylet.out` the place of the object store, from which the operating system follows. A few kilobytes of each are read,
from the nodes that have `gcs_server.out`. If none has, because the head's logs are lost, one node with `raylet.out` is
enough for the id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ray_history.archive.errors import ArchiveError
from ray_history.archive.log_files import LogFile, LogFiles

_GCS, _MONITOR, _RAYLET = "gcs_server.out", "monitor.log", "raylet.out"
_NAMES = (_GCS, _MONITOR, _RAYLET)
_BYTES = 16 << 10
_PATTERNS = {
    "ray_version": re.compile(rb"\bray[_ ]version[=:] ?([0-9][0-9A-Za-z.+-]{0,60})", re.IGNORECASE),
    "ray_commit": re.compile(rb"\bray[_ ]commit[=:] ?([0-9a-f]{40})\b", re.IGNORECASE),
    "python_version": re.compile(rb"using ray installation: \S*/python(\d+\.\d+)/"),
    "cluster_id": re.compile(rb"\bcluster[_ ]id(?:[=:]| to:) ?([0-9a-f]{56})\b", re.IGNORECASE),
}
_ON_LINUX = b"Starting object store with directory /dev/shm,"
"""Ray puts the object store there on Linux only."""


def has_facts(name: str) -> bool:
    """Whether the first lines of a log file are read."""
    return name in _NAMES


def with_facts(logs: Iterable[LogFile]) -> Sequence[LogFile]:
    """The log files of a session whose first lines are read."""
    found = {(log_file.node, log_file.name): log_file for log_file in logs if has_facts(log_file.name)}
    heads = {node for node, name in found if name == _GCS}
    if heads:
        return [log_file for (node, _), log_file in found.items() if node in heads]
    alone = [log_file for _, log_file in sorted(found.items())]
    raylets = [log_file for log_file in alone if log_file.name == _RAYLET][:1]
    return [log_file for log_file in alone if log_file.name == _MONITOR] + raylets


def read_facts(logs: LogFiles, log_file: LogFile) -> dict[str, str]:
    """The facts in the first lines of a log file; empty if it cannot be read, because they have other sources too."""
    try:
        text = logs.open(log_file).read(0, _BYTES)
    except ArchiveError:
        return {}
    facts = {name: match[1].decode() for name, pattern in _PATTERNS.items() if (match := pattern.search(text))}
    return facts | {"os": "linux"} if _ON_LINUX in text else facts
