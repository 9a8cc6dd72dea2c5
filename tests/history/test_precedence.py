"""Each column from the first source that has it, whichever sources a session has, in any order.

The sources of one captured session are taken apart. Whatever is left of them, the tables must not contradict what its
live dashboard showed, must not depend on the order of what was stored, and must lose nothing when a source is added.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_history.archive.layout import endpoint_name
from ray_history.collector.polling.endpoints import UNFINISHED_TASKS
from ray_history.index.documents import process_of
from ray_history.index.log_nodes import node_in
from tests.history.rebuilt import Event, Rebuilt, Row, b64, document, rebuild
from tests.support.captured import captured

pytestmark = pytest.mark.xdist_group("captured sources")  # whole and single sources are built once

TRUTH = {
    "tasks": ("v0_tasks_exclude_driver_false", ("task_id", "attempt_number")),
    "actors": ("v0_actors", ("actor_id",)),
    "nodes": ("v0_nodes", ("node_id",)),
    "workers": ("v0_workers_all", ("worker_id",)),
    "placement_groups": ("v0_placement_groups", ("placement_group_id",)),
}
JOBS = ("04000000", "08000000", "0b000000")
"""Jobs whose tasks take part: with failures and restarts, with Train, and with tasks that never ended."""

EVENTS = {
    "events of tasks": "TASK_ ACTOR_TASK_",
    "events of actors": "ACTOR_DEFINITION ACTOR_LIFECYCLE",
    "events of nodes": "NODE_",
    "events of workers": "WORKER_",
    "events of jobs": "DRIVER_JOB_",
}
POLLED = {
    "polled tasks": UNFINISHED_TASKS.url,
    "polled actors": "/api/v0/actors?detail=1&limit=10000",
    "page of actors": "/logical/actors",
    "polled nodes": "/api/v0/nodes?detail=1&limit=10000",
    "pages of nodes": "/nodes",
    "polled workers": "/api/v0/workers?detail=1&limit=10000",
    "polled jobs": "/api/jobs/",
    "polled placement groups": "/api/v0/placement_groups?detail=1&limit=10000",
}
LOGS = "log files"
SOURCES = (*EVENTS, *POLLED, LOGS)

Keyed = dict[tuple[Any, ...], Row]
Build = Callable[..., dict[str, Keyed]]


@cache
def events() -> Mapping[str, list[bytes]]:
    """By source."""
    found = defaultdict(list)
    jobs = [b64(job) for job in JOBS]
    for line in (line for lines in captured().events.values() for line in lines):
        event = json.loads(line)
        kind = event["eventType"]
        payload = next((value for value in event.values() if isinstance(value, dict)), {})
        (source,) = (name for name, starts in EVENTS.items() if kind.startswith(tuple(starts.split())))
        if source != "events of tasks" or payload["jobId"] in jobs:
            found[source].append(line)
    return found


@cache
def documents() -> Mapping[str, list[Event]]:
    """By source, as the collector stores them and the indexer reads them."""
    answers = captured().truth
    unfinished = [row for row in listing("tasks").values() if row["state"] not in ("FINISHED", "FAILED")]
    listings = {
        "polled tasks": unfinished,
        "polled actors": list(listing("actors").values()),
        "polled nodes": list(listing("nodes").values()),
        "polled workers": list(listing("workers").values()),
        "polled placement groups": list(listing("placement_groups").values()),
    }
    found: dict[str, list[Event]] = {
        source: [document("endpoint", endpoint_name(POLLED[source]), {"data": {"result": {"result": rows}}})]
        for source, rows in listings.items()
    }
    found["page of actors"] = [document("endpoint", "restful__logical__actors", answers["logical_actors"])]
    found["polled jobs"] = [document("endpoint", "restful__api__jobs__", answers["jobs"])]
    found["pages of nodes"] = [
        document("endpoint", name, json.loads(body))
        for name, body in captured().polled.items()
        if name.startswith("restful__nodes")
    ]
    nodes = {node for node, _ in captured().logs}
    found[LOGS] = [document("node", node, {}, node) for node in nodes] + [
        document("worker_log", name, process, node)
        for node, name in captured().logs
        if (process := process_of(name)) is not None
    ]
    found[LOGS] += [document("log_node", "raylet.out", node_of_log(node), node) for node in nodes]
    return found


def node_of_log(node: str) -> dict[str, Any]:
    """What the first lines of a node's `raylet.out` say."""
    said = node_in(captured().logs[node, "raylet.out"], node)
    assert said is not None
    return said


@cache
def listing(table: str) -> Keyed:
    """What the live dashboard showed last."""
    name, keys = TRUTH[table]
    rows = captured().truth[name]["data"]["result"]["result"]
    return {tuple(row[key] for key in keys): row for row in rows if table != "tasks" or row["job_id"] in JOBS}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The tables made from some sources; with a seed, from their parts in another order, some of them twice."""
    place = tmp_path_factory.mktemp("sources")

    @cache
    def build(sources: frozenset[str], seed: int | None = None) -> dict[str, Keyed]:
        lines = [line for source in SOURCES if source in sources for line in events().get(source, [])]
        parts = [part for source in SOURCES if source in sources for part in documents().get(source, [])]
        cuts: list[int] = []
        if seed is not None:
            order = random.Random(seed)
            lines += order.sample(lines, len(lines) // 10)
            parts += order.sample(parts, len(parts) // 2)
            order.shuffle(lines)
            order.shuffle(parts)
            cuts = [order.randrange(len(lines) + 1)]
        with tempfile.TemporaryDirectory(dir=place) as folder:
            tables = rebuild(Path(folder), lines, parts, cuts=cuts)
            try:
                return {table: keyed(tables, table) for table in TRUTH}
            finally:
                tables.tables.close()

    return build


def keyed(tables: Rebuilt, table: str) -> Keyed:
    rows = tables.rows(table)
    found = {tuple(row[key] for key in TRUTH[table][1]): row for row in rows}
    assert len(found) == len(rows)
    return found


# What counts as unknown, and what may be less than the truth ---------------------------------------------------------

UNKNOWN = (None, "", 0, "0", 0.0, {}, [], {"options": []}, {"serialized_runtime_env": ""})
DEFAULTS = {
    ("nodes", "is_head_node"): (False,),
}
"""Where Ray has no word for unknown."""

EARLIER = {
    "tasks": "state events end_time_ms start_time_ms creation_time_ms profiling_data error_type error_message "
    "required_resources runtime_env_info",
    "actors": "state num_restarts death_cause required_resources",
    "nodes": "resources_total labels",
    "workers": "is_alive worker_type exit_type exit_detail end_time_ms",
    "placement_groups": "state name bundles stats",
}
"""Columns that change, or that a page shows less exactly: without some source, they may have another value."""

PROCESS_OF_AN_ENDED_DRIVER = ("workers", ("0a000000" + "f" * 48,), "pid")
"""The live dashboard showed 0; other sources know it."""


def is_unknown(table: str, column: str, value: Any) -> bool:
    default = DEFAULTS.get((table, column), ())
    return value in default if isinstance(value, bool) else value in (*UNKNOWN, *default)


def contradictions(tables: Mapping[str, Keyed]) -> list[tuple[str, Any, str, Any, Any]]:
    """Rows that the live dashboard did not have, and values that differ from its values."""
    found: list[tuple[str, Any, str, Any, Any]] = []
    for table, rows in tables.items():
        live = listing(table)
        for key, row in rows.items():
            if key not in live:
                found.append((table, key, "no such row", None, None))
                continue
            found += [
                (table, key, column, value, live[key][column])
                for column, value in row.items()
                if value != live[key].get(column)
                and not is_unknown(table, column, value)
                and column not in EARLIER[table].split()
                and (table, key, column) != PROCESS_OF_AN_ENDED_DRIVER
            ]
    return found


def losses(fewer: Mapping[str, Keyed], more: Mapping[str, Keyed]) -> list[tuple[str, Any, str]]:
    """Rows and values that are known from fewer sources, but not from more."""
    found: list[tuple[str, Any, str]] = []
    for table, rows in fewer.items():
        for key, row in rows.items():
            if key not in more[table]:
                found.append((table, key, "row"))
                continue
            found += [
                (table, key, column)
                for column, value in row.items()
                if not is_unknown(table, column, value)
                and is_unknown(table, column, more[table][key][column])
                and (table, key, column) != PROCESS_OF_AN_ENDED_DRIVER
            ]
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_alone_contradicts_nothing(built: Build, source: str) -> None:
    alone = built(frozenset({source}))
    assert contradictions(alone) == []
    assert losses(alone, built(frozenset(SOURCES))) == []


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sources=st.frozensets(st.sampled_from(SOURCES), min_size=1), added=st.sampled_from(SOURCES), seed=st.integers(0, 99)
)
def test_any_sources_in_any_order_contradict_and_lose_nothing(
    built: Build, sources: frozenset[str], added: str, seed: int
) -> None:
    fewer, more = built(sources), built(sources | {added})
    assert contradictions(more) == []
    assert losses(fewer, more) == []
    assert built(sources | {added}, seed) == more


def test_all_sources_together_are_the_live_dashboard(built: Build) -> None:
    everything = built(frozenset(SOURCES))
    assert contradictions(everything) == []
    assert {table: rows.keys() for table, rows in everything.items()} == {
        table: listing(table).keys() for table in TRUTH
    }
