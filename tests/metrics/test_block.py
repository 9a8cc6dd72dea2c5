"""Blocks of metrics: what goes in comes out, and damaged ones are refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.metrics.block import (
    MAX_KEY,
    STALE_BYTES,
    UP,
    Block,
    CorruptBlock,
    OpenBlock,
    read_block,
)
from ray_history.zstandard import zstd

START = 1_790_000_000_000
TARGET = "10.0.0.1:8080"


def content(block: Block) -> dict[str, list[float | None]]:
    """The values of each series, with None where a scrape did not show it."""
    return {
        series: [None if struct.pack("<d", value) == STALE_BYTES else value for value in column]
        for series, column in zip(block.series, block.columns(), strict=True)
    }


def of_scrapes(*scrapes: Mapping[str, float] | None, **options: int) -> OpenBlock:
    block = OpenBlock(TARGET, **options)
    for number, scrape in enumerate(scrapes):
        if scrape is None:
            block.add_failure(START + number)
        else:
            block.add(START + number, (f"{series} {value!r}" for series, value in scrape.items()))
    return block


SERIES = st.sampled_from(["a", "b", 'c{x="1"}', 'c{x="2",y="a b"}', "d"])
SCRAPES = st.lists(st.none() | st.dictionaries(SERIES, st.floats(allow_nan=False)), min_size=1, max_size=12)


@given(SCRAPES)
def test_what_goes_in_comes_out(scrapes: list[dict[str, float] | None]) -> None:
    block = read_block(of_scrapes(*scrapes).encode())
    shown = {series for scrape in scrapes for series in scrape or ()}
    expected = {series: [(scrape or {}).get(series) for scrape in scrapes] for series in shown}
    assert content(block) == {**expected, UP: [float(scrape is not None) for scrape in scrapes]}
    assert (block.target, block.timestamps) == (TARGET, [START + number for number in range(len(scrapes))])


def test_an_open_block_can_be_encoded_again_and_again() -> None:
    block = of_scrapes({"a": 1}, {"b": 2})
    block.encode()
    block.add(START + 2, ["a 3"])
    assert content(read_block(block.encode())) == {UP: [1, 1, 1], "a": [1, None, 3], "b": [None, 2, None]}


def test_a_nan_of_the_program_is_a_value() -> None:
    (values,) = (
        values for series, values in content(read_block(of_scrapes({"a": math.nan}).encode())).items() if series == "a"
    )
    assert values[0] is not None
    assert math.isnan(values[0])


def test_comments_and_times_of_samples_are_left_out() -> None:
    block = OpenBlock(TARGET)
    lines = [
        "# HELP a text",
        "# TYPE a counter",
        "",
        'a{x="1 # } 2"} 3',
        "b 4 1790000000000",
        'c{x="}"} 5 1790000000000',
        "d{} 6",
    ]
    block.add(START, lines)
    assert content(read_block(block.encode())) == {
        UP: [1],
        'a{x="1 # } 2"}': [3],
        "b": [4],
        'c{x="}"}': [5],
        "d{}": [6],
    }


def test_a_scrape_that_breaks_off_leaves_nothing() -> None:
    block = of_scrapes({"a": 1})
    with pytest.raises(ValueError, match="could not convert"):
        block.add(START + 1, ["a 2", "b 3", "c not-a-number"])
    block.add_failure(START + 1)
    assert content(read_block(block.encode())) == {UP: [1, 0], "a": [1, None]}


def test_only_chosen_metrics_are_stored() -> None:
    block = OpenBlock(TARGET, keeps=lambda name: name == "a")
    block.add(START, ['a{x="1"} 1', "b 2", "b 3"])
    assert block.left_out == 0
    assert content(read_block(block.encode())) == {UP: [1], 'a{x="1"}': [1]}


def test_series_beyond_the_limit_are_counted() -> None:
    block = of_scrapes({f'a{{x="{number}"}}': 1.0 for number in range(100)}, {"b": 1}, max_series=50)
    read = read_block(block.encode())
    assert (len(read.series), read.left_out) == (50, 51)


def test_a_series_with_an_absurd_name_is_left_out() -> None:
    block = of_scrapes({"a" * (MAX_KEY + 1): 1, "b": 2})
    assert block.left_out == 1
    assert content(read_block(block.encode())) == {UP: [1], "b": [2]}


def damaged(**changes: object) -> bytes:
    """A block with another head."""
    import msgspec

    head = {"target": TARGET, "timestamps": [START, START + 1], "series": ["a"], "kinds": "1"} | changes
    packed = zstd.compress(msgspec.json.encode(head))
    return b"RHM1" + struct.pack("<I", len(packed)) + packed + zstd.compress(struct.pack("<2d", 1, 2))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RHM2" + bytes(20),
        b"RHM1\xff\xff\xff\xff",
        damaged(timestamps=[]),
        damaged(timestamps=[START + 1, START]),
        damaged(timestamps=[1, 2]),
        damaged(timestamps=[10**30]),
        damaged(timestamps=[START, START + 1, START + 2]),
        damaged(series=["a", "b"]),
        damaged(kinds="x"),
        damaged(kinds="0"),
        damaged(series=["a" * (MAX_KEY + 1)]),
        damaged(series=["a"] * 1_000_000, kinds="1" * 1_000_000),
        damaged(timestamps=list(range(START, START + 3_600)), series=["a"] * 50_000, kinds="0" * 50_000),
        damaged(target="x" * 1_000),
        damaged(series=[1]),
        of_scrapes({"a": 1}).encode()[:-3],
        of_scrapes({"a": 1}).encode() + b"x" * 10,
        b"RHM1" + struct.pack("<I", 100) + zstd.compress(bytes(200 << 20))[:100],
    ],
)
def test_damaged_blocks_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        read_block(data)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_other_bytes_are_refused_or_read(noise: bytes, position: int) -> None:
    block = of_scrapes({"a": 1, "b": 2}, {"a": 2}).encode()
    with suppress(CorruptBlock):
        read_block(block[:position] + noise + block[position + len(noise) :])
