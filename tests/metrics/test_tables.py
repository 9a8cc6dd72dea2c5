"""The tables of metrics: ends of series, gaps, and how they are extended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_history.metrics.block import UP, BlockRow, OpenBlock, read_block
from ray_history.metrics.tables import MAX_GAP, TablesWriter

START = 1_790_000_000_000
STEP = 15_000
TARGET = "10.0.0.1:8080"

Scrape = tuple[int, Mapping[str, float] | None]


def stored(scrapes: Sequence[Scrape], target: str = TARGET) -> tuple[BlockRow, bytes]:
    """A block of scrapes at times in ms since the start."""
    block = OpenBlock(target)
    for time, scrape in scrapes:
        if scrape is None:
            block.add_failure(START + time)
        else:
            block.add(START + time, (f"{series} {value!r}" for series, value in scrape.items()))
    return BlockRow(f"{target}/{block.first}", "1", "node", "agent", block.first), block.encode()


def write(directory: Path, blocks: Sequence[tuple[BlockRow, bytes]], base: Path | None = None) -> tuple[int, list[str]]:
    """Write tables; returns the number of blocks that were read for it, and their problems."""
    directory.mkdir(parents=True, exist_ok=True)
    count, problems = 0, list[str]()
    with closing(TablesWriter(directory, [row for row, _ in blocks], base)) as writer:
        for row, data in blocks:
            if not writer.has(row.key):
                problems += writer.add(row, read_block(data), [("job", "ray")])
                count += 1
        writer.finish()
    return count, problems


def read(directory: Path) -> dict[str, list[tuple[int, float | None]]]:
    """The samples of each series but `up`, with times since the start and None for an end."""
    metrics, series = (f"read_parquet('{directory / name}.parquet')" for name in ("metrics", "series"))
    found: dict[str, list[tuple[int, float | None]]] = {}
    with duckdb.connect() as database:
        rows = database.execute(
            f"""select name, time_ms, value from {metrics} as m join {series} as s using (series_id)
            order by series_id, time_ms"""
        ).fetchall()
    for name, time, value in rows:
        if name != UP:
            found.setdefault(name, []).append((time - START, value))
    return found


def test_a_series_ends_where_a_scrape_does_not_show_it(tmp_path: Path) -> None:
    write(tmp_path, [stored([(0, {"a": 1, "b": 1}), (STEP, {"a": 2}), (2 * STEP, {"a": 3, "b": 3})])])
    assert read(tmp_path) == {
        "a": [(0, 1), (STEP, 2), (2 * STEP, 3), (2 * STEP + 1, None)],
        "b": [(0, 1), (STEP, None), (2 * STEP, 3), (2 * STEP + 1, None)],
    }


def test_a_series_ends_between_two_blocks(tmp_path: Path) -> None:
    write(tmp_path, [stored([(0, {"a": 1, "b": 1})]), stored([(STEP, {"a": 2})])])
    assert read(tmp_path) == {"a": [(0, 1), (STEP, 2), (STEP + 1, None)], "b": [(0, 1), (STEP, None)]}


def test_all_series_end_when_a_scrape_fails(tmp_path: Path) -> None:
    write(tmp_path, [stored([(0, {"a": 1}), (STEP, None), (2 * STEP, None)])])
    assert read(tmp_path) == {"a": [(0, 1), (STEP, None)]}


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_series_has_no_value_in_a_gap(tmp_path: Path, blocks: int) -> None:
    later = STEP + MAX_GAP + 1
    scrapes: list[Scrape] = [(0, {"a": 1}), (STEP, {"a": 2}), (later, {"a": 3})]
    write(tmp_path, [stored(scrapes)] if blocks == 1 else [stored(scrapes[:2]), stored(scrapes[2:])])
    assert read(tmp_path) == {"a": [(0, 1), (STEP, 2), (STEP + 1, None), (later, 3), (later + 1, None)]}


def test_what_two_collectors_scraped_counts_once(tmp_path: Path) -> None:
    first = stored([(0, {"a": 1}), (STEP, {"a": 2})])
    row, data = stored([(STEP, {"a": 2}), (2 * STEP, {"a": 3})])
    write(tmp_path, [first, (row, data)])
    assert read(tmp_path) == {"a": [(0, 1), (STEP, 2), (2 * STEP, 3), (2 * STEP + 1, None)]}


def test_series_that_are_no_series_are_reported(tmp_path: Path) -> None:
    _, problems = write(tmp_path, [stored([(0, {"a": 1, "b{": 2, 'c{d="e}': 3})])])
    assert read(tmp_path) == {"a": [(0, 1), (1, None)]}
    assert len(problems) == 2


def test_labels_are_those_that_prometheus_would_add(tmp_path: Path) -> None:
    write(tmp_path, [stored([(0, {'a{x="1\\"2",empty="",instance="own"}': 1})])])
    with duckdb.connect() as database:
        rows: list[Any] = database.execute(
            f"select labels from read_parquet('{tmp_path / 'series.parquet'}') where name = 'a'"
        ).fetchall()
    assert rows == [({"instance": "own", "job": "ray", "x": '1"2'},)]


NAMES = st.sampled_from(["a", "b", "c"])
SCRAPES = st.lists(st.none() | st.dictionaries(NAMES, st.integers(0, 9).map(float)), min_size=2, max_size=10)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(SCRAPES, st.lists(st.sampled_from([STEP, 2 * STEP, MAX_GAP + 1]), min_size=10, max_size=10), st.integers(1, 9))
def test_extended_tables_are_as_those_made_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    scrapes: list[Mapping[str, float] | None],
    distances: list[int],
    split: int,
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    times = [sum(distances[:number]) for number in range(len(scrapes))]
    timed = list(zip(times, scrapes, strict=True))
    blocks = [stored(part) for part in (timed[:split], timed[split:]) if part]
    write(folder / "once", blocks)
    write(folder / "base", blocks[:1])
    count, _ = write(folder / "extended", blocks, folder / "base")
    assert read(folder / "extended") == read(folder / "once")
    assert count == len(blocks) - 1


def test_a_block_that_comes_late_makes_new_tables(tmp_path: Path) -> None:
    blocks = [stored([(0, {"a": 1})]), stored([(STEP, {"a": 2})]), stored([(2 * STEP, {"a": 3})])]
    write(tmp_path / "base", [blocks[0], blocks[2]])
    count, _ = write(tmp_path / "new", blocks, tmp_path / "base")
    assert count == 3
    assert read(tmp_path / "new") == {"a": [(0, 1), (STEP, 2), (2 * STEP, 3), (2 * STEP + 1, None)]}


def test_a_block_that_changed_makes_new_tables(tmp_path: Path) -> None:
    row, _ = block = stored([(0, {"a": 1})])
    write(tmp_path / "base", [block])
    changed = BlockRow(row.key, "2", row.node_id, row.endpoint, row.first_ms), stored([(0, {"a": 5})])[1]
    count, _ = write(tmp_path / "new", [changed], tmp_path / "base")
    assert count == 1
    assert read(tmp_path / "new") == {"a": [(0, 5), (1, None)]}
