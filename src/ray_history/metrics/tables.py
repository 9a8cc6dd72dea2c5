"""The tables `metrics` and `series` of a session, made from its blocks, and `dashboards`.

Invariants:
* `metrics` is ordered by series and time. Series are numbered by name, so that the samples of one metric are close
  together; those that come later have larger numbers.
* A value that is NULL ends a series: where a scrape did not show it any more, and 1 ms after the last scrape of its
  target, or before a gap that is longer than `MAX_GAP`.
* `metric_blocks` lists the blocks, with the target and the times of each. Blocks that begin later than all blocks of
  their endpoint are added without reading the others again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
from numpy.typing import NDArray

from .block import STALE, STALE_BYTES, Block, BlockRow
from .dashboards import Dashboard
from .exposition import NAME_LABEL, InvalidSeries, labels_of
from .table_names import BLOCKS, DASHBOARDS, METRICS, SERIES

TABLES = (METRICS, SERIES, BLOCKS)
MAX_GAP = 60_000
"""Between two scrapes of a target, in ms. During a longer one, its series have no value."""

_STALE_BITS = int.from_bytes(STALE_BYTES, "little")
_ROWS_AT_ONCE = 2_000_000
_FORMAT = "format parquet, compression zstd, parquet_version v2, dictionary_size_limit 1"
"""Without dictionaries: differences of times, and floats byte by byte, are smaller."""

_SERIES_COLUMNS = "{series_id: 'integer', number: 'integer', name: 'varchar', labels: 'map(varchar, varchar)'}"
_BLOCK_COLUMNS = """{
    key: 'varchar', etag: 'varchar', node_id: 'varchar', endpoint: 'varchar', first_ms: 'bigint', last_ms: 'bigint',
    target: 'varchar', left_out: 'bigint'
}"""

_LabelKey = frozenset[tuple[str, str]]


@dataclass(slots=True)
class _Target:
    """An endpoint while its blocks are read in their order."""

    last_ms: int
    alive: set[int] = field(default_factory=set)
    """The series that the last scrape showed."""


class _Rows:
    """Rows of `metrics` in memory."""

    def __init__(self) -> None:
        self.count = 0
        self._series = list[NDArray[np.int32]]()
        self._times = list[NDArray[np.int64]]()
        self._values = list[NDArray[np.float64]]()

    def add(self, series: int, times: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        self._series.append(np.full(len(times), series, np.int32))
        self._times.append(times)
        self._values.append(values)
        self.count += len(times)

    def end(self, series: Iterable[int], time: int) -> None:
        for each in series:
            self.add(each, np.array([time], np.int64), np.array([STALE]))

    def columns(self) -> dict[str, NDArray[Any]]:
        values = np.concatenate([np.empty(0, np.float64), *self._values])
        return {
            "series_id": np.concatenate([np.empty(0, np.int32), *self._series]),
            "time_ms": np.concatenate([np.empty(0, np.int64), *self._times]),
            "value": values,
            "is_end": values.view(np.uint64) == _STALE_BITS,
        }


class TablesWriter:
    """Writes the tables of one session from its blocks, which are added in the order of their times."""

    def __init__(
        self, directory: Path, listed: Sequence[BlockRow], base: Path | None = None, *, memory: int = 256 << 20
    ) -> None:
        """`listed` are all blocks of the session. `base` is a directory with earlier tables, which are extended if they
        were made from some of these blocks and the others are later ones."""
        self._directory = directory
        self._database = duckdb.connect(config={"memory_limit": f"{memory >> 20}MB", "threads": 1})
        self._database.execute(f"set temp_directory = {_text(directory / 'metrics.spill')}")
        self._confine([directory] if base is None else [directory, base])
        self._numbers = dict[_LabelKey, int]()
        self._texts = dict[tuple[str, str], int]()
        """The numbers of series by target and text, because the labels of each are read once only."""
        self._targets = dict[str, _Target]()
        self._rows, self._runs = _Rows(), list[Path]()
        self._blocks = list[BlockRow]()
        self._base = base if base is not None and self._extends(base, listed) else None
        if self._base is not None:
            self._read_base(self._base)
        self._known = {block.key for block in self._blocks}

    def _confine(self, directories: Sequence[Path]) -> None:
        """Let queries reach only these directories: names in the blocks are not ours."""
        allowed = ", ".join(_text(directory) for directory in directories)
        self._database.execute(f"set allowed_directories = [{allowed}]")
        self._database.execute("set enable_external_access = false")
        self._database.execute("set lock_configuration = true")

    def close(self) -> None:
        self._database.close()

    def has(self, key: str) -> bool:
        """Whether the tables have this block already."""
        return key in self._known

    def _extends(self, base: Path, listed: Sequence[BlockRow]) -> bool:
        try:
            known = read_blocks(self._database, base)
        except duckdb.Error:  # no tables, or damaged ones
            return False
        etags = {block.key: block.etag for block in listed}
        last = dict[tuple[str, str], int]()
        for block in known:
            endpoint = block.node_id, block.endpoint
            last[endpoint] = max(last.get(endpoint, 0), block.last_ms or block.first_ms)
        keys = {block.key for block in known}
        are_later = all(
            block.first_ms > last.get((block.node_id, block.endpoint), 0) for block in listed if block.key not in keys
        )
        return are_later and all(etags.get(block.key) == block.etag for block in known)

    def _read_base(self, base: Path) -> None:
        places = {table: f"read_parquet({_text(base / f'{table}.parquet')})" for table in TABLES}
        rows = self._database.execute(f"select series_id, name, labels from {places[SERIES]}").fetchall()
        for number, name, labels in rows:
            self._numbers[frozenset({NAME_LABEL: name, **labels}.items())] = number
        self._blocks = read_blocks(self._database, base)
        for block in self._blocks:
            if block.target is not None and block.last_ms is not None:
                target = self._targets.setdefault(block.target, _Target(block.last_ms))
                target.last_ms = max(target.last_ms, block.last_ms)
        # The ends that the base has after the last scrape of each target: `finish` writes those that are still ends.
        self._database.execute(f"""
            create or replace temp table ended as
            select labels['instance'] as target, series_id, time_ms
            from {places[METRICS]} as metrics join {places[SERIES]} as series using (series_id)
                join (select target, max(last_ms) as last_ms from {places[BLOCKS]} group by all)
                    on target = labels['instance']
            where time_ms = last_ms + 1
        """)
        for target_name, number in self._database.execute("select target, series_id from ended").fetchall():
            self._targets[target_name].alive.add(number)

    def add_unreadable(self, row: BlockRow) -> None:
        """Note that a block is damaged, so that it is not read again."""
        self._blocks.append(row)

    def add(self, row: BlockRow, block: Block, labels: Sequence[tuple[str, str]]) -> list[str]:
        """Add a block, with `labels` that each of its series gets. Returns what is wrong with it."""
        self._blocks.append(
            msgspec.structs.replace(row, target=block.target, last_ms=block.timestamps[-1], left_out=block.left_out)
        )
        target = self._targets.setdefault(block.target, _Target(0))
        times = np.array(block.timestamps, np.int64)
        first = int(np.searchsorted(times, target.last_ms, "right"))  # another collector may have scraped the same
        borders = [first, *(first + 1 + np.flatnonzero(np.diff(times[first:]) > MAX_GAP)), len(times)]
        problems, series = list[str](), list[tuple[int, NDArray[np.float64]]]()
        for text, column in zip(block.series, block.columns(), strict=True):
            try:
                series.append((self._number(block.target, text, labels), np.frombuffer(column)))
            except InvalidSeries as error:
                problems.append(str(error))
        for start, end in pairwise(borders):
            if end > start:
                self._add_scrapes(target, times[start:end], [(number, column[start:end]) for number, column in series])
        if self._rows.count >= _ROWS_AT_ONCE:
            self._write_run()
        return problems

    def _add_scrapes(
        self, target: _Target, times: NDArray[np.int64], series: Sequence[tuple[int, NDArray[np.float64]]]
    ) -> None:
        """Add scrapes without a gap between them."""
        if times[0] - target.last_ms > MAX_GAP:
            self._rows.end(target.alive, target.last_ms + 1)
            target.alive = set()
        shown, alive = set[int](), set[int]()
        for number, values in series:
            if number in shown:
                continue
            shown.add(number)
            is_stale = values.view(np.uint64) == _STALE_BITS
            was_stale = np.concatenate([[number not in target.alive], is_stale[:-1]])
            stored = ~(is_stale & was_stale)
            if stored.any():
                self._rows.add(number, times[stored], values[stored])
            if not is_stale[-1]:
                alive.add(number)
        self._rows.end(target.alive - shown, int(times[0]))
        target.alive, target.last_ms = alive, int(times[-1])

    def _number(self, target: str, text: str, labels: Sequence[tuple[str, str]]) -> int:
        number = self._texts.get((target, text))
        if number is None:
            key = frozenset({"instance": target, **dict(labels), **labels_of(text)}.items())
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._numbers)
            self._texts[target, text] = number
        return number

    def _write_run(self) -> None:
        run = self._directory / f"{METRICS}-{len(self._runs)}.run"
        run.parent.mkdir(parents=True, exist_ok=True)
        self._database.register("rows", self._rows.columns())
        # From arrays, DuckDB reads every NaN as NULL.
        value = "case when not is_end then coalesce(value, 'nan'::double) end as value"
        self._database.execute(f"copy (select series_id, time_ms, {value} from rows) to {_text(run)} (format parquet)")
        self._database.unregister("rows")
        self._runs.append(run)
        self._rows = _Rows()

    def finish(self) -> None:
        """Write the tables."""
        for target in self._targets.values():
            self._rows.end(target.alive, target.last_ms + 1)
        self._write_run()
        self._write_series()
        self._write_samples()
        with self._lines(BLOCKS, self._blocks, _BLOCK_COLUMNS) as table:
            self._copy(BLOCKS, f"from {table}")
        for run in self._runs:
            run.unlink()

    def write_dashboards(self, dashboards: Iterable[Dashboard]) -> None:
        """Write `dashboards`."""
        self._database.execute("create or replace temp table written (name varchar, uid varchar, definition varchar)")
        for each in dashboards:
            self._database.execute("insert into written values (?, ?, ?)", msgspec.structs.astuple(each))
        self._copy(DASHBOARDS, "from written order by name")

    def _write_series(self) -> None:
        """Write `series`, and the final number of each as table `renumbered`."""
        keys = [dict(key) for key in self._numbers]
        # Numbers by name, unless a base has numbers already.
        order = (
            sorted(range(len(keys)), key=lambda old: keys[old][NAME_LABEL]) if self._base is None else range(len(keys))
        )
        numbered = [(new, old, keys[old].pop(NAME_LABEL)) for new, old in enumerate(order)]
        rows = (
            {"series_id": new, "number": old, "name": name, "labels": dict(sorted(keys[old].items()))}
            for new, old, name in numbered
        )
        with self._lines(SERIES, rows, _SERIES_COLUMNS) as table:
            self._copy(SERIES, f"select series_id, name, labels from {table} order by series_id")
            self._database.execute(f"create or replace temp table renumbered as select number, series_id from {table}")

    def _write_samples(self) -> None:
        runs = ", ".join(_text(run) for run in self._runs)
        samples = f"""
            select renumbered.series_id, time_ms, value
            from read_parquet([{runs}]) as run join renumbered on number = run.series_id
        """
        if self._base is not None:
            samples += f"""
                union all by name
                from read_parquet({_text(self._base / f"{METRICS}.parquet")}) anti join ended using (series_id, time_ms)
            """
        self._copy(METRICS, f"from ({samples}) order by series_id, time_ms")

    def _copy(self, table: str, query: str) -> None:
        path = self._directory / f"{table}.parquet"
        self._database.execute(f"copy ({query}) to {_text(path)} ({_FORMAT})")

    @contextmanager
    def _lines(self, name: str, rows: Iterable[object], columns: str) -> Iterator[str]:
        """SQL for rows that are written to a file for the moment."""
        path = self._directory / f"{name}.run"
        with path.open("wb") as out:
            out.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
        yield f"read_json({_text(path)}, format = 'newline_delimited', columns = {columns})"
        path.unlink()


def read_blocks(database: duckdb.DuckDBPyConnection, directory: Path) -> list[BlockRow]:
    """The blocks that the tables in a directory were made from; raises `duckdb.Error` if there are no such tables."""
    columns = ", ".join(BlockRow.__struct_fields__)
    place = _text(directory / f"{BLOCKS}.parquet")
    rows = database.execute(f"select {columns} from read_parquet({place})").fetchall()
    return [BlockRow(*row) for row in rows]


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
