"""The ledgers of this node: exact counts per session, saved on the collector's volume.

Invariants:
* counts are exact across crashes: they are saved together with the number of the last spool segment they cover, before
  that segment is removed; a segment found again after a crash is then known to be counted already;
* only this process writes `ledger.json`, atomically and synced; a damaged file is set aside and counting starts anew;
* the objects under `history-ledger/` are copies, uploaded by `ledger_publisher`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ray_history.archive.ledger import Ledger, PolledEndpoint
from ray_history.decoding import DECODING_ERRORS

from .saved_file import load, save

logger = logging.getLogger(__name__)

UNKNOWN_SESSION = "unknown"
"""Counts events that arrive before any session is known; never uploaded."""


class SavedLedgers(msgspec.Struct):
    """The content of `ledger.json`."""

    shipped_sequence: int = 0
    shipped_created_ns: int = 0
    """Spool segments up to here are counted. Both are needed: sequences start anew when the spool is deleted."""
    sessions: dict[str, Ledger] = msgspec.field(default_factory=dict)
    former: dict[str, dict[str, Ledger]] = msgspec.field(default_factory=dict)
    """By session and node id: the ledgers under earlier ids of this node. A raylet that restarts gets a new id."""

    def all(self) -> Iterator[tuple[str, Ledger]]:
        """Each ledger with its session's name, earlier node ids first."""
        for name, ledger in self.sessions.items():
            yield from ((name, former) for former in self.former.get(name, {}).values())
            yield name, ledger


class LedgerBook:
    """The ledgers of this node, shared by the collector's threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.lock = threading.RLock()
        self.saved = _load(file)

    def session(self, name: str) -> Ledger:
        """The ledger of the session under the newest node id."""
        with self.lock:
            if name not in self.saved.sessions:
                self.saved.sessions[name] = Ledger(started=time.time(), hostname=os.uname().nodename)
            return self.saved.sessions[name]

    def node(self, session: str, node: str) -> Ledger:
        """The ledger of one node id; an id seen for the first time becomes the newest of the session."""
        with self.lock:
            ledger = self.session(session)
            if ledger.node in ("", node):
                ledger.node = node
                return ledger
            former = self.saved.former.setdefault(session, {})
            if node not in former:
                former[ledger.node] = self.saved.sessions.pop(session)
                return self.node(session, node)
            return former[node]

    def note_polls(self, session: str, urls: Iterable[str], outcomes: Mapping[str, Mapping[str, str]]) -> None:
        """Add the outcomes of one cycle by endpoint, each with its error; endpoints without any were never asked."""
        with self.lock:
            polled = self.session(session).polled
            for url in urls:
                polled.setdefault(url, PolledEndpoint())
            for url, found in outcomes.items():
                endpoint = polled.setdefault(url, PolledEndpoint())  # some are asked of old versions of Ray only
                for outcome, detail in found.items():
                    endpoint.note(outcome, detail, time.time())

    def save(self) -> None:
        """Write the file; durable on return."""
        with self.lock:
            body = msgspec.json.encode(self.saved)
        save(self._file, body)

    def forget(self, keep: set[str], most: int = 20) -> None:
        """Drop the oldest ended sessions, so that the file does not grow on a volume that is never deleted."""
        with self.lock:
            old = [name for name in sorted(self.saved.sessions) if name not in keep]
            for name in old[: max(0, len(old) - most)]:
                del self.saved.sessions[name]
                self.saved.former.pop(name, None)


def _load(file: Path) -> SavedLedgers:
    try:
        return msgspec.json.decode(load(file), type=SavedLedgers)
    except FileNotFoundError:
        return SavedLedgers()
    except DECODING_ERRORS as error:
        aside = file.with_suffix(f".damaged-{time.time_ns()}")
        file.replace(aside)
        logger.error("%s is damaged (%s) and was moved to %s; counting starts anew", file, error, aside.name)
        return SavedLedgers()
