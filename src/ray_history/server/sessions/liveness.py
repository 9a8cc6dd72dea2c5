"""Whether a session goes on, judged by its last sign of life.

Our collectors say in their ledgers when their next word is due, and that they ended. KubeRay's say nothing, so that
their files have to tell: whatever was stored last, and how long a collector of its generation may store nothing while
its cluster lives (`SessionFiles.longest_silence`).
"""

from __future__ import annotations

from typing import Any

from ray_history.archive.session_files import SessionFiles

SILENT_AFTER = 120.0
"""Seconds after a collector's next sign of life was due, until its session counts as over."""


def end_of_session(facts: dict[str, Any], files: SessionFiles, now: float) -> int | None:
    """When the session ended, in nanoseconds, as far as its last sign of life tells; None if it may still go on.

    What its events tell last is its end. Without events that is when its last file was stored, or at least when it
    started, as its name says: a store's clock may have been set by whoever copied the files.
    """
    alive_until = facts.get("alive_until") or 0.0
    last_ns: int = facts.get("last_ns") or round(max(alive_until or files.newest, files.session.started) * 1e9)
    if facts.get("ended") == "graceful":
        return last_ns or round(now * 1e9)
    silent_from = alive_until + SILENT_AFTER if alive_until else files.newest + files.longest_silence
    return last_ns if now > silent_from else None
