"""What the index of a session is made from, and how tables that do not come from events become part of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.session_files import EventFile, SessionFiles, list_session
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.history.events import rules_digest

from .documents import is_source_log, process_of
from .locks import CancelToken
from .log_ends import has_end
from .log_heads import has_facts
from .manifest import Manifest, SourceFile


class TableSource(Protocol):
    """Makes tables that come neither from events nor, because they are large, from documents: metrics, for example.

    The tables become part of the index: they are in its manifest, and are cached, shared and evicted with it.
    """

    def list(self, store: Store, session: Session) -> Sequence[ObjectInfo]:
        """The objects that the tables are made from. When one of them changes, the index is extended."""

    def write(
        self, store: Store, objects: Sequence[ObjectInfo], directory: Path, base: Path | None, cancel: CancelToken
    ) -> Sequence[str]:
        """Write the tables as Parquet files into `directory`; returns what could not be read.

        `base` is the directory of the index that is extended, if any: it may have older versions of the tables. This
        runs in its own thread, while events are read, and must check `cancel` from time to time.
        """


@dataclass(frozen=True, slots=True)
class TableObjects:
    """A source of tables, and its objects of one session."""

    source: TableSource
    objects: Sequence[ObjectInfo]


@dataclass(frozen=True, slots=True)
class Sources:
    """What a session's tables are made from, as listed."""

    files: SessionFiles
    events: tuple[SourceFile, ...]
    tables: tuple[TableObjects, ...]
    others: str
    """A digest of the listing of everything but event files, journals included."""
    rules: str
    """The digest of the rules by which tables are made."""
    other_bytes: int = 0
    """The size of what is read beside event files. Log tails do not count: only a little of them is read."""

    def covered_by(self, manifest: Manifest) -> bool:
        return set(manifest.sources) == set(self.events) and manifest.other_sources == self.others

    def extends(self, manifest: Manifest) -> bool:
        """Whether everything that the index was made from still exists, so that only the rest has to be read."""
        return manifest.meaning == self.rules and set(manifest.sources) <= set(self.events)

    def beyond(self, manifest: Manifest | None) -> Sequence[EventFile]:
        """The event files that are not in an index."""
        indexed = set() if manifest is None else {source.key for source in manifest.sources}
        return [file for file in self.files.event_files if file.stored.key not in indexed]


def list_sources(store: Store, session: Session, table_sources: Sequence[TableSource] = ()) -> Sources:
    files = list_session(store, session)
    tables = tuple(TableObjects(source, source.list(store, session)) for source in table_sources)
    read = [
        *files.endpoints.values(),
        *(info for _, name, info in files.whole_logs if is_source_log(name)),
        # An index may have events of a journal that is gone: they are in event files by then.
        *(journal.stored for journal in files.journals),
        *store.list(layout.ledger_prefix(session.root, session.cluster, session.name)),
        *(info for table in tables for info in table.objects),
    ]
    # Of these only a little is read, but it may change.
    ends = [info for _, name, info in files.whole_logs if has_end(name)]
    others = [*read, *ends, *(info for _, info in files.tail_bundles)]
    # The name and the first lines of a log never change, however it grows: only its existence counts.
    heads = [info.key for _, name, info in files.whole_logs if has_facts(name) or process_of(name)]
    events = tuple(SourceFile(file.stored.key, file.stored.size, file.stored.etag or "") for file in files.event_files)
    rules = rules_digest()
    return Sources(files, events, tables, _digest(rules, others, heads), rules, sum(info.size for info in read))


def _digest(rules: str, objects: Sequence[ObjectInfo], keys: Sequence[str]) -> str:
    lines = sorted(f"{info.key}\0{info.size}\0{info.etag}\n" for info in objects)
    return hashlib.blake2b("".join([rules, *lines, *sorted(keys)]).encode(), digest_size=16).hexdigest()
