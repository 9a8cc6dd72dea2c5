"""Whether a capture's archive has what its collectors were given: acknowledged events, and the bytes of log files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ray_history.archive.catalog import read_catalog
from ray_history.archive.event_files import Problem
from ray_history.archive.session_files import SessionFiles, events_of, list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store


@dataclass(frozen=True)
class Counts:
    """What was there, and what of it is in the archive."""

    acknowledged: int
    archived: int
    """Acknowledged events in the archive."""
    invented: int
    """Events in the archive that nobody acknowledged."""
    log_files: int
    whole_log_files: int
    log_bytes: int
    stored_log_bytes: int
    """Bytes of the beginnings of files, as far as they are equal."""
    worst: Sequence[str] = ()
    """The log files that lost most."""


def count(folder: Path) -> Counts:
    facts = json.loads((folder / "capture.json").read_text())
    store = open_store(resolve((folder / "archive").resolve().as_uri(), Upstream(), {}))
    (session,) = [entry for entry in read_catalog(store).sessions if entry.name == facts["session"]]
    files = list_session(store, session)
    given = {event for events in json.loads((folder / "acknowledged.json").read_text()).values() for event in events}
    problems: list[Problem] = []
    archived = {json.loads(event)["eventId"] for event in events_of(store, files, problems)}
    lost = _log_losses(folder / "disk", store, files, facts["nodes"])
    sizes = [size for size, _, _ in lost]
    return Counts(
        acknowledged=len(given),
        archived=len(given & archived),
        invented=len(archived - given),
        log_files=len(lost),
        whole_log_files=sum(size == stored for size, stored, _ in lost),
        log_bytes=sum(sizes),
        stored_log_bytes=sum(stored for _, stored, _ in lost),
        worst=[
            f"{name}: {stored:,} of {size:,} bytes"
            for size, stored, name in sorted(lost, key=lambda item: item[1] - item[0])[:8]
            if stored < size
        ],
    )


def _log_losses(disk: Path, store: Store, files: SessionFiles, nodes: dict[str, str]) -> list[tuple[int, int, str]]:
    """For each file on disk its size, how much of it is stored, and its name."""
    logs = files.logs(store)
    found = []
    for name, identity in nodes.items():
        stored = {log.name: log for log in logs.list(identity)}
        for path in (disk / name).rglob("*"):
            if path.is_file() and not path.is_symlink():
                relative = path.relative_to(disk / name).as_posix()
                body = path.read_bytes()
                kept = b"".join(logs.open(stored[relative]).stream()) if relative in stored else b""
                found.append((len(body), _common_prefix(body, kept), f"{name}/{relative}"))
    return found


def _common_prefix(body: bytes, kept: bytes) -> int:
    if body.startswith(kept):
        return len(kept)
    return next(n for n, (a, b) in enumerate(zip(body, kept, strict=False)) if a != b)
