"""The variables with which Ray exports its events: complete, and the same wherever they are written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ray_history.history.events import TASK_EVENTS
from ray_history.ray_variables import (
    EVENT_TYPES,
    EXPOSABLE_EVENT_TYPES,
    REPORT_INTERVALS,
    export_variables,
    recording_variables,
)

ROOT = Path(__file__).parents[1]
WRITTEN = ",".join(EVENT_TYPES)

SINCE = {
    "2.49": {"TASK_DEFINITION_EVENT", "TASK_EXECUTION_EVENT", "ACTOR_TASK_DEFINITION_EVENT", "TASK_PROFILE_EVENT"},
    "2.52": {
        "TASK_LIFECYCLE_EVENT",
        *(f"{name}_{part}_EVENT" for name in ("DRIVER_JOB", "NODE", "ACTOR") for part in ("DEFINITION", "LIFECYCLE")),
    },
    "2.55": {
        "PLATFORM_EVENT",
        *(
            f"{name}_{part}_EVENT"
            for name in ("PLACEMENT_GROUP", "SUBMISSION_JOB")
            for part in ("DEFINITION", "LIFECYCLE")
        ),
    },
    "2.60": {"WORKER_DEFINITION_EVENT", "WORKER_LIFECYCLE_EVENT"},
}
"""The types that each version added to its protocol (`events_base_event.proto`)."""


def test_the_types_of_all_versions_are_listed() -> None:
    known = {name for names in SINCE.values() for name in names}
    # Ray 2.49 has this one in its default list, but not in its protocol.
    assert set(EVENT_TYPES) == known | {"ACTOR_TASK_EXECUTION_EVENT"}
    assert len(EVENT_TYPES) == len(set(EVENT_TYPES))
    assert set(TASK_EVENTS) <= set(EVENT_TYPES)


def test_the_types_of_the_installed_ray_are_listed() -> None:
    protocol = pytest.importorskip("ray.core.generated.events_base_event_pb2")
    assert set(protocol.RayEvent.EventType.keys()) - {"EVENT_TYPE_UNSPECIFIED"} <= set(EVENT_TYPES)


def written_values() -> list[tuple[str, str]]:
    """The value in each file that sets the variable: in a shell, in YAML, or in a table of a test."""
    listed = subprocess.run(["git", "ls-files", "docs", "deploy", "tests/inject/golden"], cwd=ROOT, capture_output=True)
    found = []
    for name in listed.stdout.decode().split():
        path = ROOT / name
        if path.suffix in {".md", ".yaml", ".txt", ".tpl"}:
            text = path.read_text().replace("\\\n", "")
            pattern = rf"{EXPOSABLE_EVENT_TYPES}(?:=|[\"\s]+value:\s*)\"?([A-Z_,]*)"
            found += [(name, value) for value in re.findall(pattern, text)]
    return found


def test_every_place_that_sets_the_variable_names_all_types() -> None:
    values = written_values()
    assert [name for name, value in values if value != WRITTEN] == []
    names = {name for name, _ in values}
    assert {"docs/quickstart.md", "docs/collector.md", "deploy/manifests/samples/raycluster-operator.yaml"} <= names


def test_every_place_that_sets_the_types_sets_the_report_intervals() -> None:
    for name in sorted({name for name, _ in written_values()}):
        text = (ROOT / name).read_text()
        for variable, value in REPORT_INTERVALS.items():
            set_here = re.findall(rf"{variable}(?:=|[\"\s]+value:\s*)\"?(\d+)", text)
            assert set_here == [value] * len(re.findall(rf"{EXPOSABLE_EVENT_TYPES}(?:=|\"?\s+value:)", text)), name


def test_only_what_export_needs_is_called_needed() -> None:
    assert set(export_variables(1)).isdisjoint(REPORT_INTERVALS)
    assert recording_variables(1) == export_variables(1) | REPORT_INTERVALS


def test_the_collectors_port_is_in_the_address() -> None:
    assert "http://127.0.0.1:9/v1/events" in export_variables(9).values()
