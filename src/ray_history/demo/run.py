"""The demo, step by step.

    archive ──▶ collectors ──▶ Ray (two nodes) ──▶ jobs ──▶ everything is killed ──▶ history server

Everything listens on loopback and writes below one directory. All processes are stopped at the end, also after errors.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import click

from .processes import PartUnavailable, Process, free_port, free_ports, port_is_open
from .ray_cluster import RayCluster, ray_binary
from .seaweedfs import SeaweedFS
from .steps import Step, Steps

JOBS = Path(__file__).with_name("jobs")
CLUSTER = "demo"
BUCKET = "ray-history-demo"
# By default Ray stops a worker that is idle for a second, and starts another one for the next task.
KEEP_IDLE_WORKERS = '--system-config={"num_workers_soft_limit": 32}'
FINAL_STATUSES = ("SUCCEEDED", "FAILED", "STOPPED")


class CannotRun(Exception):
    """The demo cannot run on this machine; the message says what to do."""


@dataclass(frozen=True)
class Job:
    """A submitted script, and the state in which it is when its cluster dies."""

    name: str
    status: str
    """The status to wait for."""
    requires: str = ""
    """A module that must be installed."""
    output: str = ""
    """A line of its log to wait for, if the job never ends."""
    port_variable: str = ""
    """The variable that passes it a free port. Jobs without a runtime environment can share workers."""

    def is_ready(self, cluster: RayCluster) -> bool:
        """Whether the job has come as far as it should; raises if it ended in another way."""
        status = cluster.get(f"/api/jobs/{self.name}")["status"]
        if status not in FINAL_STATUSES and status != self.status:
            return False
        log = cluster.get(f"/api/jobs/{self.name}/logs")["logs"]
        if status != self.status:
            raise CannotRun(f"job {self.name} is {status}:\n{log[-2000:]}")
        return self.output in log


SMALL = (
    Job("nightly_etl", "SUCCEEDED"),
    Job("train_model", "FAILED"),
)
# The longest jobs start first.
WORKLOAD = (
    Job("batch_scoring", "SUCCEEDED", requires="pyarrow"),
    Job("recommender", "RUNNING", requires="fastapi", output="items", port_variable="SERVE_PORT"),
    *SMALL,
    Job("market_simulation", "RUNNING", output="everybody trades"),
)


@dataclass
class Archive:
    """The storage URL, and the variables with which programs access it."""

    url: str
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """The options of the demo."""

    directory: Path
    storage: str = "file"
    port: int = 8080
    fresh: bool = False
    small: bool = False


def run(choices: Choices) -> None:
    """Run all steps, and serve until interrupted."""
    if importlib.util.find_spec("ray") is None:
        raise CannotRun("the demo runs a real Ray cluster: pip install 'ray-history[demo]'")
    directory = choices.directory.resolve()
    finished = directory / f"finished-{choices.storage}"
    if choices.fresh:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    again = finished.exists()
    steps = Steps(3 if again else 7)
    with _interrupt_on_termination(), ExitStack() as running:
        with steps.step(f"Opening the archive ({choices.storage})"):
            archive = _archive(running, directory, choices.storage)
        if not again:
            _record_cluster(steps, directory, archive, SMALL if choices.small else WORKLOAD)
            finished.touch()
        with steps.step("Rebuilding the session from the archive") as step:
            step.update(_index(directory, archive))
        with steps.step("Starting the history server"):
            server = running.enter_context(_server(directory, archive, choices.port))
        _serve(server, again=again)


@contextmanager
def _interrupt_on_termination() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that everything is cleaned up."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    # An ignored signal stays ignored: nohup relies on it.
    handled = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _archive(running: ExitStack, directory: Path, storage: str) -> Archive:
    if storage == "file":
        return Archive((directory / "archive").as_uri())
    try:
        server = SeaweedFS(directory / "s3")
        server.start()
    except PartUnavailable as error:
        raise CannotRun(f"{error}, or run without --storage s3") from None
    running.callback(server.stop)
    return Archive(
        f"s3://{BUCKET}",
        {
            "S3_ENDPOINT": server.endpoint,
            "S3_REGION": server.region,
            "S3FORCE_PATH_STYLE": "true",
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
        },
    )


def _record_cluster(steps: Steps, directory: Path, archive: Archive, jobs: tuple[Job, ...]) -> None:
    cluster = RayCluster(token=secrets.token_hex(32))
    with ExitStack() as running:
        running.callback(cluster.remove)
        ports = free_ports(2)
        # An empty variable counts as unset: the token of another cluster must not be sent.
        cluster.choose_metrics_ports()
        variables = {**archive.variables, "RAY_AUTH_TOKEN": "", **cluster.authentication, **cluster.metrics_ports}
        collected = Archive(archive.url, variables)
        polling = (f"--ray-dashboard-address={cluster.dashboard}", "--poll-interval=2s", "--role=Head")
        with steps.step("Starting a collector for the head"):
            collectors = [
                running.enter_context(_collector(directory, collected, cluster.root, "head", ports[0], polling))
            ]
        with steps.step("Starting a real Ray cluster of two nodes, the second with its collector") as step:
            step.update("head")
            cluster.start_head(ports[0], cpus=4, flags=[KEEP_IDLE_WORKERS])
            step.update("worker")
            cluster.start_node(ports[1], cpus=4)
            # Both nodes share one directory, in which the second collector cannot tell its own node.
            (node,) = [row["node_id"] for row in cluster.list("nodes") if not row["is_head_node"]]
            of_node = (f"--node-id={node}", "--role=Worker")
            worker = _collector(directory, collected, cluster.root, "worker", ports[1], of_node)
            collectors.append(running.enter_context(worker))
            step.update(f"dashboard was at {cluster.dashboard}")
        with steps.step("Running jobs") as step:
            _run_jobs(step, cluster, jobs)
        with steps.step("Killing the cluster: every process, without warning") as step:
            pids = cluster.pids()
            time.sleep(3)  # until Ray has exported the last events
            cluster.kill()
            with ThreadPoolExecutor() as together:
                list(together.map(Service.stop, collectors))
            step.update(f"{len(pids)} processes, among them the dashboard")


@dataclass(frozen=True)
class Service:
    """A running `ray-history` command that listens on a port."""

    process: Process
    port: int

    def __enter__(self) -> Service:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.stop()


def _service(directory: Path, name: str, arguments: list[str], archive: Archive, port: int) -> Service:
    process = Process(
        [sys.executable, "-m", "ray_history", *arguments],
        log=directory / f"{name}.log",
        ready=partial(port_is_open, port),
        env=archive.variables,
        stop_seconds=40,
    )
    return Service(process, port)


def _collector(directory: Path, archive: Archive, root: Path, name: str, port: int, flags: tuple[str, ...]) -> Service:
    arguments = [
        "collect",
        f"--storage={archive.url}",
        f"--cluster={CLUSTER}",
        f"--events-port={port}",
        # One spool per cluster: events that an interrupted demo did not ship must not reach the next archive.
        f"--event-data-dir={directory / 'spool' / root.name / name}",
        f"--ray-tmp-root={root}",
        "--push-interval=1s",
        "--metrics-interval=5s",  # the cluster lives for a minute only
        *flags,
    ]
    return _service(directory, f"collector-{name}", arguments, archive, port)


def _run_jobs(step: Step, cluster: RayCluster, jobs: tuple[Job, ...]) -> None:
    runnable = [job for job in jobs if not job.requires or importlib.util.find_spec(job.requires)]
    for job in runnable:
        variables = {job.port_variable: str(free_port())} if job.port_variable else {}
        cluster.submit_file(JOBS / f"{job.name}.py", job.name, variables, {"shows": "the demo"})
    deadline = time.monotonic() + 240
    waiting = runnable
    while waiting:
        waiting = [job for job in waiting if not job.is_ready(cluster)]
        if waiting and time.monotonic() > deadline:
            raise CannotRun(f"not ready after four minutes: {', '.join(job.name for job in waiting)}")
        step.update(", ".join(f"{job.name} {'…' if job in waiting else job.status.lower()}" for job in runnable))
        time.sleep(0.5)


def _index(directory: Path, archive: Archive) -> str:
    """Rebuild the session ahead of time; returns what it holds."""
    arguments = ["index", f"--storage={archive.url}", f"--cache-dir={directory / 'cache'}", f"default/{CLUSTER}/latest"]
    done = subprocess.run(
        [sys.executable, "-m", "ray_history", *arguments],
        env={**os.environ, **archive.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotRun(f"reading the archive failed: {done.stderr[-2000:]}")
    return done.stdout.strip().rpartition("/")[2]


def _server(directory: Path, archive: Archive, port: int) -> Service:
    if port_is_open(port):
        port = free_port()
    arguments = ["serve", f"--storage={archive.url}", f"--port={port}", f"--cache-dir={directory / 'cache'}"]
    return _service(directory, "server", arguments, archive, port)


def _things_to_try(port: int, *, again: bool) -> str:
    base = f"http://localhost:{port}"
    session = f"{base}/s/default/{CLUSTER}/latest"
    cluster = "The cluster of the last run is still dead" if again else "The cluster is dead"
    ray = "ray" if shutil.which("ray") else os.path.relpath(ray_binary())
    return f"""
{cluster}; its dashboard is not. Open in a browser:

    {base}/    all sessions
    {session}/    the Ray Dashboard of the dead cluster

Or query it with Ray's own tools, or with curl:

    {ray} list tasks --filter state=FAILED --address {session}
    {ray} summary actors --address {session}
    {ray} job logs train_model --address {session}
    curl {session}/api/v0/tasks/summarize

Ctrl-C stops the server and cleans up."""


def _serve(server: Service, *, again: bool) -> None:
    """Serve until interrupted."""
    try:
        click.echo(_things_to_try(server.port, again=again))
        while server.process.running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        click.echo("\nStopping. The archive is kept for the next start; --fresh runs a new cluster.")
        return
    raise CannotRun(f"the history server exited:\n{server.process.log_tail()}")
