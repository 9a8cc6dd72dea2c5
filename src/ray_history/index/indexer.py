"""A session's tables, from where they are available fastest: the local cache, the archive's index, or the event files.

Invariants:
* what is opened matches the archive's listing of that moment: the same event files and other sources, by size and etag;
* an index that covers some of the event files is extended by the others; any other index is rebuilt;
* nothing is trusted: a damaged index, in the cache or in the archive, is discarded and rebuilt. Files from the archive
  are compared with their digests when they are downloaded, files in the cache when an error raises doubts;
* builds on one machine alternate batch by batch, so that a small session does not wait for the end of a large one, and
  the memory limit holds for all of them together;
* an index that cannot be published is used all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.stores import Store
from ray_history.history.build.builder import Builder
from ray_history.history.build.runs import Unreadable
from ray_history.history.engine import Limits
from ray_history.history.read.tables import READING_FAILED

from .cache import Cache, CacheUnusable, Entry, Opened
from .documents import write_documents
from .event_source import EventSource
from .locks import CancelToken, FairLock
from .manifest import MAX_PROBLEMS, VERSION, Damaged, Manifest, describe
from .shared import SharedIndex
from .sources import Sources, TableSource, list_sources
from .summary import Summaries, identify, make_summary, renewed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of opening a session."""

    stage: str = "listing"
    """listing, fetching the index, reading events, making tables, publishing (unless that is deferred), or ready."""
    files: int = 0
    files_total: int = 0
    bytes: int = 0
    bytes_total: int = 0
    events: int = 0


@dataclass
class Indexer:
    """Opens the sessions of one archive. For many threads."""

    store: Store
    cache: Cache
    limits: Limits = field(default_factory=Limits)
    share: bool = True
    """Whether indexes are published in the archive for others."""
    table_sources: Sequence[TableSource] = ()
    """Sources of further tables."""
    build_lock: FairLock = field(default_factory=FairLock)
    _unpublished: set[str] = field(default_factory=set)

    def open(
        self,
        session: Session,
        report: Callable[[Progress], None] = lambda _: None,
        cancel: CancelToken | None = None,
        *,
        publish_later: bool = False,
        verify: bool = False,
    ) -> Opened:
        """The tables of a session as of now; the caller closes them.

        `publish_later` leaves publishing to `publish_deferred`, so that the tables are available earlier. `verify`
        compares an index in the cache with its digests before it is used.
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
        opening = _Opening(self, session, sources, entry, report, cancel, publish_later)
        return entry.make_unless(sources.covered_by, opening.fetch_or_build)

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
        except (ArchiveError, CacheUnusable) as error:
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
    report: Callable[[Progress], None]
    cancel: CancelToken
    publish_later: bool
    progress: Progress = field(default_factory=Progress)

    def fetch_or_build(self, directory: Path) -> Manifest:
        shared = SharedIndex(self.indexer.store, self.session)
        published = shared.manifest()
        if published is not None and self.sources.covered_by(published):
            try:
                self._update(stage="fetching the index")
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
            self._update(stage="publishing")
            _publish(shared, self.session, directory, manifest)
        self._update(stage="ready")
        return manifest

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
        files = self.sources.beyond(base_manifest)
        self._update(stage="reading events", files_total=len(files), bytes_total=sum(f.stored.size for f in files))
        work = directory / "work"
        work.mkdir()
        source = EventSource(self.indexer.store, work, self.indexer.limits.batch_bytes)
        documents = work / "documents.jsonl"
        with (
            closing(source.batches(files)) as batches,
            Builder(directory, self.indexer.limits, base) as builder,
            self.cancel.calling(builder.cancel),
            ThreadPoolExecutor(1 + len(self.sources.tables), "tables") as threads,
        ):
            collecting = threads.submit(self._collect_documents, documents)
            writing = [
                threads.submit(table.source.write, self.indexer.store, table.objects, directory, base, self.cancel)
                for table in self.sources.tables
            ]
            for batch in batches:
                with self.indexer.build_lock:
                    try:
                        builder.add(batch.lines)
                    except Unreadable:
                        source.rewrite(batch)
                        builder.add(batch.lines, lenient=True)
                self._update(
                    files=self.progress.files + len(batch.files),
                    bytes=self.progress.bytes + batch.stored_bytes,
                    events=builder.counts.events,
                )
            self._update(stage="making tables")
            problems = [*source.problems, *collecting.result(), *_results(writing)]
            with self.indexer.build_lock:
                builder.add_documents(documents)
                facts = builder.finish()
            rows = builder.row_counts()
        return self._manifest(directory, base_manifest, builder, problems, facts, rows)

    def _collect_documents(self, file: Path) -> list[str]:
        """Download what is not an event; returns what could not be read."""
        problems: list[str] = []
        with file.open("wb") as out:
            write_documents(self.indexer.store, self.sources.files, out, problems)
        return problems

    def _manifest(
        self,
        directory: Path,
        base: Manifest | None,
        builder: Builder,
        problems: list[str],
        facts: dict[str, object],
        rows: dict[str, int],
    ) -> Manifest:
        events = dict(base.events) if base else {}
        for name, number in builder.counts.by_type.items():
            events[name] = events.get(name, 0) + number
        if builder.counts.dropped:
            problems.append(f"{builder.counts.dropped} events could not be read")
        earlier = base.problems if base else []
        return Manifest(
            version=VERSION,
            session=self.session.name,
            sources=list(self.sources.events),
            meaning=self.sources.rules,
            other_sources=self.sources.others,
            files=describe(directory, sorted(file.name for file in directory.glob("*.parquet"))),
            rows=rows,
            events=events,
            problems=[*earlier, *problems][:MAX_PROBLEMS],
            problem_count=len(problems) + (base.problem_count if base else 0),
            facts=facts,
        )

    def _update(self, **changes: object) -> None:
        self.cancel.check()
        self.progress = replace(self.progress, **changes)  # type: ignore[arg-type]
        self.report(self.progress)


def _results(writing: Sequence[Future[Sequence[str]]]) -> Iterator[str]:
    for problems in writing:
        yield from problems.result()


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
