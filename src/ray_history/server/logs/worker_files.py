"""The log files of workers: Ray names them by worker, job and process."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ray_history.archive.log_files import LogFile, LogFiles

_WORKER = re.compile(r"(?:.*/)?worker-(?P<worker>[0-9a-f]+)-(?P<job>[0-9a-f]+)-(?P<pid>[0-9]+)\.(?P<suffix>out|err)")


def worker_file(logs: LogFiles, node: str | None, worker: str | None, suffix: str) -> LogFile | None:
    """The output of a worker, if its node has it."""
    if not node or not worker or node not in logs.nodes():
        return None
    found = list(worker_files(logs, node, suffix, worker=worker))
    return max(found, key=lambda file: file.size) if found else None  # `old/` may have a longer one


def worker_files(logs: LogFiles, node: str, suffix: str, *, worker: str = "", pid: str = "") -> Iterator[LogFile]:
    for file in logs.list(node):
        match = _WORKER.fullmatch(file.name)
        if match and match["suffix"] == suffix and worker in ("", match["worker"]) and pid in ("", match["pid"]):
            yield file


def other_stream(logs: LogFiles, file: LogFile) -> LogFile | None:
    """The standard error of a worker whose output this is, and the other way round."""
    match = _WORKER.fullmatch(file.name)
    if match is None:
        return None
    suffix = "err" if match["suffix"] == "out" else "out"
    found = worker_files(logs, file.node, suffix, worker=match["worker"], pid=match["pid"])
    return max(found, key=lambda each: each.size, default=None)
