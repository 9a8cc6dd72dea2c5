"""Ray's own tools talk to a dead cluster as to a living one."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import DirectorySettings
from ray_history.archive.stores import open_store
from ray_history.server.app import Choices
from tests.captured import captured, write_archive
from tests.parts.ray_cluster import RayCluster, plain_environment, ray_binary
from tests.server.serving import Served, served

pytestmark = pytest.mark.xdist_group("ray")

SESSION = captured().session


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, folder / "cache", Choices(redact=False)) as running:
        yield running


@pytest.fixture(scope="module")
def address(server: Served) -> str:
    return f"{server.url}/s/default/demo/{SESSION}"


def ray(*arguments: str) -> str:
    done = subprocess.run(
        [ray_binary(), *arguments], env=plain_environment(), capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def listed(address: str, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(ray("list", *arguments, "--address", address, "--format", "json"))
    return rows


def test_ray_list_shows_every_kind_of_thing(address: str) -> None:
    tasks = listed(address, "tasks", "--detail", "--limit", "10000")
    assert len(tasks) == 349
    failed = listed(address, "tasks", "--filter", "state=FAILED", "--limit", "10000")
    assert {row["state"] for row in failed} == {"FAILED"}
    for kind, number in {"actors": 36, "nodes": 2, "jobs": 7, "placement-groups": 5, "runtime-envs": 2}.items():
        assert len(listed(address, kind)) == number, kind


def test_ray_get_and_ray_summary(address: str) -> None:
    (actor, *_) = listed(address, "actors", "--filter", "name=counter")
    assert "Counter" in ray("get", "actors", actor["actor_id"], "--address", address)
    assert "ok" in ray("summary", "tasks", "--address", address)
    assert "Counter" in ray("summary", "actors", "--address", address)


def test_ray_job_knows_the_jobs(address: str) -> None:
    assert "fx-core" in ray("job", "list", "--address", address)
    assert "SUCCEEDED" in ray("job", "status", "fx-core", "--address", address).upper()
    driver = captured().logs[next(place for place in captured().logs if place[1] == "job-driver-fx-env.log")].decode()
    assert driver.strip().splitlines()[-1] in ray("job", "logs", "fx-env", "--address", address)
    assert driver.strip().splitlines()[-1] in ray("job", "logs", "fx-env", "--follow", "--address", address)


def test_rays_python_clients(address: str) -> None:
    script = f"""
import json, sys
from ray.util.state import StateApiClient, list_tasks, get_task, summarize_tasks, list_logs, get_log
from ray.job_submission import JobSubmissionClient
address = {address!r}
tasks = list_tasks(address=address, detail=True, limit=10000)
one = get_task(tasks[0].task_id, address=address)
jobs = JobSubmissionClient(address).list_jobs()
print(json.dumps([len(tasks), (one[0] if isinstance(one, list) else one).task_id == tasks[0].task_id,
    summarize_tasks(address=address)["cluster"]["total_actor_tasks"], sorted(j.submission_id for j in jobs)]))
"""
    done = subprocess.run(
        [str(Path(ray_binary()).with_name("python")), "-c", script],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number, same, actor_tasks, jobs = json.loads(done.stdout.strip().splitlines()[-1])
    assert (number, same, actor_tasks) == (349, True, 233)
    assert jobs == ["fx-core", "fx-data", "fx-env", "fx-fail", "fx-long", "fx-serve", "fx-train"]


def browsed(cluster: RayCluster, path: str) -> tuple[int, bytes]:
    """What a browser gets of the cluster's dashboard."""
    headers = {"Accept": "application/json, */*", "Accept-Encoding": "gzip, deflate, br, zstd", "User-Agent": "Mozilla"}
    connection = http.client.HTTPConnection("127.0.0.1", cluster.dashboard_port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def without_zstd(folder: Path) -> str:
    """Where Python must look first so that aiohttp cannot read zstd, as in a plain installation of Ray."""
    (folder / "backports").mkdir()
    (folder / "backports" / "__init__.py").touch()
    return str(folder)


def test_a_local_ray_shows_the_dead_cluster_through_its_proxy(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", without_zstd(tmp_path))
    cluster = RayCluster()
    try:
        cluster.start_head(1, flags=(f"--proxy-server-url={address}",))
        jobs = {job["submission_id"] for job in cluster.get("/api/jobs/")}
        assert "fx-core" in jobs
        assert cluster.get("/api/v0/tasks?limit=1")["data"]["result"]["total"] == 349
        _, tasks = browsed(cluster, "/api/v0/tasks?limit=1000&detail=1")
        assert len(json.loads(tasks)["data"]["result"]["result"]) == 349
        _, page = browsed(cluster, "/")
        for file in re.findall(rb'(?:src|href)="([^"]+[.](?:js|css))"', page):
            assert browsed(cluster, "/" + file.decode().removeprefix("./").removeprefix("/"))[0] == 200, file
        head = max(captured().events, key=lambda name: len(captured().events[name]))
        assert browsed(cluster, "/logs/gcs_server.out") == (200, captured().logs[head, "gcs_server.out"])
        for path in ("/api/jobs/nope", "/api/v0/logs?node_id=zzz", "/logs/nope", "/test/dump"):
            status, told = browsed(cluster, path)
            assert (status, json.loads(told)["result"]) == (410, False), path
        nodes = {node["raylet"]["nodeId"] for node in cluster.get("/nodes?view=summary")["data"]["summary"]}
        assert nodes == set(captured().events)
        # `ray logs` takes no web address, only that of a cluster: this is its way to a dead one.
        place = ("--node-id", head, "--address", cluster.address)
        assert "gcs_server.out" in ray("logs", "cluster", *place)
        told = ray("logs", "cluster", "gcs_server.out", "--tail", "3", *place)
        assert told.strip().splitlines()[-1] in captured().logs[head, "gcs_server.out"].decode()
    finally:
        cluster.kill()
        cluster.remove()
