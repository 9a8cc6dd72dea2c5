"""Sessions without opening them, from the summaries of their indexes and from their ledgers.

Invariants:
* an object is read once, and again only if its listing has changed; summaries are kept on disk between runs;
* a refresh is bounded: it takes the newest sessions first, and leaves the others to the next one;
* reading never waits for a refresh.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, NotFound, TooLarge
from ray_history.archive.ledger import MAX_SIZE as MAX_LEDGER
from ray_history.archive.ledger import Ledger
from ray_history.archive.ledger import read as read_ledger
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.archive.stores.interface import read_small
from ray_history.decoding import DECODING_ERRORS
from ray_history.index.summary import MAX_SIZE as MAX_SUMMARY
from ray_history.index.summary import Invalid, Summaries, Summary
from ray_history.index.summary import decode as decode_summary
from ray_history.server.sessions.liveness import MAX_AHEAD, LifeSigns, State, is_shut_down, next_heartbeat

logger = logging.getLogger(__name__)

_MAX_CONCURRENT = 8
_MAX_LEDGERS = 400
"""Read in one refresh."""
_LIST_EACH_MAX = 16
"""Number of sessions up to which ledgers are listed by session; for more, one listing of all is cheaper."""
_SETTLED_AFTER = 2 * 86400.0
"""Seconds without a sign of life after which no more are expected."""

Tag = tuple[str, int, str]
T = TypeVar("T")


class Cached(msgspec.Struct, Generic[T], frozen=True):
    """What was read of an object."""

    tag: Tag
    content: T | None
    problem: str = ""
    """Why it cannot be used, or not with all of its values."""


class SessionOverview(msgspec.Struct, frozen=True):
    """What is known of one session."""

    summary: Summary | None = None
    ledgers: tuple[Ledger, ...] = ()
    problems: tuple[str, ...] = ()
    """Why objects of the session cannot be used, or not with all of their values."""

    @property
    def signs(self) -> LifeSigns:
        """Ledgers are read again and again, a summary is as old as its index: ledgers decide where there are any."""
        summary = self.summary
        if summary is None:
            return LifeSigns(is_shut_down=is_shut_down(self.ledgers), alive_until=next_heartbeat(self.ledgers))
        facts = summary.facts
        shut_down = (
            is_shut_down(self.ledgers) if self.ledgers else (summary.accounts.head_ended or facts.ended == "graceful")
        )
        return LifeSigns(
            is_shut_down=shut_down,
            alive_until=max(facts.alive_until or 0.0, next_heartbeat(self.ledgers)),
            newest_object=summary.newest_file,
            longest_silence=summary.longest_silence,
        )

    def state(self, now: float, *, is_running: bool = False) -> State:
        return replace(self.signs, is_running=is_running).state(now)

    def is_settled(self, now: float) -> bool:
        """Whether neither ledgers nor objects are expected any more."""
        if self.summary is None:
            return False
        # The ledgers may have been read before the end that the summary tells, and a collector that was stopped may
        # have been started again.
        has_ended = self.summary.facts.ended == "graceful" and all(one.is_graceful for one in self.ledgers)
        return now > self.last_sign + (0.0 if has_ended else _SETTLED_AFTER)

    @property
    def last_sign(self) -> float:
        """The last sign of life, Unix seconds: when the next heartbeat is due, or when the newest object was stored."""
        signs = self.signs
        return max(signs.alive_until, signs.newest_object)

    def is_same(self, other: SessionOverview) -> bool:
        """Whether nothing was read since. Compares identities: contents may be large."""
        return (
            self.summary is other.summary
            and self.problems == other.problems
            and len(self.ledgers) == len(other.ledgers)
            and all(mine is theirs for mine, theirs in zip(self.ledgers, other.ledgers, strict=True))
        )


EMPTY = SessionOverview()


class OverviewCache:
    """The overviews of all sessions. Thread-safe."""

    def __init__(self, store: Store, summaries: Summaries, folder: Path) -> None:
        self._store, self._summaries = store, summaries
        self._file = folder / f"known-{hashlib.blake2b(store.url.encode(), digest_size=8).hexdigest()}.msgpack"
        self._refreshing = threading.Lock()
        self._cached = self._load()
        self._ledgers: dict[str, dict[str, Cached[Ledger]]] = {}

    def of(self, session: Session) -> SessionOverview:
        read = self._cached.get(layout.summary_key(session.cluster, session.name))
        ledgers = self._ledgers.get(_prefix(session))
        if read is None and ledgers is None:
            return EMPTY
        cached = list(ledgers.values()) if ledgers else []
        problems = [read.problem if read else "", *(each.problem for each in cached)]
        return SessionOverview(
            read.content if read else None,
            tuple(each.content for each in cached if each.content),
            tuple(filter(None, problems)),
        )

    def refresh(self, sessions: Sequence[Session], now: float) -> None:
        """Read new summaries, and new ledgers of these sessions, which come newest first."""
        with self._refreshing, ThreadPoolExecutor(_MAX_CONCURRENT, "overview") as threads:
            self._refresh_summaries(threads)
            self._refresh_ledgers(threads, [s for s in sessions if not self.of(s).is_settled(now)])

    def keep(self, sessions: Iterable[Session]) -> None:
        """Forget the ledgers of all others: they are no longer in the archive."""
        with self._refreshing:
            kept = {_prefix(session) for session in sessions}
            self._ledgers = {prefix: known for prefix, known in self._ledgers.items() if prefix in kept}

    def _refresh_summaries(self, threads: ThreadPoolExecutor) -> None:
        listed = {found.key: (place, found) for place, found in self._summaries.list()}
        new = [
            entry for key, entry in listed.items() if key not in self._cached or self._cached[key].tag != _tag(entry[1])
        ]
        gone = [key for key in self._cached if key not in listed]
        for key in gone:
            del self._cached[key]

        def read(entry: tuple[Store, ObjectInfo]) -> None:
            place, found = entry
            _read(place, found, _read_summary, self._cached)

        list(threads.map(read, sorted(new, key=lambda entry: entry[1].modified, reverse=True)))
        if new or gone:
            self._save()

    def _refresh_ledgers(self, threads: ThreadPoolExecutor, sessions: Sequence[Session]) -> None:
        listed = self._listed(threads, sessions)
        new: list[tuple[str, ObjectInfo]] = []
        for session in sessions:
            prefix = _prefix(session)
            if prefix in listed:
                known = self._ledgers.get(prefix, {})
                new += [(prefix, f) for f in listed[prefix] if f.key not in known or known[f.key].tag != _tag(f)]

        def read(entry: tuple[str, ObjectInfo]) -> None:
            prefix, found = entry
            _read(self._store, found, _read_ledger, self._ledgers.setdefault(prefix, {}))

        list(threads.map(read, new[:_MAX_LEDGERS]))

    def _listed(self, threads: ThreadPoolExecutor, sessions: Sequence[Session]) -> dict[str, list[ObjectInfo]]:
        by_session: dict[str, list[ObjectInfo]] = defaultdict(list)
        places: Iterable[str] = {_prefix(session) for session in sessions}
        if len(sessions) > _LIST_EACH_MAX:
            places = {layout.join(session.root, layout.LEDGER) for session in sessions}
        for objects in threads.map(lambda place: list(self._store.list(place)), places):
            for found in objects:
                by_session[found.key.rpartition("/")[0]].append(found)
        return by_session

    def _load(self) -> dict[str, Cached[Summary]]:
        try:
            return msgspec.msgpack.decode(self._file.read_bytes(), type=dict[str, Cached[Summary]])
        except FileNotFoundError:
            return {}
        except (OSError, *DECODING_ERRORS) as error:
            logger.info("ignoring %s: %s", self._file, error)
            return {}

    def _save(self) -> None:
        new = self._file.with_suffix(f".{threading.get_native_id()}.new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(msgspec.msgpack.encode(self._cached))
            new.replace(self._file)
        except OSError as error:
            logger.warning("summaries cannot be stored for the next start: %s", error)


def _read(
    place: Store, found: ObjectInfo, read: Callable[[Store, str], tuple[T | None, str]], into: dict[str, Cached[T]]
) -> None:
    """Read one object; one that cannot be read now is left to the next refresh."""
    try:
        into[found.key] = Cached(_tag(found), *read(place, found.key))
    except NotFound:
        into.pop(found.key, None)
    except TooLarge as error:
        into[found.key] = Cached(_tag(found), None, str(error))
    except ArchiveError as error:
        logger.warning("%s", error)


def _read_summary(place: Store, key: str) -> tuple[Summary | None, str]:
    try:
        return decode_summary(read_small(place, key, MAX_SUMMARY)), ""
    except Invalid as error:
        return None, f"the summary ({error}; opening the session writes a new one)"


def _read_ledger(place: Store, key: str) -> tuple[Ledger | None, str]:
    content, problems = read_ledger(read_small(place, key, MAX_LEDGER))
    if content is not None and content.written > time.time() + MAX_AHEAD:
        problems.append("its times are in the future: the clock of that node was wrong")
    node = key.rpartition("/")[2].removesuffix(".json")
    return content, f"the ledger of node {node[:56]} ({'; '.join(problems)})" if problems else ""


def _tag(found: ObjectInfo) -> Tag:
    return found.etag or "", found.size, found.modified.isoformat()


def _prefix(session: Session) -> str:
    return layout.ledger_prefix(session.root, session.cluster, session.name)
