"""The steps of a build: read events, collect documents, make the tables, describe the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from ray_history.archive.stores import Store
from ray_history.bounds import valid_fields
from ray_history.history.build.builder import Builder
from ray_history.history.build.runs import Unreadable
from ray_history.history.engine import OUT_OF_MEMORY, Database, Limits
from ray_history.history.facts import Facts
from ray_history.index.documents import FRUGAL_ANSWER, MAX_ANSWER, write_documents
from ray_history.index.event_source import FRUGAL_EVENT, MAX_EVENT, Batch, EventSource
from ray_history.index.locks import CancelToken
from ray_history.index.manifest import VERSION, Manifest, by_type, describe, listed

from .order import BuildFailed, BuildOrder, Progress, Report


@dataclass(frozen=True)
class BuildHere:
    """Builds in this process and thread."""

    store: Store
    limits: Limits
    database: Database | None = None
    """A database from `ready_database` for one build; None to make it then."""

    def build(self, order: BuildOrder, report: Report, cancel: CancelToken) -> Manifest:
        try:
            return _Steps(order, self.store, self.limits, report, cancel, self.database).run()
        except OUT_OF_MEMORY as error:
            raise BuildFailed(
                "memory", "rebuilding the session takes more memory than --build-memory allows"
            ) from error

    def prepare(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


@dataclass
class _Steps:
    order: BuildOrder
    store: Store
    limits: Limits
    report: Report
    cancel: CancelToken
    database: Database | None
    progress: Progress = field(default_factory=Progress)

    def run(self) -> Manifest:
        order = self.order
        files = order.sources.beyond(order.base_manifest)
        self._update(stage="reading events", files_total=len(files), bytes_total=sum(f.stored.size for f in files))
        work = order.directory / "work"
        work.mkdir()
        limits = self.limits.frugal if order.is_frugal else self.limits
        source = EventSource(self.store, work, limits.batch_bytes, FRUGAL_EVENT if order.is_frugal else MAX_EVENT)
        documents = work / "documents.jsonl"
        with (
            closing(source.batches(files)) as batches,
            Builder(order.directory, limits, order.base, self.database) as builder,
            self.cancel.calling(builder.cancel),
            ThreadPoolExecutor(1 + len(order.sources.tables), "tables") as threads,
        ):
            if order.is_frugal:
                builder.enforce_memory_limit()
            collecting = threads.submit(self._collect_documents, documents)
            writing = [
                threads.submit(table.source.write, self.store, table.objects, order.directory, order.base, self.cancel)
                for table in order.sources.tables
            ]
            self._read(source, batches, builder)
            in_files = Counter(by_type(builder.counts.by_type))
            with closing(source.batches(order.sources.files.journals)) as journals:
                self._read(source, journals, builder)
            self._update(stage="making tables")
            problems = [*source.problems, *collecting.result(), *_results(writing)]
            builder.add_documents(documents)
            facts, invalid = valid_fields(builder.finish(), Facts)
            problems += [f"the facts of the session: {problem}" for problem in invalid]
            rows = builder.row_counts()
        return self._manifest(builder, in_files, problems, facts, rows)

    def _read(self, source: EventSource, batches: Iterable[Batch], builder: Builder) -> None:
        for batch in batches:
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

    def _collect_documents(self, file: Path) -> list[str]:
        """Download what is not an event; returns what could not be read."""
        problems: list[str] = []
        max_answer = FRUGAL_ANSWER if self.order.is_frugal else MAX_ANSWER
        with file.open("wb") as out:
            write_documents(self.store, self.order.sources.files, out, problems, max_answer=max_answer)
        return problems

    def _manifest(
        self,
        builder: Builder,
        in_files: Counter[str],
        problems: list[str],
        facts: Facts,
        rows: dict[str, int],
    ) -> Manifest:
        sources, base, directory = self.order.sources, self.order.base_manifest, self.order.directory
        in_journals = Counter(by_type(builder.counts.by_type)) - in_files
        if base:
            in_files = in_files + Counter(base.events) - Counter(base.journal_events)
        if builder.counts.dropped:
            problems.append(f"{builder.counts.dropped} events could not be read")
        earlier = base.problems if base else []
        return Manifest(
            version=VERSION,
            session=sources.files.session.name,
            sources=list(sources.events),
            meaning=sources.rules,
            other_sources=sources.others,
            files=describe(directory, sorted(file.name for file in directory.glob("*.parquet"))),
            rows=rows,
            events=dict(in_files + in_journals),
            journal_events=dict(in_journals),
            problems=listed([*earlier, *problems]),
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
