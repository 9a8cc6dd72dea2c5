"""Publishes the ledger: puts each session's account into the archive while it changes, and at the end."""

from __future__ import annotations

import time

import msgspec

from ray_history import __version__

from .destination import Destination
from .ingest.http import Intake
from .ledger import UNKNOWN_SESSION, Ledger, SessionLedger
from .node.identity import RayNode
from .polling import agent_metrics

LEDGER_INTERVAL = 30.0
"""Seconds between ledgers while something changes: three puts per push interval stay three."""
HEARTBEAT = 300.0
"""Seconds between ledgers when nothing changes."""


class Bookkeeper:
    """Knows what was published, and when the next is due."""

    def __init__(self, destination: Destination, node: RayNode, ledger: Ledger, intake: Intake, *, role: str) -> None:
        self._destination = destination
        self._node = node
        self._ledger = ledger
        self._intake = intake
        self._role = role
        self._due = 0.0
        self._published: dict[str, tuple[float, bytes]] = {}
        """By key: when, and what."""
        self._counted = {"duplicated": 0, "refused": 0}

    def publish(self) -> None:
        """Put what changed, or a sign of life; does nothing until it is due."""
        if time.monotonic() < self._due:
            return
        self._count_intake()
        self.ask_agent()
        current = self._node.current()
        for name, account in self._known():
            live = current is not None and current.name == name
            self._put(name, account, live=live)
            self._due = time.monotonic() + LEDGER_INTERVAL
        self._ledger.forget({current.name} if current else set())

    def publish_last(self, *, all_stored: bool) -> None:
        """The final accounts of this process."""
        self._count_intake()
        current = self._node.current()
        for name, account in self._known():
            if current is not None and current.name == name:
                account.ended = "graceful" if all_stored else None
            self._put(name, account, live=False)

    def ask_agent(self) -> None:
        """How many events Ray's own agent dropped; asking leaves a line in the agent's log, so not at the very end."""
        session = self._node.current()
        node = self._node.node_id(session) if session else None
        port = self._node.metrics_port(session, node) if session and node else None
        found = agent_metrics.scrape(port, timeout=2.0) if port else None
        if session is not None and found is not None and found.lost is not None:
            self._ledger.session(session.name).events.dropped_by_ray = found.lost

    def _known(self) -> list[tuple[str, SessionLedger]]:
        with self._ledger.lock:
            accounts = self._ledger.book.accounts()
            return [(name, account) for name, account in accounts if name != UNKNOWN_SESSION and account.node]

    def _put(self, name: str, account: SessionLedger, *, live: bool) -> None:
        account.role = self._role
        account.collector = __version__
        account.written = account.alive_until = 0.0
        if live:
            account.ended = None
        key, content = self._destination.ledger(name, account.node), msgspec.json.encode(account)
        when, stored = self._published.get(key, (float("-inf"), b""))
        if content == stored and not (live and time.monotonic() - when >= HEARTBEAT):
            return
        account.written = time.time()
        account.alive_until = account.written + (HEARTBEAT + 2 * LEDGER_INTERVAL if live else 0)
        self._destination.store.put(key, msgspec.json.encode(account))
        self._published[key] = (time.monotonic(), content)
        self._ledger.save()

    def _count_intake(self) -> None:
        """Duplicates and refusals are told apart by session only as well as time allows: the current one has them."""
        now = {"duplicated": self._intake.duplicated, "refused": sum(self._intake.refused.values())}
        session = self._node.current()
        if now == self._counted or session is None:
            return
        with self._ledger.lock:
            account = self._ledger.session(session.name).events
            account.received += now["duplicated"] - self._counted["duplicated"]
            account.duplicated += now["duplicated"] - self._counted["duplicated"]
            account.refused_batches += now["refused"] - self._counted["refused"]
        self._counted = now
