"""`ray-history run` with a real Ray: nothing is set up, nothing is lost, and the end of the script decides."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.demo.ray_cluster import QUIET_RAY
from ray_history.history.registry import minor_version
from tests.cli.installed import COMMAND
from tests.server.serving import served
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]

# Two sessions; the last tasks of the second one run when the script ends. Ray's authentication is as Ray ships it.
SCRIPT = """
import json, os, sys, time
import ray

@ray.remote(max_retries=0)
def work(n):
    return n

@ray.remote(max_retries=0)
def evaluate(n):
    raise ValueError(f"loss is inf at step {n}")

@ray.remote
class Counter:
    def add(self, n):
        return n

truth = {}
def go(tasks, failing):
    counter = Counter.remote()
    refs = [work.remote(n) for n in range(tasks)] + [counter.add.remote(n) for n in range(3)]
    bad = [evaluate.remote(n) for n in range(failing)]
    ray.wait(refs + bad, num_returns=len(refs + bad))
    expected = {ref.task_id().hex(): "FINISHED" for ref in refs} | {ref.task_id().hex(): "FAILED" for ref in bad}
    session = os.path.basename(ray._private.worker._global_node.get_session_dir_path())
    truth[session] = {"tasks": expected, "job": ray.get_runtime_context().get_job_id()}

options = {"num_cpus": 2, "log_to_driver": False, "object_store_memory": 100_000_000, "_temp_dir": sys.argv[1]}
ray.init(**options)
go(5, 0)
time.sleep(0.5)  # its workers report every 100 ms
ray.shutdown()
ray.init(**options)
go(60, 4)
json.dump(truth, open(sys.argv[2], "w"))
raise RuntimeError("the planted end")
"""


@pytest.fixture
def ray_root() -> Iterator[Path]:
    """Ray's sockets are below it; their paths may have 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="rh", dir="/tmp"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def test_a_script_is_recorded_without_any_setup(tmp_path: Path, real_ray: str, ray_root: Path) -> None:
    home, script, truth_file = tmp_path / "home", tmp_path / "train.py", tmp_path / "truth.json"
    home.mkdir()
    script.write_text(SCRIPT)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [COMMAND, "run", "--", sys.executable, str(script), str(ray_root), str(truth_file)],
        env={**clean, **QUIET_RAY, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    # Before 2.55, Ray loses what its agent does not accept while that is starting, and most events of jobs.
    is_complete = (minor_version(real_ray) or (0, 0)) >= (2, 55)
    truth = json.loads(truth_file.read_text())
    first, second = truth
    assert "RuntimeError: the planted end" in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("ray-history: ")]
    assert [name for name in truth if any(f"/s/default/train/{name}/_session" in line for line in said)] == [*truth], (
        said
    )
    if is_complete:
        assert any("evaluate failed 4 times: ValueError: loss is inf at step " in line for line in said), said
    assert list((home / ".ray-history" / "runs").iterdir()) == [], "everything is in the archive"

    store = open_store(resolve((home / ".ray-history" / "archive").as_uri(), Upstream(), {}))
    assert {session.name for session in read_catalog(store).sessions} == {first, second}
    with served(store, tmp_path / "cache") as server:

        def answer(session: str, path: str) -> Any:
            return server.get(f"/s/default/train/{session}{path}").json

        for session in truth if is_complete else ():
            listed = server.get(f"/s/default/train/{session}/api/v0/tasks?detail=1&limit=10000").rows
            states = {row["task_id"]: row["state"] for row in listed}
            expected = truth[session]["tasks"]
            assert expected.keys() <= states.keys()
            # A process that Ray kills may hold back the very last ends if the machine is busy; without `run`, most.
            different = {task for task, state in expected.items() if states[task] != state}
            assert len(different) <= 3
        jobs = answer(second, "/api/jobs/")
        assert len(jobs) <= 1, "on a busy machine, the GCS may send its first events before there is an agent"
        for job in jobs:
            assert (job["job_id"], job["status"], job["message"], job["driver_exit_code"]) == (
                truth[second]["job"],
                "FAILED",
                "The command exited with code 1.",
                1,
            )
        assert {row["status"] for row in answer(first, "/api/jobs/")} <= {"SUCCEEDED"}
        assert answer(second, "/_completeness")["end"]["word"] == "failed"
        for session in truth:
            ended = answer(session, "/_completeness")
            assert (ended["state"], ended["ended"]) == ("ended", "graceful")
            (node,) = server.get(f"/s/default/train/{session}/api/v0/nodes").rows
            assert answer(session, f"/api/v0/logs?node_id={node['node_id']}")["data"]["result"]["gcs_server"]


LIVING = """
import sys
import time
import ray
import ray_history
from ray.util.state import list_tasks
options = dict(num_cpus=1, log_to_driver=False, object_store_memory=100_000_000, _temp_dir=sys.argv[1])
dashboard = "http://" + ray.init(**options).dashboard_url
ray_history.init()

@ray.remote(max_retries=0)
def evaluate():
    raise ValueError("the planted error")

ray.wait([evaluate.remote()])
while not list_tasks(dashboard, filters=[("state", "=", "FAILED")]):  # workers report their tasks some time later
    time.sleep(0.2)
print("ready", flush=True)
sys.stdin.readline()
ray.shutdown()
ray_history.init(cluster="inside")
ray.init(**options)
ray.wait([evaluate.remote()])
raise RuntimeError("the planted end")
"""


def test_a_ray_that_runs_without_recording_is_recorded_from_now_on(
    tmp_path: Path, real_ray: str, ray_root: Path
) -> None:
    home, script = tmp_path / "home", tmp_path / "living.py"
    home.mkdir()
    script.write_text(LIVING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env = {**clean, **QUIET_RAY, "HOME": str(home)}
    driver = [sys.executable, str(script), str(ray_root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(driver, env=env, text=True, **pipes) as living:
        assert living.stdin is not None
        assert living.stdout is not None
        assert living.stdout.readline() == "ready\n"
        session = (ray_root / "session_latest").resolve().name
        of_this = ["--session-dir", str(ray_root / "session_latest")]
        snapshot = subprocess.run([COMMAND, "snapshot", *of_this], env=env, timeout=120, check=False)
        attached = subprocess.Popen([COMMAND, "attach", "--cluster", "attached", *of_this], env=env)
        archive = home / ".ray-history" / "archive"
        until(lambda: list(archive.glob("**/attached/**/fetched_endpoints/*tasks*")), "its tasks are polled")
        living.stdin.write("\n")
        living.stdin.flush()
        assert (snapshot.returncode, attached.wait(120)) == (0, 0)
        _, said = living.communicate(timeout=120)
    assert living.returncode == 1
    assert "Ray runs already, without export of events: call this before ray.init()" in said
    until(lambda: not list((home / ".ray-history" / "runs").iterdir()))
    with served(open_store(DirectorySettings(archive)), tmp_path / "cache") as server:
        for cluster, state in (("local", "live"), ("attached", "ended")):
            prefix = f"/s/default/{cluster}/{session}"
            (task,) = server.get(f"{prefix}/api/v0/tasks?detail=1").rows
            assert (task["name"], task["state"]) == ("evaluate", "FAILED")
            assert "the planted error" in task["error_message"]
            account = server.get(f"{prefix}/_completeness").json
            assert (account["state"], account["completeness"]["state"]) == (state, "nothing recorded")
        is_complete = (minor_version(real_ray) or (0, 0)) >= (2, 55)
        inside = "/s/default/inside/latest"
        assert server.get(f"{inside}/_completeness").json["end"]["word"] == "failed"
        jobs = server.get(f"{inside}/api/jobs/").json
        assert {(job["status"], job["message"]) for job in jobs} <= {("FAILED", "The command exited with code 1.")}
        assert not is_complete or [row["name"] for row in server.get(f"{inside}/api/v0/tasks").rows] == ["evaluate"]
