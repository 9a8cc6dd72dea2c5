"""A log as pages show it: in windows, without secrets."""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFile, LogReader
from ray_history.server.logs.stream import find_again
from ray_history.server.logs.targets import Target
from ray_history.server.logs.windows import LogWindows
from ray_history.server.redaction.log_lines import written_by_ray
from ray_history.server.sessions.endpoint import SessionRequest


@dataclass(frozen=True, slots=True)
class LogView:
    """An open log, or the part of it that a task wrote."""

    file: LogFile
    reader: LogReader
    windows: LogWindows


def log_view(request: SessionRequest, target: Target) -> LogView:
    file, reader = target.file, _reader(request, target)
    redact = written_by_ray(file.name) if request.redact else None
    high = reader.size if target.end is None else target.end
    return LogView(file, reader, LogWindows(reader, target.start, high, redact))


def _reader(request: SessionRequest, target: Target) -> LogReader:
    logs = request.open.logs
    try:
        return logs.open(target.file)
    except NotFound:  # since it was listed, its tails may have been replaced by a whole object
        newer, file = find_again(request.open.files, logs, target.file)
        return newer.open(file)
