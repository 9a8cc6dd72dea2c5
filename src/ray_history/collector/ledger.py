"""The ledger: how much was received, kept and lost, per session; the proof of completeness and the heartbeat.

Invariants:
* counts are exact across crashes: they are saved together with the number of the last spool segment they cover, before
  that segment is removed; a segment found again after a crash is then known to be counted already;
* only this process writes `ledger.json`, atomically and synced; a damaged one is set aside, never trusted;
* what is in the bucket under `history-ledger/` is a copy, put every interval while things change, and at exit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

logger = logging.getLogger(__name__)

UNKNOWN_SESSION = "unknown"
"""Accounts for what came before any session was known; never put into the archive."""


class Events(msgspec.Struct):
    """What became of the events of a session."""

    received: int = 0
    """Taken from Ray, duplicates included."""
    stored: int = 0
    """In the archive."""
    bytes_stored: int = 0
    duplicated: int = 0
    """Sent again by Ray although we had them, and left out; known within the collector's memory of recent batches."""
    quarantined: int = 0
    """Kept aside because their session could not be told; a batch that is no JSON counts as one."""
    refused_batches: int = 0
    """Answered 503 or 413: Ray keeps these and tries again, so they are not lost yet."""
    dropped_by_ray: int | None = None
    """Thrown away by Ray before they reached us, as its own metrics tell; None when those cannot be read."""
    last_event: str = ""
    """Timestamp of the newest event."""


class Logs(msgspec.Struct):
    """What became of the log files of a session."""

    files: int = 0
    bytes_seen: int = 0
    bytes_stored: int = 0
    bytes_uploaded: int = 0
    bytes_lost: int = 0
    left: int = 0
    """Files not yet stored whole when the collector ended."""
    problems: list[str] = msgspec.field(default_factory=list)


class SessionLedger(msgspec.Struct):
    """One node's account of one session."""

    node: str = ""
    role: str = ""
    hostname: str = ""
    started: float = 0.0
    """When this collector first saw the session, Unix seconds."""
    written: float = 0.0
    alive_until: float = 0.0
    """When the next writing is due at the latest: a reader may call the session dead some time after it."""
    ended: str | None = None
    """`graceful` after a shutdown in which everything was stored."""
    collector: str = ""
    """The collector's version."""
    events: Events = msgspec.field(default_factory=Events)
    logs: Logs = msgspec.field(default_factory=Logs)


class Book(msgspec.Struct):
    """What `ledger.json` holds."""

    shipped_sequence: int = 0
    shipped_created_ns: int = 0
    """Spool segments up to here are counted. Both: sequences start anew when somebody deletes the spool."""
    sessions: dict[str, SessionLedger] = msgspec.field(default_factory=dict)
    former: dict[str, dict[str, SessionLedger]] = msgspec.field(default_factory=dict)
    """By session, the accounts of the nodes that this one was before: a raylet that starts again has a new id."""

    def accounts(self) -> Iterator[tuple[str, SessionLedger]]:
        """All of them, with their sessions."""
        for name, account in self.sessions.items():
            yield from ((name, former) for former in self.former.get(name, {}).values())
            yield name, account


class Ledger:
    """The book, shared by the collector's threads and saved on its volume."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.lock = threading.RLock()
        self.book = _load(file)

    def session(self, name: str) -> SessionLedger:
        with self.lock:
            if name not in self.book.sessions:
                self.book.sessions[name] = SessionLedger(started=time.time(), hostname=os.uname().nodename)
            return self.book.sessions[name]

    def node(self, session: str, node: str) -> SessionLedger:
        """The account of one node in the session; what comes from now on is of the newest."""
        with self.lock:
            account = self.session(session)
            if account.node in ("", node):
                account.node = node
                return account
            former = self.book.former.setdefault(session, {})
            if node not in former:
                former[account.node] = self.book.sessions.pop(session)
                return self.node(session, node)
            return former[node]

    def save(self) -> None:
        """Durable on return."""
        with self.lock:
            body = msgspec.json.encode(self.book)
        temporary = self._file.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._file)

    def forget(self, keep: set[str], most: int = 20) -> None:
        """Let go of sessions long ended, so that the book does not grow on a volume that lives for ever."""
        with self.lock:
            old = [name for name in sorted(self.book.sessions) if name not in keep]
            for name in old[: max(0, len(old) - most)]:
                del self.book.sessions[name]
                self.book.former.pop(name, None)


def _load(file: Path) -> Book:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Book)
    except FileNotFoundError:
        return Book()
    except msgspec.DecodeError as error:
        aside = file.with_suffix(f".damaged-{time.time_ns()}")
        file.replace(aside)
        logger.error("the ledger %s is damaged (%s); set aside as %s, counting starts anew", file, error, aside.name)
        return Book()
