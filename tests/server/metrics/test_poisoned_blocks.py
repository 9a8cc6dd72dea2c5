"""Blocks that are not what they should be cost themselves only: the others are shown, and the problems are named."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.layout import MetricBlockKey
from ray_history.metrics.block import MAX_KEY, MAX_SERIES, OpenBlock
from ray_history.zstandard import zstd
from tests.metrics.generated import INTERVAL, START, cluster
from tests.server.metrics.recorded_sessions import OWNER, PATH, write_recorded
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, end_long_ago
from tests.support.prometheus import ask

SCRAPES = 40
TARGET = "10.0.66.0:8080"


def block(values: bytes = struct.pack("<2d", 1, 2), **changes: Any) -> bytes:
    """A block of one varying series, or another one."""
    head = {"target": TARGET, "timestamps": [START, START + INTERVAL], "series": ["poison"], "kinds": "1"} | changes
    head["target"] = f"10.0.66.{zlib.crc32(values) % 200}:{len(values) % 60_000 + 1}"  # each has its own
    packed = zstd.compress(msgspec.json.encode(head))
    return b"RHM1" + struct.pack("<I", len(packed)) + packed + zstd.compress(values)


def wide() -> bytes:
    """A block whose labels are as long as they may be."""
    open_block = OpenBlock(TARGET)
    open_block.add(START, [f'poison{{number="{number}",long="{"x" * (MAX_KEY - 100)}"}} 1' for number in range(500)])
    return open_block.encode()


TIMES = {"in-2099": 4_100_000_000_000, "in-2001": 1_000_000_000_000}
REFUSED = {
    "empty": b"",
    "text": b"<html>not here</html>",
    "torn": block()[:-5],
    "too-few-values": block(bytes(8)),
    "too-many-values": block(bytes(8 * 1000)),
    "bomb-of-values": block(bytes(300 << 20)),
    "bomb-of-a-head": b"RHM1" + struct.pack("<I", 13_000) + zstd.compress(bytes(400 << 20))[:13_000],
    "million-series": block(bytes(8_000_000), series=["poison"] * 1_000_000, kinds="0" * 1_000_000),
    "long-series": block(series=["poison" * MAX_KEY]),
    "many-cells": block(
        b"", timestamps=list(range(START, START + 3_000)), series=["a"] * MAX_SERIES, kinds="0" * MAX_SERIES
    ),
    "times-backwards": block(timestamps=[START + 1, START]),
    "time-in-1970": block(timestamps=[1, 2]),
    "time-beyond-all": block(timestamps=[START, 10**18]),
    "of-another-time": block(timestamps=[START + 5, START + 6]),
    "of-many-years": block(timestamps=[START, START + 10**10]),
}
ODD = {
    "nan": block(struct.pack("<2d", math.nan, -math.inf)),
    "no-series": block(series=["", "{", 'a{b="', "\x00", "a b c", 'poison{"x"}'], kinds="000000", values=bytes(48)),
    "long-labels": wide(),
    **{name: block(timestamps=[time, time + INTERVAL]) for name, time in TIMES.items()},
    "many-values": block(bytes(8 * 4_000_000), timestamps=list(range(START, START + 2_000)),
                         series=[f"poison_{number}" for number in range(2_000)], kinds="1" * 2_000),
}  # fmt: skip
QUERIES = ("ray_node_mem_used", "sum(rate(ray_node_network_sent[1m]))", "count by (instance) (up)")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """A server of a healthy session, and one of the same with poisoned blocks."""
    invented = cluster(["ray_node_mem_used", "ray_node_network_sent"], scrapes=SCRAPES)
    healthy, poisoned = (tmp_path_factory.mktemp(name) for name in ("healthy", "poisoned"))
    first, second = write_recorded(healthy, invented), write_recorded(poisoned, invented)
    for name, body in (REFUSED | ODD).items():
        key = MetricBlockKey(f"node-{name}", "agent", TIMES.get(name, START))
        second.put(layout.metric_block_key("", OWNER, SESSION, key), body)
    for name in ("not-a-block", "agent/1.rhm", "a/b/c/d/0000000000001.rhm"):
        second.put(f"{layout.metrics_prefix('', OWNER, SESSION)}/{name}", b"x")
    end_long_ago(poisoned)
    with served(first, healthy / "cache") as one, served(second, poisoned / "cache") as other:
        yield one, other


@pytest.fixture
def both(servers: tuple[Served, Served]) -> Callable[..., list[Any]]:
    def answers(path: str, **parameters: Any) -> list[Any]:
        return [ask(f"{server.url}{PATH}/prometheus/api/v1/{path}", **parameters) for server in servers]

    return answers


@pytest.mark.parametrize("query", QUERIES)
def test_healthy_series_are_what_they_were(both: Callable[..., list[Any]], query: str) -> None:
    of_others = f'{query} unless on (instance) up{{instance=~"10.0.66.*"}}' if "instance" in query else query
    parameters = {"query": of_others, "start": START / 1000, "end": START / 1000 + SCRAPES * 15, "step": 15}
    (status, healthy), (_, poisoned) = both("query_range", **parameters)
    assert status == 200
    assert healthy["data"]["result"]
    assert poisoned == healthy


def test_now_is_the_last_scrape_that_can_be_right(both: Callable[..., list[Any]]) -> None:
    (_, healthy), (_, poisoned) = both("query", query="sum(ray_node_mem_used)")
    assert healthy["data"]["result"]
    assert poisoned == healthy


def test_values_that_are_no_numbers_are_answered(servers: tuple[Served, Served]) -> None:
    _, server = servers
    url = f"{server.url}{PATH}/prometheus/api/v1/query_range"
    status, answer = ask(url, query="poison", start=START / 1000, end=START / 1000 + 15, step=15)
    assert status == 200
    values = [[value for _, value in series["values"]] for series in answer["data"]["result"]]
    assert ["NaN", "-Inf"] in values


def test_each_problem_is_named(servers: tuple[Served, Served]) -> None:
    _, server = servers
    found = server.get(f"{PATH}/_completeness").json
    problems = "\n".join(found["problems"])
    assert [name for name in REFUSED if f"/node-{name}/" not in problems] == []
    assert "problems while reading" in " ".join(found["completeness"]["reasons"])
