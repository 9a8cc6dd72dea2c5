"""Ray's own tools work with an ended session as with a live cluster."""

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
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive
from tests.support.ray_cluster import RayCluster, plain_environment, ray_binary
from tests.support.ray_versions import needs_ray

pytestmark = pytest.mark.xdist_group("ray")

SESSION = captured().session
HEAD = max(captured().events, key=lambda node: len(captured().events[node]))


@pytest.fixture(scope="module")
def server(real_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, folder / "cache") as running:  # values are redacted, as by default
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


SEVERAL = """
import json, sys
from click.testing import CliRunner
from ray.scripts.scripts import cli
answers = [CliRunner().invoke(cli, line) for line in json.load(sys.stdin)]
print(json.dumps([[answer.exit_code, answer.stdout, answer.stderr] for answer in answers]))
"""
"""Runs many commands of Ray's command line in one process, because starting it takes longer than all of them."""


def python(script: str, given: str = "") -> Any:
    """Run a script with the Python of the Ray installation, and return its last line."""
    done = subprocess.run(
        [str(Path(ray_binary()).with_name("python")), "-c", script],
        input=given,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def several(address: str, *commands: str) -> list[str]:
    """The output of each `ray` command."""
    lines = [[*command.split(), "--address", address] for command in commands]
    answers = python(SEVERAL, json.dumps(lines))
    for command, (code, _, problem) in zip(commands, answers, strict=True):
        assert code == 0, (command, problem)
    return [said for _, said, _ in answers]


def test_ray_list_of_every_resource(address: str) -> None:
    tasks = json.loads(ray("list", "tasks", "--detail", "--limit", "10000", "--format", "json", "--address", address))
    assert len(tasks) == 349
    numbers = {"actors": 36, "nodes": 2, "jobs": 7, "placement-groups": 5, "runtime-envs": 2}
    numbers |= {"workers": 74, "cluster-events": 24}
    kinds = [f"list {kind} --limit 1000 --format json" for kind in numbers]
    failed, *others = several(address, "list tasks --filter state=FAILED --format json", *kinds)
    assert {row["state"] for row in json.loads(failed)} == {"FAILED"}
    assert {kind: len(json.loads(rows)) for kind, rows in zip(numbers, others, strict=True)} == numbers


def test_ray_get_and_ray_summary(server: Served, address: str) -> None:
    kinds = {"tasks": "task_id", "nodes": "node_id", "workers": "worker_id", "placement_groups": "placement_group_id"}
    known = {kind: server.get(f"/s/default/demo/{SESSION}/api/v0/{kind}").rows[0][key] for kind, key in kinds.items()}
    (counter,) = server.get(
        f"/s/default/demo/{SESSION}/api/v0/actors?filter_keys=name&filter_predicates=%3D&filter_values=counter"
    ).rows
    commands = [f"get {kind.replace('_', '-')} {key}" for kind, key in known.items()]
    actor, tasks, actors, *others = several(
        address, f"get actors {counter['actor_id']}", "summary tasks", "summary actors", *commands
    )
    assert "Counter" in actor
    assert "ok" in tasks
    assert "Counter" in actors
    for (kind, key), said in zip(known.items(), others, strict=True):
        assert f"{kinds[kind]}: {key}" in said


def test_ray_job(address: str) -> None:
    jobs, status = several(address, "job list", "job status fx-core")
    assert "fx-core" in jobs
    assert "SUCCEEDED" in status.upper()
    for command in ("job logs fx-env", "job logs fx-env --follow"):
        assert driver_log().splitlines()[-1] in ray(*command.split(), "--address", address)


def driver_log() -> str:
    """The output of a job's driver."""
    (found,) = (body for (_, name), body in captured().logs.items() if name == "job-driver-fx-env.log")
    return found.decode().strip()


def test_rays_python_clients(address: str) -> None:
    told = python(f"""
import json
from ray.util.state import api, get_task, list_tasks, summarize_tasks
from ray.util.state.common import ListApiOptions, StateResource
address = {address!r}
api.ray_address_to_api_server_url = lambda given: given  # asks a running cluster where its dashboard is
tasks = list_tasks(address=address, detail=True, limit=10000)
one = get_task(tasks[0].task_id, address=address)
client = api.StateApiClient(address=address)
chosen = ListApiOptions(filters=[("state", "=", "FAILED")])
failed = client.list(StateResource.TASKS, chosen, raise_on_missing_output=True)
node = client.list(StateResource.NODES, ListApiOptions(), raise_on_missing_output=True)[0]
logs = api.list_logs(address=address, node_id={HEAD!r}, glob_filter="gcs*")
text = "".join(api.get_log(address=address, node_id={HEAD!r}, filename="gcs_server.out", tail=2))
print(json.dumps(dict(
    tasks=len(tasks),
    same=(one[0] if isinstance(one, list) else one).task_id == tasks[0].task_id,
    actor_tasks=summarize_tasks(address=address)["cluster"]["total_actor_tasks"],
    failed=sorted({{row.state for row in failed}}),
    got=client.get(StateResource.NODES, node.node_id, api.GetApiOptions()).node_id == node.node_id,
    logs=logs, text=text)))
""")
    assert (told["tasks"], told["same"], told["actor_tasks"]) == (349, True, 233)
    assert (told["failed"], told["got"]) == (["FAILED"], True)
    assert told["logs"] == {"gcs_server": ["gcs_server.err", "gcs_server.out"]}
    whole = captured().logs[HEAD, "gcs_server.out"].decode().splitlines()
    assert told["text"].splitlines() == whole[-2:]


def test_rays_client_for_jobs(address: str) -> None:
    told = python(f"""
import json
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient({address!r})
try:
    client.get_job_info("nope")
except RuntimeError as error:
    refused = str(error)
info = client.get_job_info("fx-env")
print(json.dumps(dict(
    jobs=sorted(job.submission_id for job in client.list_jobs()),
    info=[info.submission_id, info.status, info.runtime_env],
    status=client.get_job_status("fx-fail"),
    logs=client.get_job_logs("fx-env"), refused=refused)))
""")
    assert told["jobs"] == ["fx-core", "fx-data", "fx-env", "fx-fail", "fx-long", "fx-serve", "fx-train"]
    assert told["info"][:2] == ["fx-env", "SUCCEEDED"]
    assert set(told["info"][2]["env_vars"].values()) == {"<redacted>"}
    assert told["status"] == "FAILED"
    assert told["logs"].strip() == driver_log()
    assert "404" in told["refused"]
    assert "Job nope does not exist" in told["refused"]


def browsed(cluster: RayCluster, path: str) -> tuple[int, bytes]:
    """An answer of the cluster's dashboard to a browser."""
    headers = {"Accept": "application/json, */*", "Accept-Encoding": "gzip, deflate, br, zstd", "User-Agent": "Mozilla"}
    connection = http.client.HTTPConnection("127.0.0.1", cluster.dashboard_port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def without_zstd(folder: Path) -> str:
    """A folder for PYTHONPATH that keeps aiohttp from reading zstd, as in a plain installation of Ray."""
    (folder / "backports").mkdir()
    (folder / "backports" / "__init__.py").touch()
    return str(folder)


@needs_ray("2.55", "--proxy-server-url")
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
        assert browsed(cluster, "/logs/gcs_server.out") == (200, captured().logs[HEAD, "gcs_server.out"])
        for path in ("/api/jobs/nope", "/api/v0/logs?node_id=zzz", "/logs/nope", "/test/dump"):
            status, told = browsed(cluster, path)
            assert (status, json.loads(told)["result"]) == (410, False), path
        nodes = {node["raylet"]["nodeId"] for node in cluster.get("/nodes?view=summary")["data"]["summary"]}
        assert nodes == set(captured().events)
        # `ray logs` accepts only the address of a cluster: this is how it reaches an ended one.
        place = ("--node-id", HEAD, "--address", cluster.address)
        assert "gcs_server.out" in ray("logs", "cluster", *place)
        told = ray("logs", "cluster", "gcs_server.out", "--tail", "3", *place)
        assert told.strip().splitlines()[-1] in captured().logs[HEAD, "gcs_server.out"].decode()
    finally:
        cluster.kill()
        cluster.remove()
