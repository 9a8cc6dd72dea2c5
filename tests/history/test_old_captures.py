"""Sessions of old Rays: tasks and actors are what their live dashboards showed, though their events say less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.build.runs import Counts
from ray_history.history.read.tables import Tables
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from tests.history.living import Rows, keyed
from tests.history.rebuilt import Rebuilt
from tests.support.captured import captured, write_archive

OLD = ["2.49", "2.52", "2.55"]
FROM_LOGS = {"task_log_info"}
"""Filled from the logs of workers when it is requested; see tests/server/logs/test_task_output.py."""
JOB_END = {"events", "end_time_ms"}
"""Events have the microseconds of a job's end, which live Ray truncates. Without any, the polled end of the submission
counts, which is some moments later."""
AGAIN = {"events", "start_time_ms"}
"""The constructor of an actor that restarted: live Ray up to 2.52 shows the last start beside the first end."""


@pytest.fixture(scope="module", params=OLD)
def version(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture(scope="module", params=[Generation.A, Generation.C], ids=lambda generation: generation.name)
def session(
    request: pytest.FixtureRequest, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rebuilt]:
    place: Path = tmp_path_factory.mktemp("old")
    store = open_store(DirectorySettings(place / "bucket"))
    write_archive(store, request.param, Cluster("default", "old"), version=version)
    (listed,) = read_catalog(store).sessions
    with Indexer(store, Cache(place / "cache", 1 << 30)).open(listed) as opened:
        assert opened.manifest.problems == []
        assert sum(opened.manifest.events.values()) == captured(version).event_count
        tables = Tables(opened.directory)
        yield Rebuilt(opened.directory, msgspec.structs.asdict(opened.manifest.facts), Counts(), tables)
        tables.close()


def live(version: str, table: str) -> Rows:
    return keyed(table, captured(version).truth[table]["data"]["result"]["result"])


def excused(row: dict[str, object]) -> set[str]:
    fields = FROM_LOGS
    if str(row.get("error_message")).startswith("Job finishes"):
        fields |= JOB_END
    starts = {step["state"]: step["created_ms"] for step in json.loads(json.dumps(row.get("events", [])))}
    if row.get("type") == "ACTOR_CREATION_TASK" and starts.get("RUNNING", 0) > starts.get("FINISHED", 1 << 63):
        fields |= AGAIN
    return fields


@pytest.mark.parametrize("table", ["tasks", "actors"])
def test_every_row_is_the_live_one_field_by_field(session: Rebuilt, version: str, table: str) -> None:
    shown = keyed(table, session.rows(table))
    expected = live(version, table)
    assert shown.keys() == expected.keys()
    for key, row in expected.items():
        differing = {name for name in row if shown[key].get(name, "not there") != row[name]}
        assert differing <= excused(row), (key, {name: (row[name], shown[key][name]) for name in differing})


def test_tasks_have_the_runtime_environment_of_their_definition(session: Rebuilt) -> None:
    told = {row["name"]: row["runtime_env_info"]["serialized_runtime_env"] for row in session.rows("tasks")}
    assert json.loads(told["color"])["env_vars"] == {"COLOR": "blue", "W": "x"}


def test_actors_call_their_tasks_by_their_own_names(session: Rebuilt) -> None:
    names = {row["name"] for row in session.rows("tasks") if row["func_or_class_name"] == "Acc.add"}
    assert names == {"Acc(t=0).add", "Acc(t=5).add", "a call of its own"}
