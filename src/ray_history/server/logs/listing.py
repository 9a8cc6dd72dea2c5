"""The log files of a node: `/api/v0/logs`."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from starlette.responses import Response

from ray_history.server.http.query_params import integer
from ray_history.server.http.responses import ApiError, enveloped
from ray_history.server.logs.targets import requested_nodes
from ray_history.server.sessions.endpoint import SessionRequest

_MAX_GLOB_LENGTH = 1000

_CATEGORIES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("worker_out", lambda name: "worker" in name and name.endswith(".out")),
    ("worker_err", lambda name: "worker" in name and name.endswith(".err")),
    ("core_worker", lambda name: "core-worker" in name and name.endswith(".log")),
    ("driver", lambda name: "core-driver" in name and name.endswith(".log")),
    ("raylet", lambda name: "raylet." in name),
    ("gcs_server", lambda name: "gcs_server." in name),
    ("internal", lambda name: "log_monitor" in name),
    ("autoscaler", lambda name: "monitor" in name),
    ("agent", lambda name: "agent." in name),
    ("dashboard", lambda name: "dashboard." in name),
)
"""The first match is the category of a file, as in Ray; without a match it is `internal`."""


def list_logs(request: SessionRequest) -> Response:
    """The names of a node's log files and of their directories, by category."""
    integer(request.query, "timeout", 30, minimum=0)
    glob = Glob.parse(request.query.get("glob") or "*")
    (node, *_) = requested_nodes(request)
    categories: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(_names(names_of(request, node))):
        if glob.matches(name):
            categories[next((category for category, holds in _CATEGORIES if holds(name)), "internal")].append(name)
    return enveloped({"result": categories})


def names_of(request: SessionRequest, node: str) -> set[str]:
    """The names of a node's log files, and of directories without files, which end with a slash."""
    ledger = request.open.ledgers.get(node)
    empty = {f"{name.strip('/')}/" for name in ledger.logs.empty_directories} if ledger else set()
    return {file.name for file in request.open.logs.list(node)} | empty


def _names(names: set[str]) -> set[str]:
    """The names, and those of the directories above."""
    return names | {f"{folder}/" for name in names for folder in map(str, PurePosixPath(name).parents) if folder != "."}


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern as `pathlib` has it: `*` matches within a folder, `**` any number of folders.

    Matching costs at most the parts of the name times those of the pattern between two `**`: neither this nor `fnmatch`
    backtracks.
    """

    parts: tuple[re.Pattern[str] | None, ...]
    """None for `**`."""
    folders_only: bool

    @classmethod
    def parse(cls, pattern: str) -> Glob:
        written = PurePosixPath(pattern).parts
        parts = [part for part, before in zip(written, ("", *written), strict=False) if not part == before == "**"]
        if pattern.startswith("/") or ".." in parts or "\0" in pattern:
            raise ApiError(
                400, f"Invalid glob filter: {pattern[:80]}. It must be a relative path and cannot contain '..'."
            )
        if not parts or len(pattern) > _MAX_GLOB_LENGTH or any("**" in part and part != "**" for part in parts):
            raise ApiError(
                400,
                f"Invalid glob filter: {pattern[:80]}. It may have at most {_MAX_GLOB_LENGTH} characters, "
                "and '**' only as an entire path component.",
            )
        compiled = (None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts)
        return cls(tuple(compiled), pattern.endswith("/") or parts[-1] == "**")

    def matches(self, name: str) -> bool:
        if self.folders_only and not name.endswith("/"):
            return False
        positions = self._skip_wildcards({0})
        for piece in name.rstrip("/").split("/"):
            positions = self._skip_wildcards({after for at in positions for after in self._after(at, piece)})
        return len(self.parts) in positions

    def _after(self, position: int, piece: str) -> tuple[int, ...]:
        """The position in the pattern after one part of a name; none if that does not match."""
        if position == len(self.parts):
            return ()
        part = self.parts[position]
        if part is None:
            return (position,)
        return (position + 1,) if part.match(piece) else ()

    def _skip_wildcards(self, positions: set[int]) -> set[int]:
        """The positions, and those behind each `**`, which may match no folder at all."""
        wildcards = {position for position in positions if position < len(self.parts) and self.parts[position] is None}
        # What follows a `**` may begin anywhere behind it, so that positions before it lead to nothing else.
        latest = max(wildcards, default=0)
        return {position for position in positions if position >= latest} | ({latest + 1} if wildcards else set())
