"""The audit log: one line of JSON for each denial, sign-in and download. It never contains a token."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec
from starlette.types import Scope

logger = logging.getLogger("ray_history.audit")

_PEER = "ray_history.peer"
_READS_LOGS = re.compile(r".*/api/(v0/logs/[^/]+|v0/tasks/timeline|jobs/[^/]+/logs(/tail)?)/?", re.DOTALL)
"""Logs and timelines: they count as downloads even if they are shown rather than saved."""


def record(event: str, scope: Scope, who: str | None, **more: Any) -> None:
    entry = {
        "event": event,
        "who": who,
        "peer": scope.get(_PEER),
        "method": scope.get("method", "WEBSOCKET"),
        "path": scope["path"][:1000],
        "request": scope.get("ray_history.request_id"),
        **more,
    }
    logger.info("%s", msgspec.json.encode(entry).decode())


def with_peer(scope: Scope, peer: str) -> Scope:
    return {**scope, _PEER: peer}


def peer_of(scope: Scope) -> str:
    return str(scope[_PEER])


def is_download(path: str, headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether an answer is a file, or as large as one."""
    if any(name.lower() == b"content-disposition" and value.startswith(b"attachment") for name, value in headers):
        return True
    return _READS_LOGS.fullmatch(path) is not None
