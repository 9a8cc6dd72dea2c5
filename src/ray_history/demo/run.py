"""The story: a cluster is born, works, dies, and its dashboard opens again.

    archive ──▶ collectors ──▶ Ray (two nodes) ──▶ jobs ──▶ everything is killed ──▶ history server

All of it runs on loopback, below one directory. What was started is ended by its process id, whatever happens.
"""

from __future__ import annotations

import importlib.util
import os
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

from .processes import PartUnavailable, Process, free_port, free_ports, port_for_later, port_is_open
from .ray_cluster import RayCluster, ray_binary
from .seaweedfs import SeaweedFS
from .steps import Step, Steps

JOBS = Path(__file__).with_name("jobs")
CLUSTER = "demo"
BUCKET = "ray-history-demo"
# Ray would end a worker that is idle for a second, and start another for the next task.
KEEPS_WORKERS = '--system-config={"num_workers_soft_limit": 32}'
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class CannotRun(Exception):
    """The demo cannot run here; the message says what to do."""


@dataclass(frozen=True)
class Job:
    """A script that is submitted, and how far it comes before its cluster dies."""

    name: str
    until: str
    """The status to wait for."""
    needs: str = ""
    """The module without which it cannot run."""
    says: str = ""
    """What its log tells once it is under way; for jobs that never end."""
    port: str = ""
    """The variable that tells it a free port. Others have no environment of their own: any worker fits them."""


SMALL = (
    Job("nightly_etl", "SUCCEEDED"),
    Job("train_model", "FAILED"),
)
# Those that take longest begin first.
WORKLOAD = (
    Job("batch_scoring", "SUCCEEDED", needs="pyarrow"),
    Job("recommender", "RUNNING", needs="fastapi", says="items", port="SERVE_PORT"),
    *SMALL,
    Job("market_simulation", "RUNNING", says="everybody trades"),
)


@dataclass
class Archive:
    """Where the demo keeps what it collects, and how its programs reach it."""

    url: str
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """What a person may choose."""

    directory: Path
    storage: str = "file"
    port: int = 8080
    fresh: bool = False
    small: bool = False


def run(choices: Choices) -> None:
    """Tell the whole story, and serve until somebody ends it."""
    if importlib.util.find_spec("ray") is None:
        raise CannotRun("the demo runs a real Ray cluster: pip install 'ray-history[demo]'")
    directory = choices.directory.resolve()
    finished = directory / f"finished-{choices.storage}"
    if choices.fresh:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    again = finished.exists()
    steps = Steps(3 if again else 7)
    with _ends_politely(), ExitStack() as running:
        with steps.step(f"Opening the archive ({choices.storage})"):
            archive = _archive(running, directory, choices.storage)
        if not again:
            _live_and_die(steps, directory, archive, SMALL if choices.small else WORKLOAD)
            finished.touch()
        with steps.step("Rebuilding the session from the archive") as step:
            step.tell(_index(directory, archive))
        with steps.step("Starting the history server"):
            server = running.enter_context(_server(directory, archive, choices.port))
        _serve(server, again=again)


@contextmanager
def _ends_politely() -> Iterator[None]:
    """Being told to end is like Ctrl-C: everything is cleaned up."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    # What is ignored stays so: nohup means it.
    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
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
        raise CannotRun(f"{error}; or leave out --storage s3") from None
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


def _live_and_die(steps: Steps, directory: Path, archive: Archive, jobs: tuple[Job, ...]) -> None:
    cluster = RayCluster()
    with ExitStack() as running:
        running.callback(cluster.remove)
        ports = free_ports(2)
        polling = (f"--ray-dashboard-address={cluster.dashboard}", "--poll-interval=2s", "--role=Head")
        with steps.step("Starting a collector for the head"):
            collectors = [
                running.enter_context(_collector(directory, archive, cluster.root, "head", ports[0], polling))
            ]
        with steps.step("Starting a real Ray cluster of two nodes, the second with its collector") as step:
            step.tell("head")
            cluster.start_head(ports[0], cpus=4, flags=[KEEPS_WORKERS])
            step.tell("worker")
            cluster.start_node(ports[1], cpus=4)
            # Both nodes share one directory, whose files cannot tell the second collector which one is its own.
            (node,) = [row["node_id"] for row in cluster.list("nodes") if not row["is_head_node"]]
            of_node = (f"--node-id={node}", "--role=Worker")
            worker = _collector(directory, archive, cluster.root, "worker", ports[1], of_node)
            collectors.append(running.enter_context(worker))
            step.tell(f"dashboard was at {cluster.dashboard}")
        with steps.step("Running jobs") as step:
            _run_jobs(step, cluster, jobs)
        with steps.step("Killing the cluster: every process, without warning") as step:
            pids = cluster.pids()
            time.sleep(3)  # what Ray has told so far is on its way
            cluster.kill()
            with ThreadPoolExecutor() as together:
                list(together.map(Listening.stop, collectors))
            step.tell(f"{len(pids)} processes gone, and with them the dashboard")


@dataclass(frozen=True)
class Listening:
    """A program of ours that listens on a port."""

    process: Process
    port: int

    def __enter__(self) -> Listening:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.stop()


def _ours(directory: Path, name: str, arguments: list[str], archive: Archive, port: int) -> Listening:
    process = Process(
        [sys.executable, "-m", "ray_history", *arguments],
        log=directory / f"{name}.log",
        ready=partial(port_is_open, port),
        env=archive.variables,
        stop_seconds=40,
    )
    return Listening(process, port)


def _collector(
    directory: Path, archive: Archive, root: Path, name: str, port: int, flags: tuple[str, ...]
) -> Listening:
    arguments = [
        "collect",
        f"--storage={archive.url}",
        f"--cluster={CLUSTER}",
        f"--events-port={port}",
        # Each cluster's own: what an interrupted demo did not ship would else come into the archive of the next.
        f"--event-data-dir={directory / 'spool' / root.name / name}",
        f"--ray-tmp-root={root}",
        "--push-interval=1s",
        *flags,
    ]
    return _ours(directory, f"collector-{name}", arguments, archive, port)


def _run_jobs(step: Step, cluster: RayCluster, jobs: tuple[Job, ...]) -> None:
    able = [job for job in jobs if not job.needs or importlib.util.find_spec(job.needs)]
    for job in able:
        variables = {job.port: str(port_for_later())} if job.port else {}
        cluster.submit_file(JOBS / f"{job.name}.py", job.name, variables, {"shows": "the demo"})
    deadline = time.monotonic() + 240
    waiting = {job.name: job for job in able}
    while waiting:
        for job in list(waiting.values()):
            status = cluster.get(f"/api/jobs/{job.name}")["status"]
            if status not in ENDED and status != job.until:
                continue
            told = cluster.get(f"/api/jobs/{job.name}/logs")["logs"]
            if status != job.until:
                raise CannotRun(f"job {job.name} is {status}:\n{told[-2000:]}")
            if job.says in told:
                del waiting[job.name]
        if time.monotonic() > deadline:
            raise CannotRun(f"not under way after four minutes: {', '.join(waiting)}")
        step.tell(", ".join(f"{job.name} {'…' if job.name in waiting else job.until.lower()}" for job in able))
        time.sleep(0.5)


def _index(directory: Path, archive: Archive) -> str:
    """Rebuilds ahead of the first look; returns what was found."""
    arguments = ["index", f"--storage={archive.url}", f"--cache-dir={directory / 'cache'}", f"default/{CLUSTER}/latest"]
    done = subprocess.run(
        [sys.executable, "-m", "ray_history", *arguments],
        env={**os.environ, **archive.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotRun(f"the archive could not be read: {done.stderr[-2000:]}")
    return done.stdout.strip().rpartition("/")[2]


def _server(directory: Path, archive: Archive, port: int) -> Listening:
    if port_is_open(port):
        port = free_port()
    arguments = ["serve", f"--storage={archive.url}", f"--port={port}", f"--cache-dir={directory / 'cache'}"]
    return _ours(directory, "server", arguments, archive, port)


def _things_to_try(port: int, *, again: bool) -> str:
    base = f"http://localhost:{port}"
    session = f"{base}/s/default/{CLUSTER}/latest"
    story = "The cluster of the last run is still dead" if again else "The cluster is dead"
    ray = "ray" if shutil.which("ray") else os.path.relpath(ray_binary())
    return f"""
{story}; its dashboard is not. Open in a browser:

    {base}/    all sessions
    {session}/    the Ray Dashboard of the dead cluster

Ask with Ray's own tools, or with curl:

    {ray} list tasks --filter state=FAILED --address {session}
    {ray} summary actors --address {session}
    {ray} job logs train_model --address {session}
    curl {session}/api/v0/tasks/summarize

Ctrl-C ends the server and cleans up."""


def _serve(server: Listening, *, again: bool) -> None:
    """Until somebody ends it."""
    try:
        click.echo(_things_to_try(server.port, again=again))
        while server.process.running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        click.echo("\nEnding. The archive stays, so the next start is quick; --fresh lives through a new cluster.")
        return
    raise CannotRun(f"the history server ended by itself:\n{server.process.log_tail()}")
