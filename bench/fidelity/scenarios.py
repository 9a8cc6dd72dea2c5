"""Captures: a workload on a real cluster, its truth, and its death."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from tests.support.processes import ProcessFailed
from tests.support.ray_releases import python_of
from tests.support.waiting import until

from . import truth
from .cluster import MeasuredCluster
from .slow_agent import SlowAgent

WORKLOADS = Path(__file__).with_name("workloads")
FACTS = "capture.json"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
SIDE_ADDRESS, GONE_ADDRESS = "127.0.0.2", "127.0.0.3"
BUSY_SECONDS = 25
"""How long the cluster runs before the truth is taken."""
SMALL_SECONDS = 8
CALM_SECONDS = 35
"""Until the collector has polled again. Before that, Ray fails what ended jobs left behind, after 15 s."""
TRIES = 4
START_SECONDS = 120
"""Until the dashboard answers, of which a part may have died while it started."""
JOB_SECONDS = 600
"""A job takes some seconds, on a busy machine minutes: each of its processes needs a second of a core to start."""


@dataclass(frozen=True)
class Scenario:
    """How a cluster lives and dies."""

    summary: str
    busy: bool
    end: Callable[[MeasuredCluster], None]
    is_small: bool = False
    slow_head: bool = False
    loses_node: bool = False


def _in_order(cluster: MeasuredCluster) -> None:
    """As after `ray stop`: the collectors get SIGTERM when all of Ray has ended."""
    cluster.end()
    for node in cluster.nodes.values():
        node.collector.stop()


def _together(cluster: MeasuredCluster) -> None:
    """As when pods are deleted: SIGTERM to Ray and to the collectors at once."""
    with ThreadPoolExecutor() as threads:
        stops = [threads.submit(node.collector.stop) for node in cluster.nodes.values()]
        cluster.end()
        for stop in stops:
            stop.result()


SCENARIOS = {
    "calm": Scenario("the workload had finished; then SIGTERM to Ray and the collectors at once", False, _together),
    "small": Scenario("for tests: as calm, with one node and a part of the workload", False, _together, is_small=True),
    "killed": Scenario("everything got SIGKILL in mid-run, collectors too", True, MeasuredCluster.kill_everything),
    "slow-head": Scenario(
        "Ray's GCS gave up exporting; then as killed", True, MeasuredCluster.kill_everything, slow_head=True
    ),
    "ray-stop": Scenario("SIGTERM to all of Ray in mid-run, then to the collectors", True, _in_order),
    "node-lost": Scenario("a node got SIGKILL in mid-run; later as ray-stop", True, _in_order, loses_node=True),
}


def capture(minor: str, scenario: str, out: Path, *, seed: int = 1, poll_interval: str = "30s") -> None:
    """Live through a scenario with this Ray, and keep all that is needed to score it."""
    chosen = SCENARIOS[scenario]
    began = time.time()
    with closing(_started(minor, out.resolve(), poll_interval, chosen)) as cluster:
        session = cluster.session.name
        _run_workload(cluster, seed, chosen)
        if chosen.loses_node:
            _lose_node(cluster)
        nodes = {name: cluster.node_id(name) for name in cluster.nodes}
        passes = truth.record(cluster.dashboard, out / "truth", seed)
        died = time.time()
        chosen.end(cluster)
        _keep(cluster, out, session)
    answers = passes["last"]
    facts = {"version": minor, "scenario": scenario, "seed": seed, "session": session, "nodes": nodes}
    facts |= {"began": began, "died": died}
    facts["truth_began"] = min(answer.asked for answer in answers)
    (out / FACTS).write_text(json.dumps(facts, indent=1))


def is_captured(out: Path) -> bool:
    """Whether a capture here is whole: its facts are written last."""
    return (out / FACTS).exists()


def _started(minor: str, out: Path, poll_interval: str, scenario: Scenario) -> MeasuredCluster:
    """A running cluster. A raylet ends if its agent needs more than 15 s to start, which it may on a busy machine."""
    for tries_left in reversed(range(TRIES)):
        shutil.rmtree(out, ignore_errors=True)
        cluster = MeasuredCluster(python_of(minor), out, poll_interval)
        try:
            _start(cluster, minor, scenario)
        except BaseException as error:
            cluster.remove()
            if not tries_left or not isinstance(error, ProcessFailed | AssertionError):
                raise
            print(f"starting Ray {minor} again: {str(error)[-300:]}", file=sys.stderr)
        else:
            return cluster
    raise AssertionError


def _start(cluster: MeasuredCluster, minor: str, scenario: Scenario) -> None:
    version = tuple(map(int, minor.split(".")))
    starting = SlowAgent(cluster, version) if scenario.slow_head else nullcontext()
    cluster.add_head(starting, alone=scenario.is_small)
    until(cluster.is_answering, "the dashboard answers", pause=1, limit=START_SECONDS)
    truth.warm_up(cluster.dashboard, cluster.scratch)
    if scenario.is_small:
        return
    cluster.add_node("side", SIDE_ADDRESS, 2)
    if scenario.loses_node:
        cluster.add_node("gone", GONE_ADDRESS, 2)


def _run_workload(cluster: MeasuredCluster, seed: int, scenario: Scenario) -> None:
    variables = {"SEED": str(seed), "SCRATCH": str(cluster.scratch)}

    def begin(workload: str, name: str, **more: dict[str, str]) -> None:
        cluster.submit_workload(WORKLOADS / f"{workload}.py", name, {**variables, "NAME": name}, **more)

    if scenario.is_small:
        begin("actors", "actors")
        begin("tasks", "tasks")
        _wait(cluster, "actors", "tasks")
        time.sleep(SMALL_SECONDS)
        return
    begin("unfinished", "fails")
    begin("unfinished", "stopped", metadata={"of": "the stopped"})
    begin("odd", "odd näme")
    cluster.post("/api/jobs/", {"entrypoint": "python nothing.py", "submission_id": "no-file"})
    _wait(cluster, "fails", "odd näme")
    until(
        lambda: "ready" in cluster.get("/api/jobs/stopped/logs")["logs"], "job stopped is under way", limit=JOB_SECONDS
    )
    cluster.post("/api/jobs/stopped/stop", {})
    begin("actors", "actors")
    begin("tasks", "tasks")
    _run_plain(cluster)
    _wait(cluster, "actors", "tasks", "stopped")
    if scenario.busy:
        begin("endless", "endless")
        until(lambda: "ready" in cluster.get("/api/jobs/endless/logs")["logs"], "job endless runs", limit=JOB_SECONDS)
    time.sleep(BUSY_SECONDS if scenario.busy else CALM_SECONDS)


def _wait(cluster: MeasuredCluster, *names: str) -> None:
    for name in names:
        path = f"/api/jobs/{quote(name)}"
        until(partial(_has_ended, cluster, path), f"job {name} ends", pause=1, limit=JOB_SECONDS)


def _has_ended(cluster: MeasuredCluster, path: str) -> bool:
    return cluster.get(path)["status"] in ENDED


def _run_plain(cluster: MeasuredCluster) -> None:
    head = next(iter(cluster.nodes.values()))
    environment = {**cluster.environment(head.port), "RAY_ADDRESS": cluster.address}
    command = [cluster.python, WORKLOADS / "plain.py"]
    subprocess.run(command, env=environment, cwd=cluster.scratch, capture_output=True, timeout=180, check=True)


def _lose_node(cluster: MeasuredCluster) -> None:
    cluster.kill_node("gone")
    until(lambda: any(row["state"] == "DEAD" for row in cluster.list("nodes")), "the node is dead", pause=1)
    time.sleep(5)


def _keep(cluster: MeasuredCluster, out: Path, session: str) -> None:
    """The log files on disk, and the events that the collectors acknowledged."""
    acknowledged = {name: sorted(node.recorder.acknowledged) for name, node in cluster.nodes.items()}
    (out / "acknowledged.json").write_text(json.dumps(acknowledged))
    for name, node in cluster.nodes.items():
        if (logs := node.logs(session)).exists():
            shutil.copytree(logs, out / "disk" / name, symlinks=True)
    shutil.rmtree(cluster.scratch, ignore_errors=True)
