"""Settings of the index: the local cache, and what rebuilding sessions may use."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ray_history.setting import setting

if TYPE_CHECKING:
    from ray_history.archive.stores.registry import StorageSettings

    from .indexer import Indexer


def _usable_cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class IndexSettings:
    """Where rebuilt sessions are kept on this machine, and the limits of rebuilding."""

    cache_dir: str = setting("~/.cache/ray-history", "Local cache of rebuilt sessions.", metavar="DIR")
    cache_size: int = setting(
        10_240, "Cache size limit; least recently used entries are evicted.", minimum=1, metavar="MIB"
    )
    build_memory: int = setting(
        1024, "Memory limit for rebuilding sessions, whatever their size.", minimum=512, metavar="MIB"
    )
    build_threads: int = setting(
        _usable_cores, "Threads for rebuilding sessions.", minimum=1, metavar="NUMBER", default_text="all cores"
    )
    build_seconds: int = setting(
        120,
        "Processor time for rebuilding a session; 5 s more for each MiB that it has in the archive.",
        minimum=1,
        metavar="SECONDS",
    )
    share_index: bool = setting(True, "Store rebuilt sessions in the archive for other servers.")

    @property
    def cache_folder(self) -> Path:
        return Path(self.cache_dir).expanduser()


def make_indexer(storage: StorageSettings, settings: IndexSettings) -> Indexer:
    """An indexer of an archive that builds in processes of their own; `close` it. The settings can be pickled, so that
    other machines can make the same one."""
    from .build.pool import BuildPool

    indexer = make_plain_indexer(storage, settings)
    if storage.url.startswith("memory:"):  # no other process could read it
        return indexer
    indexer.builds = BuildPool(
        partial(make_plain_indexer, storage, settings),
        indexer.limits,
        indexer.cache.root,
        processor_seconds=settings.build_seconds,
        disk=settings.cache_size << 20,
    )
    return indexer


def make_plain_indexer(storage: StorageSettings, settings: IndexSettings) -> Indexer:
    """The same, but it builds in the calling thread."""
    # Importing DuckDB takes 0.1 s, which `ray-history --help` must not spend.
    from ray_history.archive.stores import open_store
    from ray_history.history.engine import Limits

    from .cache import Cache
    from .indexer import Indexer

    cache = Cache(settings.cache_folder, settings.cache_size << 20)
    limits = Limits(settings.build_memory << 20, settings.build_threads)
    return Indexer(open_store(storage), cache, limits, share=settings.share_index)
