"""The source of the tables of metrics: the blocks of a session, and the dashboards that its head wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.archive.layout import MetricBlockKey
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.archive.stores.interface import read_small
from ray_history.metrics.block import Block, BlockRow, CorruptBlock, read_block
from ray_history.metrics.dashboards import InvalidDashboards, unpack

from .locks import CancelToken

if TYPE_CHECKING:
    from ray_history.metrics.tables import TablesWriter

JOB = "ray"
"""The label `job` of Ray's own Prometheus configuration."""
MAX_BLOCK, MAX_DASHBOARDS = 64 << 20, 8 << 20
MAX_SPAN = 86_400_000
"""Between the first and the last scrape of a block, in ms. Those of a collector have some minutes."""
_AT_ONCE = 8
MEMORY = 256 << 20


@dataclass(frozen=True, slots=True)
class _Stored:
    """A block in the archive."""

    info: ObjectInfo
    key: MetricBlockKey
    cluster: str

    @property
    def row(self) -> BlockRow:
        return BlockRow(self.info.key, self.info.etag or "", self.key.node, self.key.endpoint, self.key.first_ms)

    @property
    def labels(self) -> Sequence[tuple[str, str]]:
        """The labels that Prometheus would add in a cluster of KubeRay."""
        return ("job", JOB), ("ray_io_cluster", self.cluster)


class MetricsSource:
    """Writes the tables of metrics, if a session has blocks."""

    def list(self, store: Store, session: Session) -> Sequence[ObjectInfo]:
        return list(store.list(layout.metrics_prefix(session.root, session.cluster, session.name)))

    def write(
        self, store: Store, objects: Sequence[ObjectInfo], directory: Path, base: Path | None, cancel: CancelToken
    ) -> Sequence[str]:
        blocks = sorted(_blocks(objects), key=lambda block: (block.key.first_ms, block.info.key))
        packed = [info for info in objects if _is_dashboards(info)]
        if not blocks and not packed:
            return []
        # It imports NumPy, which takes 0.1 s: most sessions have no metrics.
        from ray_history.metrics.tables import TablesWriter

        problems: list[str] = []
        with closing(TablesWriter(directory, [block.row for block in blocks], base, memory=MEMORY)) as writer:
            for stored, read in _read(store, [block for block in blocks if not writer.has(block.info.key)]):
                cancel.check()
                if isinstance(read, Block):
                    found = writer.add(stored.row, read, stored.labels)
                    problems += [f"{stored.info.key}: {problem}" for problem in found]
                else:
                    problems.append(f"{stored.info.key}: {read}")
                    writer.add_unreadable(stored.row)
            writer.finish()
            for info in packed:
                problems += _write_dashboards(store, info, writer)
        return problems


def _blocks(objects: Sequence[ObjectInfo]) -> Iterator[_Stored]:
    for info in objects:
        *_, cluster, _session, node, endpoint, name = info.key.split("/")
        key = layout.parse_metric_block_key(f"{node}/{endpoint}/{name}")
        if key is not None:
            yield _Stored(info, key, cluster)


def _read(store: Store, blocks: Sequence[_Stored]) -> Iterator[tuple[_Stored, Block | str]]:
    """Each block, or why it cannot be read; a few are downloaded at a time."""
    with ThreadPoolExecutor(_AT_ONCE, "metrics") as threads:
        for start in range(0, len(blocks), _AT_ONCE):
            some = blocks[start : start + _AT_ONCE]
            yield from zip(some, threads.map(lambda block: _read_one(store, block), some), strict=True)


def _read_one(store: Store, stored: _Stored) -> Block | str:
    try:
        block = read_block(read_small(store, stored.info.key, MAX_BLOCK))
        first, last = block.timestamps[0], block.timestamps[-1]
        # Blocks are read in the order of their keys: one with later times would hide others of its target.
        if first != stored.key.first_ms or last - first > MAX_SPAN:
            raise CorruptBlock(f"it has times from {first} to {last}")
        return block
    except (CorruptBlock, ArchiveError) as error:
        return str(error)


def _write_dashboards(store: Store, info: ObjectInfo, writer: TablesWriter) -> Iterator[str]:
    try:
        writer.write_dashboards(unpack(read_small(store, info.key, MAX_DASHBOARDS)))
    except (InvalidDashboards, ArchiveError) as error:
        yield f"{info.key}: {error}"


def _is_dashboards(info: ObjectInfo) -> bool:
    # Nodes have directories, so that this can be no other object.
    return info.key.rpartition("/")[2] == layout.METRIC_DASHBOARDS
