"""Ray sessions of any size, written as the collector stores them, and the counts that a rebuild must find in them.

The events have the shape of real ones of Ray 2.60: the field names, their order, the ", " between them, unset values
printed as "" or 0, owner and executor each reporting half of an attempt, in one event or in two.

Each job has its own random stream, so that a seed gives the same bytes in any number of processes. The events of a job
are held in memory only until their interval is over, so that memory does not grow with the session.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import shutil
import sys
import time
from binascii import b2a_base64
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from isal import isal_zlib

from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from ray_history.archive.names import session_time

SHAPE = 1
"""Increase it when the same parameters give another session than before: existing ones are then written again."""

SECOND = 1_000_000_000
INTERVAL = 10 * SECOND
EVENTS_PER_FILE = 7_000
EVENTS_PER_ATTEMPT = 5.1
SMALL = 20_000
"""Smaller sessions are written by this process: starting others would take longer."""

ACTOR_TASKS = 1 / 3
TASKS_PER_ACTOR = 500
RETRIED, FAILED, ENDLESS, PENDING = 0.01, 0.02, 0.005, 0.003
LATE, DUPLICATED = 0.03, 0.005
ARRIVAL = 300
"""Events are shuffled within groups of this size, about what an agent sends at once."""

AFTER_NORMAL_TASK = (
    ', "taskType": "NORMAL_TASK", "language": "PYTHON", "refIds": {}, "labelSelector": {}, "isDetachedActor": false'
)
AFTER_ACTOR_TASK = (
    ', "language": "PYTHON", "requiredResources": {}, "refIds": {}, "labelSelector": {}, "isDetachedActor": false'
)
NIL_TASK = "/" * 32
NIL_GROUP = "/" * 24
WORKER_DIED = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was "
    "killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed "
    "unexpectedly due to SIGSEGV or another unexpected error."
)
OUT_OF_MEMORY = (
    "Task was killed due to the node running low on memory.\nMemory on the node (IP: {ip}) where the task "
    "(name={name}, pid={pid}, memory used=2.41GB) was running was 60.82GB / 64.00GB (0.950312), which exceeds the "
    "memory usage threshold of 0.95. Ray killed this worker because it was the most recently scheduled task.\n"
    "Top 10 memory users:\nPID\tMEM(GB)\tCOMMAND\n{pid}\t2.41\tray::{name}\n811\t0.21\tpython jobs/main.py\n"
)
VERBS = ("load", "parse", "tokenize", "embed", "score", "rank", "join", "reduce", "train", "evaluate", "publish", "ok")
NOUNS = ("images", "documents", "batch", "shard", "model")
RESOURCES = ('{"CPU": 1.0}', '{"CPU": 0.5}', '{"CPU": 1.0, "memory": 2147483648.0}', '{"CPU": 0.1, "side": 0.1}', "{}")


@dataclass(frozen=True)
class Generated:
    """What was written, and the counts that a rebuild must find."""

    shape: int
    seed: int
    cluster: str
    session: str
    tasks: int
    attempts: int
    events: int
    """Distinct events."""
    duplicates: int
    """Further copies of events, with the same event id."""
    files: int
    raw_bytes: int
    stored_bytes: int
    states: dict[str, int]
    """Attempts by the highest state in their events."""
    jobs: int
    nodes: int
    actors: int
    workers: int


@dataclass(frozen=True)
class _Node:
    id: str
    hex: str
    ip: str


@dataclass(frozen=True)
class _Plan:
    """Parameters that all jobs of a session share."""

    directory: Path
    tasks: int
    seed: int
    cluster: Cluster
    session: str
    start: int
    nodes: tuple[_Node, ...]
    jobs: int
    workers: int
    """Workers of one job, without those of its actors."""
    intervals: int
    """Files of each node and job."""


@dataclass
class _Counts:
    attempts: int = 0
    events: int = 0
    duplicates: int = 0
    files: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    actors: int = 0
    workers: int = 0
    states: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class _Worker:
    id: str
    pid: int
    node: int
    log_files: str
    free: int = 0
    """When its last task ends."""
    out: int = 31
    err: int = 31
    """Sizes of its log files; Ray begins each with a line of 31 bytes."""


@dataclass(slots=True)
class _Actor:
    id: str
    binary: bytes
    name: str
    worker: _Worker


@dataclass(slots=True)
class _Task:
    id: str
    hex: str
    name: str
    function: str
    owner: int
    """Index of the node whose worker or driver submitted it."""
    kind: str
    payload: str
    before_attempt: str
    """The definition before and after the number of the attempt."""
    after_attempt: str
    actor: _Actor | None = None


def generate(
    directory: Path,
    *,
    tasks: int,
    seed: int = 1,
    cluster: Cluster = Cluster("default", "bench"),  # noqa: B008  (frozen)
    session: str = "session_2026-01-01_00-00-00_000001_1",
    processes: int | None = None,
) -> Generated:
    """Write a session, unless it exists already; `tasks` includes drivers and actor creation tasks."""
    note = directory / "generated.json"
    existing = _read(note)
    parameters = (SHAPE, seed, cluster.path, session, tasks)
    if existing and (existing.shape, existing.seed, existing.cluster, existing.session, existing.tasks) == parameters:
        return existing
    note.unlink(missing_ok=True)
    shutil.rmtree(directory / layout.session_prefix("", cluster, session), ignore_errors=True)
    plan = _plan(directory, tasks, seed, cluster, session)
    counts = _Counts()
    for job_counts in _written_jobs(plan, processes or (1 if tasks < SMALL else os.cpu_count() or 1)):
        counts.add(job_counts)
    marker = directory / layout.marker_key("", cluster, session)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_bytes(b"")
    generated = Generated(
        shape=SHAPE,
        seed=seed,
        cluster=cluster.path,
        session=session,
        tasks=tasks,
        jobs=plan.jobs,
        nodes=len(plan.nodes),
        **{**vars(counts), "states": dict(counts.states)},
    )
    note.write_text(json.dumps(asdict(generated), indent=1) + "\n")
    return generated


def _read(note: Path) -> Generated | None:
    try:
        return Generated(**json.loads(note.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _plan(directory: Path, tasks: int, seed: int, cluster: Cluster, session: str) -> _Plan:
    if tasks < 100:
        raise ValueError(f"tasks is {tasks}: expected at least 100")
    moment = session_time(session)
    if moment is None:
        raise ValueError(f"invalid session name {session!r}")
    rng = random.Random(f"{seed} nodes")
    binary = [rng.randbytes(28) for _ in range(_between(2, tasks // 5_000, 9))]
    nodes = tuple(_Node(_base64(id_), id_.hex(), f"192.0.2.{number + 2}") for number, id_ in enumerate(binary))
    jobs = _between(2, tasks // 25_000, 10)
    intervals = max(2, round(tasks * EVENTS_PER_ATTEMPT / EVENTS_PER_FILE / jobs / len(nodes)))
    workers = _between(2, tasks // 1_000 // jobs, 40)
    start = moment.seconds * SECOND
    return _Plan(directory, tasks, seed, cluster, session, start, nodes, jobs, workers, intervals)


def _written_jobs(plan: _Plan, processes: int) -> Iterator[_Counts]:
    if processes == 1:
        yield from (_write_job(plan, number) for number in range(plan.jobs))
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_write_job, [plan] * plan.jobs, range(plan.jobs))


def _write_job(plan: _Plan, number: int) -> _Counts:
    job = _Job(plan, number)
    job.run()
    return job.counts


# Texts ---------------------------------------------------------------------------------------------------------------


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))


def _base64(binary: bytes) -> str:
    return b2a_base64(binary, newline=False).decode()


def _split(amount: int, parts: int, number: int) -> int:
    """The size of one of several nearly equal parts of an amount."""
    return amount * (number + 1) // parts - amount * number // parts


_seconds: dict[int, str] = {}


def _stamp(moment: int) -> str:
    """Nanoseconds as protobuf prints them: with 0, 3, 6 or 9 digits of fraction, as few as possible."""
    second, fraction = divmod(moment, SECOND)
    text = _seconds.get(second)
    if text is None:
        text = _seconds[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    if fraction % 1_000:
        return f"{text}.{fraction:09d}Z"
    if fraction % 1_000_000:
        return f"{text}.{fraction // 1_000:06d}Z"
    return f"{text}.{fraction // 1_000_000:03d}Z" if fraction else f"{text}Z"


def _stack(rng: random.Random, depth: int) -> str:
    return "".join(
        f'  File "/home/ray/pipelines/{rng.choice(NOUNS)}/{rng.choice(VERBS)}.py", line {rng.randrange(900)}, in '
        f"{rng.choice(VERBS)}\n    return {rng.choice(VERBS)}_{rng.choice(NOUNS)}.remote(item, shard={depth})\n"
        for _ in range(depth)
    )


# Files ---------------------------------------------------------------------------------------------------------------


class _Files:
    """Sorts the events of a job into the files in which the nodes' collectors would store them."""

    def __init__(self, plan: _Plan, job: str, number: int, start: int, rng: random.Random, counts: _Counts) -> None:
        self.plan, self.job, self.number, self.start, self.rng, self.counts = plan, job, number, start, rng, counts
        self.last = plan.intervals - 1
        self.written = 0
        self.prefix = layout.session_prefix("", plan.cluster, plan.session)
        self.waiting: dict[tuple[int, int], list[str]] = defaultdict(list)
        self.of_cluster: list[str] = []

    def add(self, line: str, node: int, moment: int) -> None:
        """Add one event of the job, sent by a node at a time."""
        self.counts.events += 1
        interval = min((moment - self.start) // INTERVAL, self.last)
        chance = self.rng.random()
        if chance < LATE:
            interval = self._later(interval)
        elif chance > 1 - DUPLICATED:
            self.counts.duplicates += 1
            other = self._later(interval) if chance > 1 - DUPLICATED / 2 else interval
            self.waiting[other, node].append(line)
        self.waiting[interval, node].append(line)

    def add_of_cluster(self, line: str) -> None:
        """Add one event that names no job; there are few, so one file per job holds them."""
        self.counts.events += 1
        self.of_cluster.append(line)

    def write_before(self, moment: int) -> None:
        """Write the files of all intervals that ended before this time."""
        over = min((moment - self.start) // INTERVAL, self.last)
        while self.written < over:
            self._write_interval()

    def write_rest(self) -> None:
        while self.written <= self.last:
            self._write_interval()
        self._write(None, 0, self.last, self.of_cluster)

    def _later(self, interval: int) -> int:
        return min(interval + self.rng.randint(1, 3), self.last)

    def _write_interval(self) -> None:
        for node in range(len(self.plan.nodes)):
            self._write(self.job, node, self.written, self.waiting.pop((self.written, node), []))
        self.written += 1

    def _write(self, job: str | None, node: int, interval: int, lines: list[str]) -> None:
        if not lines:
            return
        created = self.start + (interval + 1) * INTERVAL + self.number * 1_000 + node
        path = self.plan.directory / layout.event_file_key(self.prefix, self.plan.nodes[node].hex, job, created)
        raw = "".join(self._as_they_arrive(lines)).encode()
        # The product compresses better, with zlib, which alone would take longer than everything else here.
        packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
        packed = packer.compress(raw) + packer.flush()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed)
        self.counts.files += 1
        self.counts.raw_bytes += len(raw)
        self.counts.stored_bytes += len(packed)

    def _as_they_arrive(self, lines: list[str]) -> Iterator[str]:
        for first in range(0, len(lines), ARRIVAL):
            batch = lines[first : first + ARRIVAL]
            self.rng.shuffle(batch)
            yield from batch


# A job ---------------------------------------------------------------------------------------------------------------


class _Job:
    """One driver, its workers and actors, and the tasks that they submit."""

    def __init__(self, plan: _Plan, number: int) -> None:
        self.plan, self.number = plan, number
        self.rng = random.Random(f"{plan.seed} job {number}")
        self.counts = _Counts()
        self.start = plan.start + (5 + 7 * number) * SECOND
        self.end = self.start + plan.intervals * INTERVAL
        self.finishes = number < plan.jobs - 1  # the last one is cut off with its cluster
        self.binary = (number + 1).to_bytes(4, "little")
        self.id, self.hex = _base64(self.binary), self.binary.hex()
        self.files = _Files(plan, self.hex, number, self.start, self.rng, self.counts)
        self.name = f"{VERBS[number % len(VERBS)]}-nightly"
        self.module = f"jobs.{VERBS[number % len(VERBS)]}"
        self.environment = json.dumps(
            json.dumps(
                {"env_vars": {"STAGE": "prod", "RUN": str(number), "RAY_worker_niceness": "0"}, "pip": ["polars"]}
            )
        )
        self.group = _base64(self.rng.randbytes(14) + self.binary)
        self.driver = _base64(b"\xff" * 20 + self.binary)
        self.driver_node = number % len(plan.nodes)
        self.functions = [f"{verb}_{noun}" for verb in VERBS for noun in NOUNS]
        self.hashes = [self.rng.randbytes(16).hex() for _ in self.functions]
        self.call_sites = [json.dumps(_stack(self.rng, self.rng.randint(1, 8))) for _ in range(50)]
        self.envelope = f'"severity": "INFO", "sessionName": "{plan.session}", '
        self.workers = [self._worker(place) for place in range(plan.workers)]
        tasks = _split(plan.tasks, plan.jobs, number)
        self.actors = [self._actor(place) for place in range(max(1, round(tasks / TASKS_PER_ACTOR)))]
        self.counts.actors, self.counts.workers = len(self.actors), len(self.workers) + len(self.actors)
        self.outcomes = self._outcomes(tasks - 1 - len(self.actors))
        self.gap = (plan.intervals * INTERVAL - 2 * SECOND) / len(self.outcomes)
        self.duration = 0.5 * plan.workers * self.gap / (1 - ACTOR_TASKS)  # keeps the workers half busy
        self.head = _Head(self)
        self.parents: list[tuple[int, str, _Worker]] = []

    def _worker(self, place: int) -> _Worker:
        binary = self.rng.randbytes(28)
        pid = self.rng.randint(300, 4_000_000)
        logs = f"/tmp/ray/{self.plan.session}/logs/worker-{binary.hex()}-{self.hex}-{pid}"  # noqa: S108  (Ray's place)
        files = f'"stdoutFile": "{logs}.out", "stderrFile": "{logs}.err"'
        return _Worker(_base64(binary), pid, (self.number + place) % len(self.plan.nodes), files)

    def _actor(self, place: int) -> _Actor:
        binary = self.rng.randbytes(12) + self.binary
        return _Actor(_base64(binary), binary, self.rng.choice(NOUNS).title() + "Worker", self._worker(place))

    def _outcomes(self, tasks: int) -> list[str]:
        """Exact shares, so that even a small session has some of each."""
        shares = {"retried": RETRIED, "FAILED": FAILED, "RUNNING": ENDLESS, "PENDING_NODE_ASSIGNMENT": PENDING}
        outcomes = [outcome for outcome, share in shares.items() for _ in range(math.ceil(share * tasks))]
        outcomes += ["FINISHED"] * (tasks - len(outcomes))
        self.rng.shuffle(outcomes)
        return outcomes

    def run(self) -> None:
        if self.number == 0:
            self.head.write_nodes()
        self._begin()
        for place, outcome in enumerate(self.outcomes):
            now = self.start + SECOND + int((place + self.rng.random()) * self.gap)
            self.files.write_before(now)
            if self.rng.random() < ACTOR_TASKS:
                self._run(self._actor_task(now), now, outcome)
            elif outcome == "FINISHED" and len(self.parents) < max(1, len(self.workers) // 4):
                self._run_parent(now)
            else:
                self._run(self._normal_task(now), now, outcome)
        self._finish()
        self.files.write_rest()

    # Tasks

    def _submitter(self, now: int) -> tuple[str, int]:
        """The id of the parent, usually a task that still runs, and the index of its node."""
        if self.parents and self.rng.random() < 0.75:
            place = int(self.rng.random() * len(self.parents))
            end, task, worker = self.parents[place]
            if end > now:
                return task, worker.node
            del self.parents[place]
        return self.driver, self.driver_node

    def _normal_task(self, now: int) -> _Task:
        rng = self.rng
        parent, owner = self._submitter(now)
        place = int(rng.random() * len(self.functions))
        name, chance = self.functions[place], rng.random()
        group = self.group if chance < 0.02 else NIL_GROUP
        call_site = f'"callSite": {self.call_sites[int(rng.random() * 50)]}, ' if chance > 0.6 else ""
        binary = rng.randbytes(8) + b"\xff" * 12 + self.binary
        id_ = _base64(binary)
        before = (
            f'"taskId": "{id_}", "taskFunc": {{"pythonFunctionDescriptor": {{"moduleName": "{self.module}", '
            f'"functionName": "{name}", "functionHash": "{self.hashes[place]}", "className": ""}}}}, '
            f'"taskName": "{name}", "requiredResources": {RESOURCES[place % len(RESOURCES)]}, "jobId": "{self.id}", '
            f'"parentTaskId": "{parent}", "placementGroupId": "{group}", '
            f'"serializedRuntimeEnv": {self.environment}, {call_site}'
        )
        kind, payload = "TASK_DEFINITION_EVENT", "taskDefinitionEvent"
        return _Task(id_, binary.hex(), name, f"{self.module}.{name}", owner, kind, payload, before, AFTER_NORMAL_TASK)

    def _actor_task(self, now: int) -> _Task:
        rng = self.rng
        parent, owner = self._submitter(now)
        actor = self.actors[int(rng.random() * len(self.actors))]
        method = VERBS[int(rng.random() * len(VERBS))]
        call_site = f'"callSite": {self.call_sites[int(rng.random() * 50)]}, ' if rng.random() > 0.6 else ""
        binary = rng.randbytes(8) + actor.binary
        id_ = _base64(binary)
        name = f"{actor.name}.{method}"
        before = (
            f'"taskId": "{id_}", "actorFunc": {{"pythonFunctionDescriptor": {{"moduleName": "{self.module}", '
            f'"className": "{actor.name}", "functionName": "{method}", "functionHash": ""}}}}, '
            f'"actorTaskName": "{name}", "jobId": "{self.id}", "actorId": "{actor.id}", "parentTaskId": "{parent}", '
            f'"placementGroupId": "{NIL_GROUP}", "serializedRuntimeEnv": {self.environment}, {call_site}'
        )
        kind, payload = "ACTOR_TASK_DEFINITION_EVENT", "actorTaskDefinitionEvent"
        return _Task(id_, binary.hex(), name, method, owner, kind, payload, before, AFTER_ACTOR_TASK, actor)

    def _creation_task(self, actor: _Actor) -> _Task:
        binary = b"\xff" * 8 + actor.binary
        id_ = _base64(binary)
        name = f"{actor.name}.__init__"
        before = (
            f'"taskId": "{id_}", "taskType": "ACTOR_CREATION_TASK", "taskFunc": {{"pythonFunctionDescriptor": '
            f'{{"moduleName": "{self.module}", "className": "{actor.name}", "functionName": "__init__", '
            f'"functionHash": "{self.hashes[0]}"}}}}, "taskName": "{name}", "jobId": "{self.id}", '
            f'"parentTaskId": "{self.driver}", "placementGroupId": "{NIL_GROUP}", '
            f'"serializedRuntimeEnv": {self.environment}, "callSite": {self.call_sites[0]}, '
        )
        kind, payload = "TASK_DEFINITION_EVENT", "taskDefinitionEvent"
        return _Task(
            id_, binary.hex(), name, "__init__", self.driver_node, kind, payload, before, AFTER_ACTOR_TASK, actor
        )

    def _run_parent(self, now: int) -> None:
        """Run a task of some seconds that submits others in the meantime."""
        task, worker = self._normal_task(now), self._free_worker(now)
        end = self._attempt(task, 0, worker, now, int(self.rng.uniform(2, 8) * SECOND), "FINISHED")
        self.parents.append((end, task.id, worker))

    def _run(self, task: _Task, now: int, outcome: str) -> None:
        duration = int(self.rng.expovariate(1.0) * self.duration)
        worker = task.actor.worker if task.actor else self._free_worker(now)
        if outcome != "retried":
            self._attempt(task, 0, worker, now, duration, outcome)
            return
        failed = self._attempt(task, 0, worker, now, duration, "FAILED")
        again = task.actor.worker if task.actor else self._free_worker(failed)
        outcome = "FINISHED" if self.rng.random() < 0.8 else "FAILED"
        self._attempt(task, 1, again, failed + 50_000_000, duration, outcome)

    def _free_worker(self, now: int) -> _Worker:
        """A random idle worker, or of a few busy ones the one that is idle first."""
        tried = []
        for _ in range(4):
            worker = self.workers[int(self.rng.random() * len(self.workers))]
            if worker.free <= now:
                return worker
            tried.append(worker)
        return min(tried, key=lambda worker: worker.free)

    # One attempt, as its owner and its executor report it

    def _attempt(self, task: _Task, number: int, worker: _Worker, now: int, duration: int, outcome: str) -> int:
        """Send all events of an attempt; returns the time of its end."""
        self.counts.attempts += 1
        self.counts.states[outcome] += 1
        rng = self.rng
        begun = max(now + 150_000 + int(rng.random() * 1_000_000), worker.free)
        ended = begun + 200_000 + duration
        if outcome in (
            "FINISHED",
            "FAILED",
        ):  # endless ones occupy no worker: they are too many
            worker.free = ended
        chance = rng.random()
        if chance < 0.03:  # sometimes a time is round, and printed with fewer digits
            grain = (1_000, 1_000_000, SECOND)[int(chance * 100)]
            now, begun, ended = now // grain * grain, begun // grain * grain, ended // grain * grain
        self._send(
            task.kind,
            task.payload,
            f'{task.before_attempt}"taskAttempt": {number}{task.after_attempt}',
            task.owner,
            now,
        )
        # Set fields are printed before the job id, unset ones after it.
        head = f'"taskId": "{task.id}", "taskAttempt": 1, ' if number else f'"taskId": "{task.id}", '
        tail = f'"jobId": "{self.id}", ' if number else f'"jobId": "{self.id}", "taskAttempt": 0, '
        error, lost = self._error(task, worker) if outcome == "FAILED" else ("", False)
        self._owner_events(task, head, tail, worker, (now, begun, ended), outcome, error)
        if outcome != "PENDING_NODE_ASSIGNMENT":
            self._executor_events(task, number, worker, (begun, ended), unfinished=lost or outcome == "RUNNING")
        return ended

    def _owner_events(
        self, task: _Task, head: str, tail: str, worker: _Worker, times: tuple[int, int, int], outcome: str, error: str
    ) -> None:
        now, begun, ended = times
        ended += 30_000  # the reply takes some time
        assigned, submitted = min(now + 40_000, begun), max(now, begun - 90_000)
        pending = (
            f'{{"state": "PENDING_ARGS_AVAIL", "timestamp": "{_stamp(now)}"}}, '
            f'{{"state": "PENDING_NODE_ASSIGNMENT", "timestamp": "{_stamp(assigned)}"}}'
        )
        sent = f'{{"state": "SUBMITTED_TO_WORKER", "timestamp": "{_stamp(submitted)}"}}'
        unset = f'{tail}"nodeId": "", "workerId": "", "workerPid": 0'
        place = f'"nodeId": "{self.plan.nodes[worker.node].id}", "workerId": "{worker.id}", {tail}"workerPid": 0'
        if outcome == "PENDING_NODE_ASSIGNMENT":
            self._lifecycle(f'{head}"stateTransitions": [{pending}], {unset}', task.owner, assigned)
            return
        if outcome == "RUNNING":
            self._lifecycle(f'{head}"stateTransitions": [{pending}, {sent}], {place}', task.owner, submitted)
            return
        over = f'{{"state": "{outcome}", "timestamp": "{_stamp(ended)}"}}'
        chance = self.rng.random()
        if chance < 0.4:  # all within one second, the interval at which a worker sends its events
            self._lifecycle(f'{head}"stateTransitions": [{pending}, {sent}, {over}], {error}{place}', task.owner, ended)
        elif chance < 0.7:
            self._lifecycle(f'{head}"stateTransitions": [{pending}, {sent}], {place}', task.owner, submitted)
            self._lifecycle(f'{head}"stateTransitions": [{over}], {error}{unset}', task.owner, ended)
        else:
            self._lifecycle(f'{head}"stateTransitions": [{pending}], {unset}', task.owner, assigned)
            self._lifecycle(f'{head}"stateTransitions": [{sent}, {over}], {error}{place}', task.owner, ended)

    def _executor_events(
        self, task: _Task, number: int, worker: _Worker, times: tuple[int, int], *, unfinished: bool
    ) -> None:
        begun, ended = times
        head = f'"taskId": "{task.id}", "taskAttempt": 1, ' if number else f'"taskId": "{task.id}", '
        attempt = "" if number else '"taskAttempt": 0, '
        unset = '"nodeId": "", "workerId": ""'
        running = f'{{"state": "RUNNING", "timestamp": "{_stamp(begun)}"}}'
        if task.actor is None:
            start = f'"stdoutStart": "{worker.out}"', f'"stderrStart": "{worker.err}"'
            worker.out += int(self.rng.random() * 400)
            worker.err += 12
            end = f'"stdoutEnd": "{worker.out}"', f'"stderrEnd": "{worker.err}"'
            whole = not unfinished and self.rng.random() < 0.3
            logs = f"{start[0]}, {end[0]}, {start[1]}, {end[1]}" if whole else f"{start[0]}, {start[1]}"
            self._lifecycle(
                f'{head}"stateTransitions": [{running}], "workerPid": {worker.pid}, "jobId": "{self.id}", '
                f'"taskLogInfo": {{{worker.log_files}, {logs}}}, {attempt}{unset}',
                worker.node,
                ended if whole else begun,
            )
            if not whole and not unfinished:
                self._lifecycle(
                    f'{head}"jobId": "{self.id}", "taskLogInfo": {{{end[0]}, {end[1]}}}, {attempt}'
                    f'"stateTransitions": [], {unset}, "workerPid": 0',
                    worker.node,
                    ended,
                )
        else:  # Ray does not report the log offsets of actor tasks
            ordered = f'{{"state": "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY", "timestamp": "{_stamp(begun)}"}}, '
            states = running if task.function == "__init__" else ordered + running
            self._lifecycle(
                f'{head}"stateTransitions": [{states}], "workerPid": {worker.pid}, "jobId": "{self.id}", '
                f"{attempt}{unset}",
                worker.node,
                begun,
            )
        if not unfinished:
            self._profile(task, number, worker, begun, ended)

    def _profile(self, task: _Task, number: int, worker: _Worker, begun: int, ended: int) -> None:
        executing, stored = begun + 80_000, max(begun + 90_000, ended - 60_000)
        body = (
            f'"taskId": "{task.id}", "jobId": "{self.id}", "profileEvents": {{"componentType": "worker", '
            f'"componentId": "{worker.id}", "nodeIpAddress": "{self.plan.nodes[worker.node].ip}", "events": ['
            f'{{"startTime": "{begun + 10_000}", "endTime": "{executing}", "extraData": "{{}}", '
            f'"eventName": "task:deserialize_arguments"}}, '
            f'{{"startTime": "{executing + 1_200}", "endTime": "{stored}", "extraData": "{{}}", '
            f'"eventName": "task:execute"}}, '
            f'{{"startTime": "{stored + 900}", "endTime": "{stored + 50_000}", "extraData": "{{}}", '
            f'"eventName": "task:store_outputs"}}, '
            f'{{"startTime": "{begun + 5_000}", "endTime": "{stored + 59_000}", "extraData": '
            f'"{{\\"name\\": \\"{task.function}\\", \\"task_id\\": \\"{task.hex}\\"}}", '
            f'"eventName": "task::{task.name}"}}]}}, "attemptNumber": {number}'
        )
        self._send("TASK_PROFILE_EVENT", "taskProfileEvents", body, worker.node, ended)

    def _error(self, task: _Task, worker: _Worker) -> tuple[str, bool]:
        """The error of a failed attempt, and whether its worker died with its last events."""
        rng, ip = self.rng, self.plan.nodes[worker.node].ip
        chance = rng.random()
        if chance < 0.8:
            actor = f", actor_id={task.actor.binary.hex()}, repr={task.actor.name}()" if task.actor else ""
            reason = rng.choice(
                (
                    f"ValueError: shard {rng.randrange(10_000)} is empty",
                    f"KeyError: 'column_{rng.randrange(100)}'",
                    "RuntimeError: deliberate 你好 failure\nsecond line",
                    "TimeoutError",
                )
            )
            message = f"User exception:\n\x1b[36mray::{task.name}()\x1b[39m (pid={worker.pid}, ip={ip}{actor})\n"
            message += _stack(rng, rng.randint(1, 12)) + reason
            return self._error_info({"errorMessage": message, "errorType": "TASK_EXECUTION_EXCEPTION"}), False
        if task.actor and chance < 0.95:
            context = {**self.head.death(task.actor), "errorMessage": WORKER_DIED}
            died = {"actorDiedErrorContext": context}
            info = {"actorDiedError": died, "errorMessage": WORKER_DIED, "errorType": "ACTOR_DIED"}
            return self._error_info(info), True
        if chance < 0.9:
            message = OUT_OF_MEMORY.format(ip=ip, name=task.name, pid=worker.pid)
            return self._error_info({"errorMessage": message, "errorType": "OUT_OF_MEMORY"}), True
        message = rng.choice(("", "RpcError: RPC error: Socket closed rpc_code: 14"))
        return self._error_info({"errorMessage": message, "errorType": "WORKER_DIED"}), True

    @staticmethod
    def _error_info(info: Mapping[str, object]) -> str:
        return f'"rayErrorInfo": {json.dumps(info)}, '

    def _lifecycle(self, body: str, node: int, moment: int) -> None:
        self._send("TASK_LIFECYCLE_EVENT", "taskLifecycleEvent", body, node, moment)

    def _send(self, kind: str, payload: str, body: str, node: int, moment: int) -> None:
        self.files.add(
            f'{{"eventId": "{_base64(self.rng.randbytes(28))}", "sourceType": "CORE_WORKER", "eventType": "{kind}", '
            f'"timestamp": "{_stamp(moment)}", {self.envelope}"{payload}": {{{body}}}, '
            f'"nodeId": "{self.plan.nodes[node].id}", "message": ""}}\n',
            node,
            moment,
        )

    # The job itself

    def _begin(self) -> None:
        self.head.begin_job()
        self._begin_driver()
        for worker in (*self.workers, *(actor.worker for actor in self.actors)):
            self.head.begin_worker(worker)
        for place, actor in enumerate(self.actors):
            moment = self.start + SECOND // 2 + place * SECOND // 3 // len(self.actors)
            self._attempt(self._creation_task(actor), 0, actor.worker, moment, 20_000_000, "FINISHED")
            self.head.begin_actor(actor, moment)

    def _finish(self) -> None:
        if not self.finishes:
            return
        self._driver_state("FINISHED", self.end)
        self.head.end_job(self.end + 2_000_000)
        for actor in self.actors:
            self.head.end_actor(actor, self.end + 3_000_000)
        for worker in (*self.workers, *(actor.worker for actor in self.actors)):
            self.head.end_worker(worker, self.end + 4_000_000)

    def _begin_driver(self) -> None:
        definition = (
            f'"taskId": "{self.driver}", "taskType": "DRIVER_TASK", "taskFunc": {{}}, "jobId": "{self.id}", '
            f'"parentTaskId": "{NIL_TASK}", "placementGroupId": "{NIL_GROUP}", "taskAttempt": 0, "language": "PYTHON", '
            '"taskName": "", "requiredResources": {}, "refIds": {}, "serializedRuntimeEnv": "", "labelSelector": {}, '
            '"isDetachedActor": false'
        )
        self._send("TASK_DEFINITION_EVENT", "taskDefinitionEvent", definition, self.driver_node, self.start)
        self._driver_state("RUNNING", self.start)
        spans = ", ".join(
            f'{{"startTime": "{moment}", "endTime": "{moment + 90_000}", "extraData": "{{}}", '
            '"eventName": "submit_task"}'
            for moment in range(self.start + SECOND, self.start + SECOND + 12_000_000, 1_000_000)
        )
        driver = _base64(self.binary + b"\xff" * 24)
        profile = (
            f'"taskId": "{self.driver}", "jobId": "{self.id}", "profileEvents": {{"componentType": "driver", '
            f'"componentId": "{driver}", "nodeIpAddress": "{self.plan.nodes[self.driver_node].ip}", '
            f'"events": [{spans}]}}, "attemptNumber": 0'
        )
        self._send("TASK_PROFILE_EVENT", "taskProfileEvents", profile, self.driver_node, self.start + SECOND)
        self.counts.attempts += 1
        self.counts.states["FINISHED" if self.finishes else "RUNNING"] += 1

    def _driver_state(self, state: str, moment: int) -> None:
        body = (
            f'"taskId": "{self.driver}", '
            f'"stateTransitions": [{{"state": "{state}", "timestamp": "{_stamp(moment)}"}}], '
            f'"jobId": "{self.id}", "taskAttempt": 0, "nodeId": "", "workerId": "", "workerPid": 0'
        )
        self._lifecycle(body, self.driver_node, moment)


class _Head:
    """Events that the control plane on the head sends about a job, its workers and its actors."""

    def __init__(self, job: _Job) -> None:
        self.job, self.plan, self.rng, self.files = job, job.plan, job.rng, job.files

    def begin_job(self) -> None:
        config = {
            "serializedRuntimeEnv": json.loads(self.job.environment),
            "metadata": {"job_name": self.job.name, "job_submission_id": f"{self.job.name}-{self.job.number}"},
        }
        definition = {
            "jobId": self.job.id,
            "driverPid": str(1_000 + self.job.number),
            "driverNodeId": self.plan.nodes[self.job.driver_node].id,
            "entrypoint": f"python -m {self.job.module}",
            "config": config,
        }
        self._send("DRIVER_JOB_DEFINITION_EVENT", "driverJobDefinitionEvent", definition, self.job.start, of_job=True)
        self._send_job("CREATED", self.job.start)

    def end_job(self, moment: int) -> None:
        self._send_job("FINISHED", moment)

    def write_nodes(self) -> None:
        for place, node in enumerate(self.plan.nodes):
            moment = self.plan.start + SECOND + place * SECOND // 4
            definition = {
                "nodeId": node.id,
                "nodeIpAddress": node.ip,
                "labels": {"ray.io/node-id": node.hex},
                "startTimestamp": _stamp(moment // 1_000_000 * 1_000_000),
                "hostname": f"bench-{place}",
                "nodeName": node.ip,
                "instanceId": "",
                "instanceTypeName": "",
            }
            self._send("NODE_DEFINITION_EVENT", "nodeDefinitionEvent", definition, moment)
            resources = {"CPU": 64.0, "memory": 68_719_476_736.0, f"node:{node.ip}": 1.0, "object_store_memory": 2e10}
            if place == 0:
                resources["node:__internal_head__"] = 1.0
            alive = {
                "timestamp": _stamp(moment),
                "resources": resources,
                "state": "ALIVE",
                "aliveSubState": "UNSPECIFIED",
            }
            lifecycle = {"nodeId": node.id, "stateTransitions": [alive]}
            self._send("NODE_LIFECYCLE_EVENT", "nodeLifecycleEvent", lifecycle, moment)

    def begin_worker(self, worker: _Worker) -> None:
        moment = self.job.start + int(self.rng.random() * SECOND / 2)
        node = self.plan.nodes[worker.node].id
        definition = {"workerId": worker.id, "nodeId": node, "pid": worker.pid, "workerType": "WORKER"}
        self._send("WORKER_DEFINITION_EVENT", "workerDefinitionEvent", definition, moment)
        milliseconds = moment // 1_000_000
        self._send_worker(
            worker,
            {
                "timestamp": _stamp(moment),
                "workerLaunchTimeMs": str(milliseconds - 530),
                "workerLaunchedTimeMs": str(milliseconds - 40),
                "startTimeMs": str(milliseconds),
                "state": "ALIVE",
                "endTimeMs": "0",
            },
            moment,
        )

    def begin_actor(self, actor: _Actor, moment: int) -> None:
        definition = {
            "actorId": actor.id,
            "jobId": self.job.id,
            "rayNamespace": self.job.name,
            "serializedRuntimeEnv": json.loads(self.job.environment),
            "className": actor.name,
            "requiredResources": {"CPU": 0.1},
            "callSite": json.loads(self.job.call_sites[0]),
            "isDetached": False,
            "name": "",
            "placementGroupId": "",
            "labelSelector": {},
            "parentId": "",
            "refIds": {},
        }
        self._send("ACTOR_DEFINITION_EVENT", "actorDefinitionEvent", definition, moment, of_job=True)
        nowhere = {"nodeId": "", "workerId": "", "reprName": "", "pid": 0, "port": 0, "restartReason": "ACTOR_FAILURE"}
        worker = actor.worker
        placed = {"nodeId": self.plan.nodes[worker.node].id, "workerId": worker.id, "pid": worker.pid, "port": 20_489}
        transitions = [
            {"state": "DEPENDENCIES_UNREADY", "timestamp": _stamp(moment), **nowhere},
            {"state": "PENDING_CREATION", "timestamp": _stamp(moment + 1_100_000), **nowhere},
            {"state": "ALIVE", "timestamp": _stamp(worker.free), **nowhere, **placed},
        ]
        lifecycle = {"actorId": actor.id, "stateTransitions": transitions}
        self._send("ACTOR_LIFECYCLE_EVENT", "actorLifecycleEvent", lifecycle, worker.free)

    def end_actor(self, actor: _Actor, moment: int) -> None:
        message = (
            "The actor is dead because its owner has died. Owner Id: {} Owner worker exit type: INTENDED_USER_EXIT"
        )
        context = {**self.death(actor), "reason": "OWNER_DIED", "errorMessage": message.format(self.job.hex + "f" * 48)}
        transition = {
            "state": "DEAD",
            "timestamp": _stamp(moment),
            "deathCause": {"actorDiedErrorContext": context},
            "nodeId": "",
            "workerId": "",
            "reprName": "",
            "pid": 0,
            "port": 0,
            "restartReason": "ACTOR_FAILURE",
        }
        lifecycle = {"actorId": actor.id, "stateTransitions": [transition]}
        self._send("ACTOR_LIFECYCLE_EVENT", "actorLifecycleEvent", lifecycle, moment)

    def end_worker(self, worker: _Worker, moment: int) -> None:
        self._send_worker(
            worker,
            {
                "state": "DEAD",
                "timestamp": _stamp(moment),
                "endTimeMs": str(moment // 1_000_000),
                "deathInfo": {
                    "exitType": "INTENDED_SYSTEM_EXIT",
                    "exitDetail": "Worker exited because its job has finished",
                },
                "workerLaunchTimeMs": "0",
                "workerLaunchedTimeMs": "0",
                "startTimeMs": "0",
            },
            moment,
        )

    def death(self, actor: _Actor) -> dict[str, object]:
        return {
            "ownerId": _base64(self.job.binary + b"\xff" * 24),
            "ownerIpAddress": self.plan.nodes[self.job.driver_node].ip,
            "nodeIpAddress": self.plan.nodes[actor.worker.node].ip,
            "pid": actor.worker.pid,
            "rayNamespace": self.job.name,
            "className": actor.name,
            "actorId": actor.id,
            "reason": "WORKER_DIED",
            "name": "",
            "neverStarted": False,
        }

    def _send_job(self, state: str, moment: int) -> None:
        body = {"jobId": self.job.id, "stateTransitions": [{"state": state, "timestamp": _stamp(moment)}]}
        self._send("DRIVER_JOB_LIFECYCLE_EVENT", "driverJobLifecycleEvent", body, moment, of_job=True)

    def _send_worker(self, worker: _Worker, transition: Mapping[str, object], moment: int) -> None:
        body = {"workerId": worker.id, "stateTransitions": [transition], "jobId": ""}
        self._send("WORKER_LIFECYCLE_EVENT", "workerLifecycleEvent", body, moment)

    def _send(self, kind: str, payload: str, body: Mapping[str, object], moment: int, *, of_job: bool = False) -> None:
        event = {
            "eventId": _base64(self.rng.randbytes(28)),
            "sourceType": "GCS",
            "eventType": kind,
            "timestamp": _stamp(moment),
            "severity": "INFO",
            "sessionName": self.plan.session,
            payload: body,
            "nodeId": self.plan.nodes[0].id,
            "message": "",
        }
        line = json.dumps(event) + "\n"
        if of_job:
            self.files.add(line, 0, moment)
        else:
            self.files.add_of_cluster(line)


def main(directory: str, tasks: str) -> None:
    before = time.perf_counter()
    generated = generate(Path(directory), tasks=int(tasks))
    print(json.dumps(asdict(generated), indent=1))
    print(f"{time.perf_counter() - before:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
