"""The summary of an index: one small JSON object per session, so that a list of thousands needs no tables.

Invariants:
* it is derived: deleting one costs only time, a session without one is shown as not yet indexed;
* it is put after the index it tells of, and says by a digest which one that is;
* one that tells of more event files is never replaced by one that tells of fewer;
* where the archive cannot be written, or is not to be, summaries stand in the cache directory of this machine.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator

import msgspec

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, NotFound
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import ObjectInfo, Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.summary import summarize
from ray_history.history.read.tables import Tables

from .cache import Cache, Opened
from .manifest import Manifest

logger = logging.getLogger(__name__)

VERSION = 1
_LATER = 120.0
"""Seconds after which a newer sign of life is worth another object."""


class Job(msgspec.Struct, frozen=True):
    """One job, as last observed."""

    job_id: str
    submission_id: str
    entrypoint: str
    status: str
    message: str
    start_ms: int | None
    end_ms: int | None


class Failure(msgspec.Struct, frozen=True):
    """Failed tasks of one function with the same error, numbers aside."""

    kind: str
    name: str
    text: str
    count: int


class Accounts(msgspec.Struct, frozen=True):
    """What the collectors' ledgers say together."""

    collectors: int
    cut_off: int
    """That did not end in order; all, while the session goes on."""
    head_ended: bool
    duplicated: int | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A session in short."""

    version: int
    index: str
    """Which index it tells of."""
    event_files: int
    newest_file: float
    """When the newest of its objects was stored, Unix seconds; 0 without any."""
    longest_silence: float = 600.0
    """Seconds after which it counts as over, if its collectors keep no ledgers."""
    facts: dict[str, str | int | float | None]
    tasks: dict[str, int]
    """Attempts, by state."""
    jobs_by_status: dict[str, int]
    jobs: list[Job]
    failures: list[Failure]
    accounts: Accounts
    problem_count: int
    problem: str


_decode = msgspec.json.Decoder(Summary).decode


def decode(body: bytes) -> Summary | None:
    """None if it is not one of ours: the session then counts as not indexed."""
    try:
        summary = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return summary if summary.version == VERSION else None


class Summaries:
    """The summaries of one archive, there and on this machine."""

    def __init__(self, store: Store, cache: Cache, *, share: bool) -> None:
        self._archive, self._share = store, share
        self._here = open_store(DirectorySettings(cache.root / "summaries"))

    def list(self) -> list[tuple[Store, ObjectInfo]]:
        """All that there are; what stands in the archive comes last."""
        return [(place, found) for place in (self._here, self._archive) for found in _listed(place)]

    def read(self, session: Session) -> Summary | None:
        """The newer one, if the session has any."""
        found = [
            _read(place, layout.summary_key(session.cluster, session.name)) for place in (self._archive, self._here)
        ]
        return max((summary for summary in found if summary), key=lambda s: s.event_files, default=None)

    def write(self, session: Session, summary: Summary) -> None:
        """Into the archive if it is to be shared, else or if that fails beside the cache."""
        key, body = layout.summary_key(session.cluster, session.name), msgspec.json.encode(summary)
        if self._share:
            try:
                self._archive.put(key, body)
                return
            except ArchiveError as error:
                logger.warning("the summary of %s is kept here but could not be shared: %s", session.name, error)
        self._here.put(key, body)


def _listed(place: Store) -> Iterator[ObjectInfo]:
    try:
        yield from place.list(layout.SUMMARIES)
    except NotFound:
        return


def _read(place: Store, key: str) -> Summary | None:
    try:
        return decode(place.get(key))
    except NotFound:
        return None


def identify(manifest: Manifest) -> str:
    """Which index this is: a digest over what it was made of and how."""
    told = msgspec.json.encode([manifest.meaning, manifest.sources, manifest.other_sources])
    return hashlib.blake2b(told, digest_size=16).hexdigest()


def make_summary(store: Store, session: Session, opened: Opened) -> Summary:
    """Ask the tables."""
    manifest = opened.manifest
    tables = Tables(opened.directory)
    try:
        told = summarize(tables)
    finally:
        tables.close()
    files = list_session(store, session)
    return msgspec.convert(
        {
            "version": VERSION,
            "index": identify(manifest),
            "event_files": len(manifest.sources),
            "newest_file": files.newest,
            "longest_silence": files.longest_silence,
            "facts": {name: value for name, value in manifest.facts.items() if _is_plain(value)},
            "problem_count": manifest.problem_count,
            "problem": manifest.problems[0][:500] if manifest.problems else "",
            **told,
        },
        Summary,
    )


def renewed(store: Store, session: Session, standing: Summary) -> Summary | None:
    """The summary with a newer sign of life: KubeRay's collector stores answers anew that have not changed, which makes
    no other index. None if there is no newer one, or ledgers tell more."""
    if standing.facts.get("alive_until") or standing.facts.get("ended") == "graceful":
        return None
    newest = list_session(store, session).newest
    return msgspec.structs.replace(standing, newest_file=newest) if newest > standing.newest_file + _LATER else None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)
