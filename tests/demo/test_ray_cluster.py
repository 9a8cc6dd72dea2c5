"""How the demo finds and ends the processes of its own Ray cluster; without a Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.demo.ray_cluster import RayCluster, plain_environment
from tests.support.waiting import until

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster()
    try:
        yield cluster
    finally:
        cluster.remove()


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SLEEP, *arguments], env={**os.environ, **environment})


def test_processes_are_found_by_their_environment_or_command_line(cluster: RayCluster) -> None:
    marked = start("marked", RAY_HISTORY_DEMO=str(cluster.root))
    named = start(f"--temp-dir={cluster.root}/session_1")
    other = start(RAY_HISTORY_DEMO=f"{cluster.root}-other")
    collector = start("ray-history", "collect", f"--ray-tmp-root={cluster.root}/")
    try:
        until(lambda: set(cluster.pids()) == {marked.pid, named.pid})
        assert cluster.pids("marked") == [marked.pid]
        cluster.kill()
        assert (marked.wait(60), named.wait(60)) == (-signal.SIGKILL, -signal.SIGKILL)
        assert (other.poll(), collector.poll()) == (None, None)
        assert cluster.pids() == []
    finally:
        for process in (marked, named, other, collector):
            process.kill()
            process.wait()


def test_the_variables_of_a_user_do_not_steer_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://production:10001")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    environment = plain_environment()
    assert [name for name in environment if name.startswith("RAY_")] == ["RAY_AUTH_MODE"]
    assert environment["PATH"] == os.environ["PATH"]


def test_a_cluster_with_a_token_requires_it(cluster: RayCluster) -> None:
    guarded = RayCluster("secret")
    try:
        environment = guarded.environment(8084)
        assert Path(environment["RAY_AUTH_TOKEN_PATH"]).read_text() == "secret"
        assert environment["RAY_AUTH_MODE"] == "token"
        assert cluster.environment(8084)["RAY_AUTH_MODE"] == "disabled"
    finally:
        guarded.remove()


def test_every_process_exports_its_events_to_the_collector(cluster: RayCluster) -> None:
    environment = cluster.environment(8084)
    assert environment["RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR"] == "http://127.0.0.1:8084/v1/events"
    assert environment["RAY_enable_core_worker_ray_event_to_aggregator"] == "true"


def test_its_directory_is_short_enough_for_sockets_and_removed_at_the_end() -> None:
    cluster = RayCluster()
    sockets = f"{cluster.root}/session_2026-11-15_20-00-55_739110_4194304/sockets/plasma_store"
    assert len(sockets) < 107
    cluster.remove()
    assert not Path(cluster.root).exists()
