"""The audit log: one line of JSON for everything that was denied, signed in or downloaded. Never a token."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec
from starlette.types import Scope

logger = logging.getLogger("ray_history.audit")

_PEER = "ray_history.peer"
_READS_LOGS = re.compile(r".*/api/(v0/logs/[^/]+|v0/tasks/timeline|jobs/[^/]+/logs(/tail)?)/?", re.DOTALL)
"""What is read at length, whether or not it is sent as a file to save."""


def told(event: str, scope: Scope, who: str | None, **more: Any) -> None:
    """One line: what happened, to whom, from where, on which request."""
    fact = {
        "event": event,
        "who": who,
        "peer": scope.get(_PEER),
        "method": scope.get("method", "WEBSOCKET"),
        "path": scope["path"][:1000],
        "request": scope.get("ray_history.request_id"),
        **more,
    }
    logger.info("%s", msgspec.json.encode(fact).decode())


def from_peer(scope: Scope, peer: str) -> Scope:
    return {**scope, _PEER: peer}


def peer_of(scope: Scope) -> str:
    return str(scope[_PEER])


def is_download(path: str, headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether an answer hands out a file, or what is as large as one."""
    if any(name.lower() == b"content-disposition" and value.startswith(b"attachment") for name, value in headers):
        return True
    return _READS_LOGS.fullmatch(path) is not None
