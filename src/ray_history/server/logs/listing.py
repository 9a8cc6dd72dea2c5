"""Which log files a node left: `/api/v0/logs`."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from starlette.responses import Response

from ray_history.archive.log_files import LogFiles
from ray_history.server.http.query_params import integer
from ray_history.server.http.responses import ApiError, enveloped
from ray_history.server.logs.targets import nodes_meant
from ray_history.server.sessions.endpoint import SessionRequest

_LONGEST_GLOB = 1000

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
"""The first that fits is a file's category, as in Ray; `internal` when none does."""


def list_logs(request: SessionRequest) -> Response:
    """The names of a node's log files, and of directories with files in them, by category."""
    integer(request.query, "timeout", 30, least=0)
    fits = glob_test(request.query.get("glob") or "*")
    (node, *_) = nodes_meant(request)
    categories: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(_names(request.open.logs, node)):
        if fits(name):
            categories[next((category for category, holds in _CATEGORIES if holds(name)), "internal")].append(name)
    return enveloped({"result": categories})


def _names(logs: LogFiles, node: str) -> set[str]:
    names = {file.name for file in logs.list(node)}
    return names | {f"{folder}/" for name in names for folder in map(str, PurePosixPath(name).parents) if folder != "."}


def glob_test(pattern: str) -> Callable[[str], bool]:
    """Whether a name fits, as `pathlib` globs below a directory: `*` stays inside a folder, `**` is any folders.

    Costs at most the parts of the name times those of the pattern; `fnmatch` itself does not backtrack.
    """
    parts = PurePosixPath(pattern).parts
    if pattern.startswith("/") or ".." in parts or "\0" in pattern:
        raise ApiError(400, f"Invalid glob filter: {pattern[:80]}. It must be a relative path and cannot contain '..'.")
    if not parts or len(pattern) > _LONGEST_GLOB or any("**" in part and part != "**" for part in parts):
        raise ApiError(
            400,
            f"Invalid glob filter: {pattern[:80]}. It takes at most {_LONGEST_GLOB} characters, "
            "and '**' only as an entire path component.",
        )
    tests = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
    folders_only = pattern.endswith("/") or parts[-1] == "**"

    def fits(name: str) -> bool:
        if folders_only and not name.endswith("/"):
            return False
        reached = _with_no_folders(tests, {0})
        for piece in name.rstrip("/").split("/"):
            after = set()
            for at in reached:
                test = tests[at] if at < len(tests) else _NOTHING
                if test is None:
                    after.add(at)
                elif test.match(piece):
                    after.add(at + 1)
            reached = _with_no_folders(tests, after)
        return len(tests) in reached

    return fits


_NOTHING = re.compile(r"(?!)")


def _with_no_folders(tests: Sequence[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    """Positions in a pattern, and those behind a `**`, which may be no folder at all."""
    every = set(reached)
    for at in reached:
        behind = at
        while behind < len(tests) and tests[behind] is None:
            behind += 1
            every.add(behind)
    return every
