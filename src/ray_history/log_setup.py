"""What the programs tell about themselves: one line per fact on stderr, as text or JSON."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def configure_logging(level: str, form: str) -> None:
    """Send everything from `level` up to stderr; libraries only speak when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLine() if form == "json" else _TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    logging.getLogger("ray_history").setLevel(level.upper())
    logging.getLogger("azure").setLevel(logging.CRITICAL)  # our own error says it in one line


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname.lower():7} {record.name.removeprefix('ray_history.')}: "
        line += " ".join(record.getMessage().splitlines())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fact = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fact["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fact).decode()
