"""What Ray's processes say of their cluster at the top of their logs, for sessions whose dashboard nobody polled.

`gcs_server.out` and `monitor.log`, which only a head has, name the version (alike in Ray 2.49 to 2.60), `raylet.out`
and `gcs_server.out` the cluster's id. A few kilobytes of each are read, from the nodes that have `gcs_server.out`;
where none has it, because the head's logs are lost, from one node that has `raylet.out`: its id is that of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ray_history.archive.errors import ArchiveError
from ray_history.archive.log_files import LogFile, LogFiles

_GCS, _MONITOR, _RAYLET = "gcs_server.out", "monitor.log", "raylet.out"
_NAMES = (_GCS, _MONITOR, _RAYLET)
_BYTES = 16 << 10
_SAID = {
    "ray_version": re.compile(rb"\bray[_ ]version[=:] ?([0-9][0-9A-Za-z.+-]{0,60})", re.IGNORECASE),
    "ray_commit": re.compile(rb"\bray[_ ]commit[=:] ?([0-9a-f]{40})\b", re.IGNORECASE),
    "cluster_id": re.compile(rb"\bcluster[_ ]id(?:[=:]| to:) ?([0-9a-f]{56})\b", re.IGNORECASE),
}


def is_told_by_head(name: str) -> bool:
    """Whether the top of a log file is read."""
    return name in _NAMES


def with_heads(logs: Iterable[LogFile]) -> Sequence[LogFile]:
    """Those of a session's log files whose tops are worth reading."""
    found = {(log_file.node, log_file.name): log_file for log_file in logs if is_told_by_head(log_file.name)}
    heads = {node for node, name in found if name == _GCS}
    if heads:
        return [log_file for (node, _), log_file in found.items() if node in heads]
    alone = [log_file for _, log_file in sorted(found.items())]
    raylets = [log_file for log_file in alone if log_file.name == _RAYLET][:1]
    return [log_file for log_file in alone if log_file.name == _MONITOR] + raylets


def read_head(logs: LogFiles, log_file: LogFile) -> dict[str, str]:
    """What the top of a log file says; nothing if it cannot be read: this is never all that is known."""
    try:
        text = logs.open(log_file).read(0, _BYTES)
    except ArchiveError:
        return {}
    return {name: said[1].decode() for name, pattern in _SAID.items() if (said := pattern.search(text))}
