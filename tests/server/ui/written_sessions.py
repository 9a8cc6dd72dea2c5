"""Sessions that tests write into an archive: events as Ray sends them, logs, polled snapshots and ledgers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ray_history.archive import layout
from ray_history.archive.errors import Unreachable
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.history.rebuilt import NODE, WORKER, Event, function, lifecycle, task, task_id

SESSION = "session_2026-11-15_20-00-00_000000_1"
LONG_AGO = 1_700_000_000


def write_session(
    folder: Path,
    events: Iterable[Event],
    cluster: str = "written",
    *,
    logs: Mapping[tuple[str, str], bytes] | None = None,
    endpoints: Mapping[str, object] | None = None,
    ledgers: Mapping[str, object] | None = None,
) -> Store:
    """Write a session that ended long ago to the archive below `folder`."""
    store = open_store(DirectorySettings(folder / "archive"))
    owner = Cluster("default", cluster)
    prefix = layout.session_prefix("", owner, SESSION)
    store.put(layout.marker_key("", owner, SESSION), b"")
    key = layout.event_file_key(prefix, NODE, None, 1_794_787_200_000_000_000)
    store.put(key, encode_events([msgspec.json.encode(event) for event in events]))
    for (node, name), body in (logs or {}).items():
        store.put(layout.log_key(prefix, node, name), body)
    for name, answer in (endpoints or {}).items():
        store.put(layout.join(prefix, "fetched_endpoints", name), msgspec.json.encode(answer))
    for node, ledger in (ledgers or {}).items():
        store.put(layout.ledger_key("", owner, SESSION, node), msgspec.json.encode(ledger))
    end_long_ago(folder)
    return store


def end_long_ago(folder: Path) -> None:
    """Make all files old, so that their sessions count as ended."""
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def ran(number: int, name: str, start: float, end: float, *, node: str = NODE, attempt: int = 0) -> list[Event]:
    """A task that finished."""
    identity = task_id(number)
    steps = (("PENDING_ARGS_AVAIL", start), ("RUNNING", start), ("FINISHED", end))
    return [
        task(identity, attempt, start, taskName=name, taskFunc=function(name)),
        lifecycle(identity, *steps, attempt=attempt, node=node, worker=WORKER),
    ]


def failed(
    number: int,
    name: str,
    start: float,
    end: float,
    text: str,
    kind: str = "TASK_EXECUTION_EXCEPTION",
    *,
    node: str = NODE,
    attempt: int = 0,
) -> list[Event]:
    """A task that failed."""
    identity = task_id(number)
    steps = (("PENDING_ARGS_AVAIL", start), ("RUNNING", start), ("FAILED", end))
    return [
        task(identity, attempt, start, taskName=name, taskFunc=function(name)),
        lifecycle(identity, *steps, attempt=attempt, node=node, worker=WORKER, error=(kind, text)),
    ]


def raised(name: str, error: str = "ValueError: x") -> str:
    """A traceback as a worker prints it."""
    return (
        f'ray::{name}() (pid=7, ip=192.0.2.2)\n  File "/app/job.py", line 3, in {name}\n    raise it\n'
        f"    ^^^^^^^^\n{error}"
    )


def of_input(name: str, cause: str) -> str:
    """The traceback of a task whose input failed, as Ray 2.60 prints it."""
    return (
        f"\x1b[36mray::{name}()\x1b[39m (pid=8, ip=192.0.2.2)\n"
        "  At least one of the input arguments for this task could not be computed:\n"
        f"ray.exceptions.RayTaskError: {cause}"
    )


def waited(name: str, cause: str) -> str:
    """The traceback of a task whose `ray.get` raised the error of another task."""
    return (
        f'ray::{name}() (pid=9, ip=192.0.2.2)\n  File "/app/job.py", line 8, in {name}\n    ray.get(ref)\n'
        f"    ^^^^^^^^^^^^\nray.exceptions.RayTaskError(ValueError): {cause}"
    )


class Slow:
    """A stand-in for a slow store: it returns event files once `go_on` is set, or fails if it is `broken`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.go_on = threading.Event()
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str) -> bytes:
        if "events/" in key:
            assert self.go_on.wait(60)
            if self.broken:
                raise Unreachable("the bucket is gone")
        return self._store.get(key)
