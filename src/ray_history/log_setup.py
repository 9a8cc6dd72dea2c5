"""Logging to stderr: one line per record, as text or JSON."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from ray_history.setting import setting

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


@dataclass(frozen=True)
class LogSettings:
    """Settings of every command."""

    log_level: str = setting("info", "Log level.", choices=LEVELS, variable="")
    log_format: str = setting("text", "Log format.", choices=FORMATS, variable="")


def configure_logging(settings: LogSettings) -> None:
    """Log to stderr from the given level on; libraries log errors only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLine() if settings.log_format == "json" else _TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    logging.getLogger("ray_history").setLevel(settings.log_level.upper())
    # Azure's SDK logs a traceback for what our own error says in one line.
    logging.getLogger("azure").setLevel(logging.CRITICAL)


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname.lower():7} {record.name.removeprefix('ray_history.')}: "
        line += " ".join(record.getMessage().splitlines())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
