"""A session's tables, from where they are available fastest: the local cache, the archive's index, or the event files.

Invariants:
* what is opened matches the archive's listing of that moment: the same event files and other sources, by size and etag;
* an index that covers some of the event files is extended by the others; any other index is rebuilt;
* nothing is trusted: a damaged index, in the cache or in the archive, is discarded and rebuilt. Files from the archive
  are compared with their digests when they are downloaded, files in the cache when an error raises doubts;
* an index is built by `build`, usually in a process of its own (see build/pool.py). What it wrote becomes an index only
  when it has ended well;
* an index that cannot be published is used all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from msgspec import ValidationError

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores import Store
from ray_history.history.engine import Limits
from ray_history.history.read.tables import READING_FAILED

from .build.order import BuildOrder, Builds, Progress, Report
from .build.steps import BuildHere
from .cache import Cache, CacheUnusable, Entry, Opened
from .locks import CancelToken
from .manifest import Damaged, Manifest
from .metrics import MetricsSource
from .shared import SharedIndex
from .sources import Sources, TableSource, list_sources
from .summary import Summaries, identify, make_summary, renewed

logger = logging.getLogger(__name__)


@dataclass
class Indexer:
    """Opens the sessions of one archive. For many threads."""

    store: Store
    cache: Cache
    limits: Limits = field(default_factory=Limits)
    share: bool = True
    """Whether indexes are published in the archive for others."""
    table_sources: Sequence[TableSource] = (MetricsSource(),)
    """Sources of further tables."""
    builds: Builds | None = None
    """Builds indexes; None to do it in the calling thread."""
    _unpublished: set[str] = field(default_factory=set)

    def open(
        self,
        session: Session,
        report: Report = lambda _: None,
        cancel: CancelToken | None = None,
        *,
        publish_later: bool = False,
        verify: bool = False,
        is_background: bool = False,
    ) -> Opened:
        """The tables of a session as of now; the caller closes them.

        `publish_later` leaves publishing to `publish_deferred`, so that the tables are available earlier. `verify`
        compares an index in the cache with its digests before it is used. `is_background` lets other builds go first,
        and raises `Cancelled` if one comes meanwhile.
        """
        cancel = cancel or CancelToken()
        report(Progress())
        sources = list_sources(self.store, session, self.table_sources)
        entry = self.cache.entry(_key(session))
        opened = entry.open()
        if opened is not None:
            if sources.covered_by(opened.manifest) and (not verify or opened.is_intact()):
                return opened
            opened.close()
        opening = _Opening(self, session, sources, entry, report, cancel, publish_later, is_background)
        return entry.make_unless(sources.covered_by, opening.fetch_or_build)

    def prepare(self) -> None:
        """Get ready to build, so that the first session does not wait for it."""
        if self.builds is not None:
            self.builds.prepare()

    def close(self) -> None:
        """End what builds. Nothing can be built afterwards."""
        if self.builds is not None:
            self.builds.close()

    def publish(self, session: Session, opened: Opened) -> None:
        """Make sure that the archive has this index too, if indexes are shared."""
        shared = SharedIndex(self.store, session)
        if self.share and shared.manifest() != opened.manifest:
            _publish(shared, session, opened.directory, opened.manifest)

    def defer_publishing(self, session: Session) -> None:
        self._unpublished.add(_key(session))

    def publish_deferred(self, session: Session) -> None:
        """Publish what was built by `open` with `publish_later`. Errors are only logged."""
        key = _key(session)
        if key not in self._unpublished:
            return
        self._unpublished.discard(key)
        try:
            with _closing(self.cache.entry(key).open()) as opened:
                if opened is not None:
                    self.publish(session, opened)
        except (ArchiveError, CacheUnusable) as error:
            _warn_unpublished(session, error)

    @cached_property
    def summaries(self) -> Summaries:
        return Summaries(self.store, self.cache, share=self.share)

    def summarize(self, session: Session) -> None:
        """Make sure that the newest index in the cache has a summary. Errors are only logged."""
        try:
            with _closing(self.cache.entry(_key(session)).open()) as opened:
                if opened is None:
                    return
                current = self.summaries.read(session)
                manifest = opened.manifest
                if current is None or (
                    current.index != identify(manifest) and current.event_files <= len(manifest.sources)
                ):
                    self._write_summary(session, opened)
                elif (newer := renewed(self.store, session, current)) is not None:
                    self.summaries.write(session, newer)
        except (ArchiveError, CacheUnusable, ValidationError) as error:
            logger.warning("%s has no summary: %s", session.name, error)

    def _write_summary(self, session: Session, opened: Opened) -> None:
        try:
            summary = make_summary(self.store, session, opened)
        except READING_FAILED:
            if opened.is_intact():
                raise
            return  # the next `open` rebuilds it
        self.summaries.write(session, summary)


def _key(session: Session) -> str:
    return f"{session.cluster.path}/{session.name}"


def _publish(shared: SharedIndex, session: Session, directory: Path, manifest: Manifest) -> None:
    try:
        shared.publish(directory, manifest)
    except ArchiveError as error:
        _warn_unpublished(session, error)


def _warn_unpublished(session: Session, error: Exception) -> None:
    logger.warning("the index of %s is used here, but could not be published: %s", session.name, error)


@dataclass
class _Opening:
    """Brings the index of one session into the cache."""

    indexer: Indexer
    session: Session
    sources: Sources
    entry: Entry
    report: Report
    cancel: CancelToken
    publish_later: bool
    is_background: bool
    progress: Progress = field(default_factory=Progress)

    def fetch_or_build(self, directory: Path) -> Manifest:
        shared = SharedIndex(self.indexer.store, self.session)
        published = self._published(shared)
        if published is not None and self.sources.covered_by(published):
            try:
                self._update("fetching the index")
                shared.fetch(published, directory)
                return published
            except Damaged as damage:
                logger.warning("the index of %s in the archive is damaged; rebuilding: %s", self.session.name, damage)
                _discard(shared)
                published = None
        manifest = self._extend_or_build(directory, shared, published)
        if self.publish_later:
            self.indexer.defer_publishing(self.session)
        elif self.indexer.share:
            self._update("publishing")
            _publish(shared, self.session, directory, manifest)
        self._update("ready")
        return manifest

    def _published(self, shared: SharedIndex) -> Manifest | None:
        """The index in the archive, unless it would fill the disk: anybody who may write there could store it."""
        published, limit = shared.manifest(), self.indexer.cache.max_bytes
        if published is None or sum(file.size for file in published.files) <= limit:
            return published
        logger.warning(
            "the index of %s in the archive is larger than the cache (%d MiB) and not used",
            self.session.name,
            limit >> 20,
        )
        return None

    def _extend_or_build(self, directory: Path, shared: SharedIndex, published: Manifest | None) -> Manifest:
        """Build on the index in the cache, or on the published one, if all their event files still exist."""
        with _closing(self.entry.open()) as cached:
            if cached is not None and self.sources.extends(cached.manifest) and cached.is_intact():
                return self._build(directory, cached.directory, cached.manifest)
        if published is not None and self.sources.extends(published):
            base = directory / "base"
            base.mkdir()
            try:
                shared.fetch(published, base)
                return self._build(directory, base, published)
            except Damaged as damage:
                logger.warning("the index of %s in the archive is damaged; not used: %s", self.session.name, damage)
            finally:
                _remove(base)
        return self._build(directory, None, None)

    def _build(self, directory: Path, base: Path | None, base_manifest: Manifest | None) -> Manifest:
        order = BuildOrder(self.sources, directory, base, base_manifest, self.is_background)
        builds = self.indexer.builds or BuildHere(self.indexer.store, self.indexer.limits)
        return builds.build(order, self._report, self.cancel)

    def _report(self, progress: Progress) -> None:
        self.cancel.check()
        self.progress = progress
        self.report(progress)

    def _update(self, stage: str) -> None:
        self._report(replace(self.progress, stage=stage))


def _discard(shared: SharedIndex) -> None:
    try:
        shared.discard()
    except ArchiveError as error:
        logger.warning("the damaged index could not be removed: %s", error)


@contextmanager
def _closing(opened: Opened | None) -> Iterator[Opened | None]:
    try:
        yield opened
    finally:
        if opened is not None:
            opened.close()


def _remove(directory: Path) -> None:
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
