"""The summary of an index: one small JSON object per session, so that a list of thousands needs no tables.

Invariants:
* it is derived data: deleting one costs only time; a session without one is shown as not indexed yet;
* it is put after its index, which it names by a digest;
* it is never replaced by the summary of an index with fewer event files;
* if the archive cannot be written, or indexes are not shared, summaries are in the cache directory of this machine.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import Annotated

import msgspec

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, NotFound, TooLarge
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import ObjectInfo, Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.archive.stores.interface import read_small
from ray_history.bounds import Count, MomentMs, MomentOrZero, Name, Text, check, reason
from ray_history.decoding import DECODING_ERRORS
from ray_history.history.facts import Facts
from ray_history.history.read.summary import MAX_FAILURES, MAX_JOBS, MAX_STATES, summarize
from ray_history.history.read.tables import Tables

from .cache import Cache, Opened
from .manifest import Manifest

logger = logging.getLogger(__name__)

VERSION = 1
MAX_SIZE = 1 << 20
"""Bytes of the largest summary that is read; those of real sessions have some 10 KB."""
_RENEW_AFTER = 120.0
"""Seconds between two signs of life from which on the summary is written again."""

_Counts = Annotated[dict[Name, Count], msgspec.Meta(max_length=MAX_STATES)]


class Invalid(ValueError):
    """An object in the place of a summary is none, or has values that no summary has."""


class Job(msgspec.Struct, frozen=True):
    """One job, as last observed."""

    job_id: Name
    submission_id: Name
    entrypoint: Text
    status: Name
    message: Text
    start_ms: MomentMs | None
    end_ms: MomentMs | None


class Failure(msgspec.Struct, frozen=True):
    """Failed tasks of one function with the same error, numbers aside."""

    kind: Name
    name: Name
    text: Text
    count: Count


class Accounts(msgspec.Struct, frozen=True):
    """The ledgers of all collectors, summed up."""

    collectors: Count
    cut_off: Count
    """Collectors that did not shut down in order; all of them while the session is live."""
    head_ended: bool
    duplicated: Count | None
    export_given_up: bool = False
    """Ray's GCS stopped exporting events. Summaries of earlier versions do not say."""
    head_silent: bool = False
    """Ray ran on the head and sent no event. Summaries of earlier versions do not say."""
    event_bytes_unsent: Count = 0
    """Of events that were still on the volume of a node when its collector ended."""
    log_bytes_unsent: Count = 0
    series_left_out: Count = 0
    """The largest number of series of metrics in one scrape for which there was no room."""
    metric_blocks_lost: Count = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a few numbers and names."""

    version: int
    index: Name
    """The digest of its index, see `identify`."""
    event_files: Count
    newest_file: MomentOrZero
    """When the newest object of the session was stored, Unix seconds; 0 without any."""
    longest_silence: Annotated[float, msgspec.Meta(ge=0, le=7 * 86400)] = 600.0
    """Seconds without a new object after which it counts as ended, if its collectors write no ledgers."""
    facts: Facts
    tasks: _Counts
    """Attempts, by state."""
    jobs_by_status: _Counts
    jobs: Annotated[list[Job], msgspec.Meta(max_length=MAX_JOBS)]
    failures: Annotated[list[Failure], msgspec.Meta(max_length=MAX_FAILURES)]
    accounts: Accounts
    problem_count: Count
    problem: Text
    journals: Count = 0
    """Objects with events that were in no event file."""


class _Versioned(msgspec.Struct):
    version: int


_decode_version = msgspec.json.Decoder(_Versioned).decode
_decode = msgspec.json.Decoder(Summary).decode


def decode(body: bytes) -> Summary | None:
    """The summary; None for one of another version, so that the session counts as not indexed. May raise `Invalid`."""
    try:
        if _decode_version(body).version != VERSION:
            return None
        return check(_decode(body))
    except DECODING_ERRORS as error:
        raise Invalid(reason(error)) from error


class Summaries:
    """The summaries of one archive: those in it, and those on this machine."""

    def __init__(self, store: Store, cache: Cache, *, share: bool) -> None:
        self._archive, self._share = store, share
        self._local = open_store(DirectorySettings(cache.root / "summaries"))

    def list(self) -> list[tuple[Store, ObjectInfo]]:
        """All summaries; those in the archive come last."""
        return [(place, found) for place in (self._local, self._archive) for found in _listed(place)]

    def read(self, session: Session) -> Summary | None:
        """The newest summary of a session."""
        found = [
            _read(place, layout.summary_key(session.cluster, session.name)) for place in (self._archive, self._local)
        ]
        return max((summary for summary in found if summary), key=lambda s: s.event_files, default=None)

    def write(self, session: Session, summary: Summary) -> None:
        """Write a summary to the archive if indexes are shared; otherwise, or if that fails, beside the cache."""
        key, body = layout.summary_key(session.cluster, session.name), msgspec.json.encode(summary)
        if self._share:
            try:
                self._archive.put(key, body)
                return
            except ArchiveError as error:
                logger.warning("the summary of %s is stored here, but could not be published: %s", session.name, error)
        self._local.put(key, body)


def _listed(place: Store) -> Iterator[ObjectInfo]:
    try:
        yield from place.list(layout.SUMMARIES)
    except NotFound:
        return


def _read(place: Store, key: str) -> Summary | None:
    try:
        return decode(read_small(place, key, MAX_SIZE))
    except NotFound:
        return None
    except (Invalid, TooLarge) as error:  # a new one replaces it
        logger.warning("%s/%s is no summary: %s", place.url, key, error)
        return None


def identify(manifest: Manifest) -> str:
    """A digest of what an index was made from, and by which rules."""
    origin = msgspec.json.encode([manifest.meaning, manifest.sources, manifest.other_sources])
    return hashlib.blake2b(origin, digest_size=16).hexdigest()


def make_summary(store: Store, session: Session, opened: Opened) -> Summary:
    """The summary of an open index."""
    manifest = opened.manifest
    tables = Tables(opened.directory)
    try:
        content = summarize(tables)
    finally:
        tables.close()
    files = list_session(store, session)
    return msgspec.convert(
        {
            "version": VERSION,
            "index": identify(manifest),
            "event_files": len(manifest.sources),
            "journals": len(files.journals),
            "newest_file": files.newest,
            "longest_silence": files.longest_silence,
            "facts": manifest.facts,
            "problem_count": manifest.problem_count,
            "problem": manifest.problems[0][:500] if manifest.problems else "",
            **content,
        },
        Summary,
    )


def renewed(store: Store, session: Session, current: Summary) -> Summary | None:
    """The summary with a newer sign of life; None if there is none, or if ledgers have better ones. KubeRay's collector
    stores unchanged snapshots again, which does not change the index."""
    if current.facts.alive_until or current.facts.ended == "graceful":
        return None
    newest = list_session(store, session).newest
    return msgspec.structs.replace(current, newest_file=newest) if newest > current.newest_file + _RENEW_AFTER else None
