"""A session's tables, wherever they are quickest to be had: the local cache, the bucket's index, or the event files.

Invariants:
* what is opened matches the archive's listing of that moment: the same event files and other sources, by size and etag;
* an index that covers part of them is extended by the new files; anything else is built anew;
* nothing is trusted: a damaged index, here or in the bucket, is thrown away and built again. What comes from the bucket
  is compared with its digests; what stands in the cache when somebody doubts it, which reading all of it settles;
* builds on one machine take turns batch by batch, so that a small session need not wait for the end of a large one, and
  the memory limit holds for all of them together;
* an index that could not be published is still used: sharing it is a courtesy to the other servers.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.session_files import EventFile, SessionFiles, list_session
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.history.build.builder import Builder
from ray_history.history.build.runs import Unreadable
from ray_history.history.engine import Cancelled, Limits
from ray_history.history.events import rules_digest
from ray_history.history.read.tables import READING_FAILED

from .cache import Cache, CacheUnusable, Entry, Opened
from .documents import is_source_log, write_documents
from .event_source import EventSource
from .log_heads import is_told_by_head
from .manifest import MAX_PROBLEMS, VERSION, Damaged, Manifest, SourceFile, describe
from .shared import SharedIndex
from .summary import Summaries, identify, make_summary, renewed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an opening has come, for people who wait."""

    stage: str = "listing"
    """listing, fetching the index, reading events, making tables, publishing (unless that is left for later), ready."""
    files: int = 0
    files_total: int = 0
    bytes: int = 0
    bytes_total: int = 0
    events: int = 0


class Stop:
    """A way to end an opening from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._actions: list[Callable[[], None]] = []

    def ask(self) -> None:
        with self._lock:
            self._asked = True
            actions = list(self._actions)
        for action in actions:
            action()

    def check(self) -> None:
        if self._asked:
            raise Cancelled

    @contextmanager
    def calls(self, action: Callable[[], None]) -> Iterator[None]:
        """`action` is called when the stop is asked for inside the block."""
        with self._lock:
            self._actions.append(action)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._actions.remove(action)


class Turns:
    """A lock that is had in the order in which it was asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            if len(self._waiting) == 1:
                mine.set()
        mine.wait()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.popleft()
                if self._waiting:
                    self._waiting[0].set()


@dataclass(frozen=True, slots=True)
class Sources:
    """What a session's tables are made of, as listed."""

    files: SessionFiles
    events: tuple[SourceFile, ...]
    others: str

    def covered_by(self, manifest: Manifest) -> bool:
        return set(manifest.sources) == set(self.events) and manifest.other_sources == self.others

    def extends(self, manifest: Manifest) -> bool:
        """Whether all that the index was made of still stands, so that only the rest need be read."""
        return manifest.meaning == rules_digest() and set(manifest.sources) <= set(self.events)

    def beyond(self, manifest: Manifest | None) -> Sequence[EventFile]:
        known = set() if manifest is None else {source.key for source in manifest.sources}
        return [file for file in self.files.event_files if file.stored.key not in known]


def list_sources(store: Store, session: Session) -> Sources:
    files = list_session(store, session)
    others = [
        *files.endpoints.values(),
        *(info for _, name, info in files.whole_logs if is_source_log(name)),
        *(info for _, info in files.tail_bundles),
        *store.list(layout.ledger_prefix(session.root, session.cluster, session.name)),
    ]
    # The top of a log never changes, however it grows: all that matters is whether it is there.
    heads = [info.key for _, name, info in files.whole_logs if is_told_by_head(name)]
    return Sources(files, tuple(_source(file.stored) for file in files.event_files), _digest(others, heads))


def _source(info: ObjectInfo) -> SourceFile:
    return SourceFile(info.key, info.size, info.etag or "")


def _digest(objects: Sequence[ObjectInfo], keys: Sequence[str]) -> str:
    told = sorted(f"{info.key}\0{info.size}\0{info.etag}\n" for info in objects)
    return hashlib.blake2b("".join([rules_digest(), *told, *sorted(keys)]).encode(), digest_size=16).hexdigest()


@dataclass
class Indexer:
    """Opens sessions of one store; for many threads."""

    store: Store
    cache: Cache
    limits: Limits = field(default_factory=Limits)
    share: bool = True
    """Whether indexes are put into the bucket for others."""
    turns: Turns = field(default_factory=Turns)
    _unshared: set[str] = field(default_factory=set)

    def open(
        self,
        session: Session,
        report: Callable[[Progress], None] = lambda _: None,
        stop: Stop | None = None,
        *,
        share_later: bool = False,
        thoroughly: bool = False,
    ) -> Opened:
        """The session's tables as of now; the caller closes them. With `share_later` they are there before they are in
        the archive, too: that is left to `share_now`. `thoroughly` reads what stands in the cache before it is used."""
        stop = stop or Stop()
        report(Progress())
        sources = list_sources(self.store, session)
        entry = self.cache.entry(_key(session))
        opened = entry.open()
        if opened is not None:
            if sources.covered_by(opened.manifest) and (not thoroughly or opened.is_sound()):
                return opened
            opened.close()
        opening = _Opening(self, session, sources, entry, report, stop, share_later)
        return entry.make_unless(sources.covered_by, opening.fetch_or_build)

    def publish(self, session: Session, opened: Opened) -> None:
        """See to it that the archive holds this index too, if it is to be shared."""
        shared = SharedIndex(self.store, session)
        if self.share and shared.manifest() != opened.manifest:
            _publish(shared, session, opened.directory, opened.manifest)

    def share_after(self, session: Session) -> None:
        """Note that `share_now` has something to do."""
        self._unshared.add(_key(session))

    def share_now(self, session: Session) -> None:
        """Put into the archive what was opened with `share_later`, if it was built; a failure costs only that."""
        key = _key(session)
        if key not in self._unshared:
            return
        self._unshared.discard(key)
        try:
            with _closing(self.cache.entry(key).open()) as opened:
                if opened is not None:
                    self.publish(session, opened)
        except (ArchiveError, CacheUnusable) as error:
            _warn_unshared(session, error)

    @cached_property
    def summaries(self) -> Summaries:
        return Summaries(self.store, self.cache, share=self.share)

    def summarize(self, session: Session) -> None:
        """See to it that the newest index on this machine has a summary; a failure costs only that."""
        try:
            with _closing(self.cache.entry(_key(session)).open()) as opened:
                if opened is None:
                    return
                standing = self.summaries.read(session)
                manifest = opened.manifest
                if standing is None or (
                    standing.index != identify(manifest) and standing.event_files <= len(manifest.sources)
                ):
                    self._write_summary(session, opened)
                elif (newer := renewed(self.store, session, standing)) is not None:
                    self.summaries.write(session, newer)
        except (ArchiveError, CacheUnusable) as error:
            logger.warning("there is no summary of %s: %s", session.name, error)

    def _write_summary(self, session: Session, opened: Opened) -> None:
        try:
            summary = make_summary(self.store, session, opened)
        except READING_FAILED:
            if opened.is_sound():
                raise
            return  # whoever opens it next builds it anew
        self.summaries.write(session, summary)


def _key(session: Session) -> str:
    return f"{session.cluster.path}/{session.name}"


def _publish(shared: SharedIndex, session: Session, directory: Path, manifest: Manifest) -> None:
    try:
        shared.publish(directory, manifest)
    except ArchiveError as error:
        _warn_unshared(session, error)


def _warn_unshared(session: Session, error: Exception) -> None:
    logger.warning("the index of %s is used here but could not be shared: %s", session.name, error)


@dataclass
class _Opening:
    """One session on its way into the cache."""

    indexer: Indexer
    session: Session
    sources: Sources
    entry: Entry
    report: Callable[[Progress], None]
    stop: Stop
    share_later: bool
    progress: Progress = field(default_factory=Progress)

    def fetch_or_build(self, directory: Path) -> Manifest:
        shared = SharedIndex(self.indexer.store, self.session)
        standing = shared.manifest()
        if standing is not None and self.sources.covered_by(standing):
            try:
                self._tell(stage="fetching the index")
                shared.fetch(standing, directory)
                return standing
            except Damaged as damage:
                logger.warning(
                    "the index of %s in the archive is damaged and built again: %s", self.session.name, damage
                )
                _discard(shared)
                standing = None
        manifest = self._build_upon_what_there_is(directory, shared, standing)
        if self.share_later:
            self.indexer.share_after(self.session)
        elif self.indexer.share:
            self._tell(stage="publishing")
            _publish(shared, self.session, directory, manifest)
        self._tell(stage="ready")
        return manifest

    def _build_upon_what_there_is(self, directory: Path, shared: SharedIndex, standing: Manifest | None) -> Manifest:
        with _closing(self.entry.open()) as mine:
            if mine is not None and self.sources.extends(mine.manifest) and mine.is_sound():
                return self._build(directory, mine.directory, mine.manifest)
        if standing is not None and self.sources.extends(standing):
            base = directory / "base"
            base.mkdir()
            try:
                shared.fetch(standing, base)
                return self._build(directory, base, standing)
            except Damaged as damage:
                logger.warning("the index of %s in the archive is damaged, left unused: %s", self.session.name, damage)
            finally:
                _remove(base)
        return self._build(directory, None, None)

    def _build(self, directory: Path, base: Path | None, upon: Manifest | None) -> Manifest:
        files = self.sources.beyond(upon)
        self._tell(stage="reading events", files_total=len(files), bytes_total=sum(file.stored.size for file in files))
        work = directory / "work"
        work.mkdir()
        source = EventSource(self.indexer.store, work, self.indexer.limits.batch_bytes)
        documents = work / "documents.jsonl"
        with (
            closing(source.batches(files)) as batches,
            Builder(directory, self.indexer.limits, base) as builder,
            self.stop.calls(builder.cancel),
            ThreadPoolExecutor(1, "documents") as aside,
        ):
            gathering = aside.submit(self._gather_documents, documents)
            for batch in batches:
                with self.indexer.turns.turn():
                    try:
                        builder.add(batch.lines)
                    except Unreadable:
                        source.carefully(batch)
                        builder.add(batch.lines, lenient=True)
                self._tell(
                    files=self.progress.files + len(batch.files),
                    bytes=self.progress.bytes + batch.stored_bytes,
                    events=builder.counts.events,
                )
            self._tell(stage="making tables")
            problems = source.problems + gathering.result()
            with self.indexer.turns.turn():
                builder.add_documents(documents)
                facts = builder.finish()
            rows = builder.row_counts()
        return self._manifest(directory, upon, builder, problems, facts, rows)

    def _gather_documents(self, file: Path) -> list[str]:
        """Fetch what is no event, beside the events; returns what could not be read."""
        problems: list[str] = []
        with file.open("wb") as out:
            write_documents(self.indexer.store, self.sources.files, out, problems)
        return problems

    def _manifest(
        self,
        directory: Path,
        upon: Manifest | None,
        builder: Builder,
        problems: list[str],
        facts: dict[str, object],
        rows: dict[str, int],
    ) -> Manifest:
        events = dict(upon.events) if upon else {}
        for name, number in builder.counts.by_type.items():
            events[name] = events.get(name, 0) + number
        if builder.counts.dropped:
            problems.append(f"{builder.counts.dropped} events could not be understood")
        earlier = upon.problems if upon else []
        return Manifest(
            version=VERSION,
            session=self.session.name,
            sources=list(self.sources.events),
            meaning=rules_digest(),
            other_sources=self.sources.others,
            files=describe(directory, sorted(file.name for file in directory.glob("*.parquet"))),
            rows=rows,
            events=events,
            problems=[*earlier, *problems][:MAX_PROBLEMS],
            problem_count=len(problems) + (upon.problem_count if upon else 0),
            facts=facts,
        )

    def _tell(self, **news: object) -> None:
        self.stop.check()
        self.progress = replace(self.progress, **news)  # type: ignore[arg-type]
        self.report(self.progress)


def _discard(shared: SharedIndex) -> None:
    try:
        shared.discard()
    except ArchiveError as error:
        logger.warning("it could not be removed: %s", error)


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
