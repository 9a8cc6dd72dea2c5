"""`openapi.json` is true: answers to requests generated from it have the described shapes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.registry import TABLES
from ray_history.server.api.openapi import document
from ray_history.server.routes import ROUTES
from tests.metrics import generated
from tests.server.metrics.recorded_sessions import write_dashboards, write_metrics
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

S = f"/s/default/demo/{captured().session}"
HEAD = max(captured().events, key=lambda node: len(captured().events[node]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("openapi")
    store = open_store(DirectorySettings(folder / "archive"))
    owner = Cluster("default", "demo")
    write_archive(store, Generation.C, owner)
    write_metrics(store, generated.cluster(["up", "sum(ray_tasks) by (State)"], scrapes=10), owner, captured().session)
    write_dashboards(store, "2.60", owner, captured().session)
    for file in (folder / "archive").rglob("*"):
        os.utime(file, (1e9, 1e9))  # long ago: nothing is followed
    with served(store, folder / "cache") as running:
        running.get(f"{S}/api/v0/nodes")
        yield running


def existing_values(server: Served) -> dict[str, list[str]]:
    """Values that exist in this session, by parameter."""
    tasks = server.get(f"{S}/api/v0/tasks?limit=10000&detail=1").rows
    logged = [row["task_id"] for row in tasks if row["task_log_info"]]
    return {
        "node_id": list(captured().events),
        "node_ip": [row["node_ip"] for row in server.get(f"{S}/api/v0/nodes").rows],
        "actor_id": [row["actor_id"] for row in server.get(f"{S}/api/v0/actors").rows][:5],
        "task_id": logged[:5],
        "job_id": sorted({row["job_id"] for row in tasks})[:5],
        "job_or_submission_id": ["fx-core", "fx-env", "04000000"],
        "submission_id": ["fx-core", "fx-env"],
        "filename": ["raylet.out", "gcs_server.out"],
        "name": ["raylet.out", "events", ""],
        "sort": ["state", "job_id", "node_id"],
        "query": ["up", "sum(rate(ray_tasks[5m])) by (State)", "vector(1)", "(("],
        "match[]": ["up", "{job='ray'}", "sum(up)"],
        "label": ["__name__", "instance"],
        "uid": ["rayDefaultDashboard", "rayDataDashboard"],
        "panel": ["24", "41", "4", "14"],
        "panelId": ["24", "41"],
        "variable": ["Instance", "RayNodeType", "DatasetID"],
        "from": ["now-5m", "1790000000000"],
        "to": ["now", "1790000060000"],
    }


def test_every_path_is_described_with_its_parameters_and_answers() -> None:
    described = document(ROUTES, "/")
    paths = described["paths"]
    assert {route.path.replace(":path}", "}") for route in ROUTES} < paths.keys()
    assert {"/_status", "/_session", "/api/authentication_mode"} < paths.keys()
    for path, methods in paths.items():
        assert re.search(r"\w \w", methods["get"]["summary"]), path
    for path in ("/api/v0/logs", "/api/v0/logs/{media_type}", "/api/v0/tasks/summarize"):
        assert "timeout" in {each["name"] for each in paths[path]["get"]["parameters"]}
    for table in TABLES.values():
        row = described["components"]["schemas"][f"row_of_{table.name}"]
        assert list(row["properties"]) == [column.name for column in table.columns]
        assert row["required"] == [column.name for column in table.columns if not column.detail]


def test_every_answer_has_the_described_shape(server: Served, tmp_path: Path) -> None:
    """Half of the requests use values that exist. Packages are left out: they are refused with a server error."""
    words = [
        f'[dictionaries."{name}"]\nvalues = {json.dumps(values)}\n' for name, values in existing_values(server).items()
    ]
    bound = [f'"{name}" = {{ dictionary = "{name}", probability = 0.5 }}\n' for name in existing_values(server)]
    (tmp_path / "schemathesis.toml").write_text("".join(words) + "[parameters]\n" + "".join(bound))
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    done = subprocess.run(
        [
            *(str(Path(sysconfig.get_path("scripts")) / "schemathesis"), "run", f"{server.url}{S}/openapi.json"),
            *("--checks", checks, "--phases", "fuzzing", "--max-examples", "12", "--seed", "1"),
            *("--exclude-path-regex", "packages", "--workers", "2"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
