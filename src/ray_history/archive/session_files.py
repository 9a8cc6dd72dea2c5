"""The objects of one session: event files, log files and polled snapshots, from a few LISTs at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from . import layout
from .catalog import Session
from .event_files import Problem, read_events
from .layout import EndpointKey, EventFileKey, Generation, LogKey
from .log_files import LogFiles
from .stores import ObjectInfo, Store

_MAX_POLL_SILENCE = 600.0
"""Generation C stores polled snapshots every 30 s, changed or not; a busy dashboard may answer late."""
_MAX_EVENT_SILENCE = 5400.0
"""Generations A, A' and B store events at the end of an hour; C without polling, whenever there are events."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """One object with events."""

    key: EventFileKey
    stored: ObjectInfo
    is_journal: bool = False
    """Its collector deletes it once the events are in event files."""


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """The objects below a session's prefixes, by kind."""

    session: Session
    event_files: tuple[EventFile, ...]
    endpoints: dict[str, ObjectInfo]
    whole_logs: tuple[tuple[str, str, ObjectInfo], ...]
    """(node, name, object) of each log file that is stored as one object."""
    tail_bundles: tuple[tuple[str, ObjectInfo], ...]
    """(node, object) of each bundle of appended log bytes."""
    unknown: tuple[str, ...]
    """Keys of other objects."""
    journals: tuple[EventFile, ...] = ()
    """Events that no event file contained yet when the journal was written; event files may contain them since."""

    @property
    def with_events(self) -> tuple[EventFile, ...]:
        """All objects with events: event files, and journals, which may repeat some of their events."""
        return self.event_files + self.journals

    @property
    def generations(self) -> frozenset[Generation]:
        """The layout generations of its event files."""
        return frozenset(file.key.generation for file in self.event_files)

    @property
    def newest(self) -> float:
        """When the newest object was stored, Unix seconds; 0 if there is none."""
        stored = (
            *(file.stored for file in self.with_events),
            *self.endpoints.values(),
            *(info for _, _, info in self.whole_logs),
            *(info for _, info in self.tail_bundles),
        )
        return max((info.modified.timestamp() for info in stored), default=0.0)

    @property
    def longest_silence(self) -> float:
        """Seconds for which KubeRay's collector may store nothing while the cluster runs."""
        return _MAX_POLL_SILENCE if self.endpoints and self.generations <= {Generation.C} else _MAX_EVENT_SILENCE

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(
            [file.key.node for file in self.with_events]
            + [node for node, _, _ in self.whole_logs]
            + [node for node, _ in self.tail_bundles]
        )

    def logs(self, store: Store) -> LogFiles:
        return LogFiles(store, self.whole_logs, self.tail_bundles)


def list_session(store: Store, session: Session) -> SessionFiles:
    """List a session's objects; the prefix of generation A only if there are none below the newer one."""
    modern = layout.session_prefix(session.root, session.cluster, session.name)
    legacy = layout.legacy_session_prefix(session.root, session.cluster, session.name)
    tails = layout.tails_prefix(session.root, session.cluster, session.name)
    with ThreadPoolExecutor(2, thread_name_prefix="session") as threads:
        bundles = threads.submit(lambda: list(store.list(tails)))
        journals = threads.submit(_journals, store, session)
        prefix = legacy if session.legacy else modern
        objects = list(store.list(prefix))
        if not objects and not session.legacy:
            prefix = legacy
            objects = list(store.list(prefix))
        files = _by_kind(session, prefix, objects, tails, bundles.result())
        return replace(files, journals=journals.result())


def _journals(store: Store, session: Session) -> tuple[EventFile, ...]:
    prefix = layout.journals_prefix(session.root, session.cluster, session.name)
    listed = sorted(store.list(prefix), key=lambda stored: stored.key)
    parsed = ((layout.parse_journal_key(stored.key.removeprefix(prefix + "/")), stored) for stored in listed)
    return tuple(EventFile(key, stored, is_journal=True) for key, stored in parsed if key is not None)


def _by_kind(
    session: Session, prefix: str, objects: list[ObjectInfo], tails: str, bundles: list[ObjectInfo]
) -> SessionFiles:
    event_files: list[EventFile] = []
    endpoints: dict[str, ObjectInfo] = {}
    whole_logs: list[tuple[str, str, ObjectInfo]] = []
    unknown: list[str] = []
    for stored in objects:
        match layout.parse_data_key(stored.key.removeprefix(prefix + "/")):
            case EventFileKey() as key:
                event_files.append(EventFile(key, stored))
            case LogKey(node, name):
                whole_logs.append((node, name, stored))
            case EndpointKey(name):
                endpoints[name] = stored
            case None if stored.size:  # an empty one is a directory marker
                unknown.append(stored.key)
    return SessionFiles(
        session,
        tuple(sorted(event_files, key=lambda file: file.stored.key)),
        endpoints,
        tuple(whole_logs),
        tuple((stored.key.removeprefix(tails + "/").partition("/")[0], stored) for stored in bundles),
        tuple(unknown),
    )


def events_of(store: Store, files: SessionFiles, problems: list[Problem]) -> Iterator[bytes]:
    """All events of a session as raw bytes, file by file; unreadable parts are added to `problems`."""
    for file in files.with_events:
        yield from read_events(store.stream(file.stored.key), file=file.stored.key, problems=problems)
