"""Histories of real clusters, of the installed Ray and of an old one, are compared with their dashboards by route.

Each is captured by the script that measures all versions (`make matrix`), with a small workload.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.fidelity.counts import count
from bench.fidelity.report import lines
from bench.fidelity.scenarios import capture
from bench.fidelity.score import score
from tests.bench.recorded_metrics import recorded_metrics
from tests.support.fixtures import skip_or_fail
from tests.support.processes import PartUnavailable
from tests.support.ray_releases import OF_TESTS

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

SENT_SINCE = (2, 55)
WITH_SPANS = {"/api/v0/tasks", "/api/v0/tasks filtered", "/api/v0/tasks/timeline"}
"""Routes with profile spans, of which older versions send few or none."""
ADDED = {"/api/v0/logs", "/events", "/api/v0/tasks filtered"}
"""Routes in which a history has more than the dashboard shows: see docs/fidelity.md."""
OF_A_MOMENT = {"/nodes summary", "/nodes/{id}", "/logical/actors", "/logical/actors/{id}"}
"""Routes that show processes as they were polled last."""


def check(minor: str, folder: Path) -> None:
    try:
        capture(minor, "small", folder, poll_interval="2s")
    except PartUnavailable as reason:
        skip_or_fail(f"Ray {minor}", reason)
    logs = {log.name: log.read_text() for log in folder.glob("collector-*.log")}
    assert logs
    assert not {name: text for name, text in logs.items() if "unexpected error" in text}
    counts, scored = count(folder), score(folder)
    assert (counts.archived, counts.invented) == (counts.acknowledged, 0)
    # Both get SIGTERM at once: a raylet that ends after its collector may still dump its state, 30 KB.
    assert counts.stored_log_bytes > 0.9 * counts.log_bytes, counts.worst
    sends_spans = tuple(map(int, minor.split("."))) >= SENT_SINCE
    check_metrics(folder, folder.with_name("tables"))
    routes, shown = scored.by_route(), "\n".join(lines(scored))
    assert len(routes) > 25, shown
    others = ADDED | OF_A_MOMENT | (set() if sends_spans else WITH_SPANS)
    assert min(ratio for name, ratio in routes.items() if name not in others) >= 0.98, shown
    assert scored.mean_of_routes >= (0.97 if sends_spans else 0.9), shown


def check_metrics(folder: Path, tables: Path) -> None:
    tables.mkdir()
    found, nodes = recorded_metrics(folder, tables), json.loads((folder / "capture.json").read_text())["nodes"]
    assert found.problems == []
    assert found.agents == set(nodes.values())
    assert "agent" in found.endpoints, (
        "the ports of the others are fixed: another cluster of this machine may have them"
    )
    assert {"default", "data", "serve", "serve_deployment"} <= found.dashboards
    assert {
        "up",
        "ray_node_mem_used",
        "ray_node_cpu_utilization",
        "ray_tasks",
        "ray_object_store_memory",
    } <= found.names
    assert len(found.answered) >= 30, found.empty


def test_the_installed_ray(real_ray: str, tmp_path: Path) -> None:
    check(".".join(real_ray.split(".")[:2]), tmp_path / "capture")


@pytest.mark.parametrize("minor", OF_TESTS)
def test_an_old_ray(minor: str, tmp_path: Path) -> None:
    check(minor, tmp_path / "capture")
