"""Fleets of generated sessions: markers, ledgers and summaries as the collector and the indexer write them, but no
events."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store
from ray_history.history.facts import Facts
from ray_history.index.summary import VERSION, Accounts, Failure, Job, Summary

DAY = 86400.0
ERRORS = (
    ("OUT_OF_MEMORY", "score_batch", "Task was killed due to the node running low on memory."),
    ("TASK_EXECUTION_EXCEPTION", "fetch_features", "ConnectionError: refused"),
    ("WORKER_DIED", "shuffle", "RpcError: RPC error: Socket closed rpc_code: 14"),
)
PROGRAMS = (
    ("etl-hourly", "data", "rayjob", "python mapred.py --hour {n}"),
    ("fraud-train", "ml-prod", "rayjob", "python train.py --epochs 40 --seed {n}"),
    ("llm-serve", "ml-prod", "rayservice", "serve run llm_app:ingress --name chat-{n}"),
    ("notebook", "sandbox", "", "python cell_{n}.py"),
    ("nightly-smoke", "ci", "rayjob", "pytest -q tests/gpu --shard {n}"),
)


@dataclass(frozen=True)
class Made:
    """One session of the fleet, with the facts that a list must show."""

    cluster: Cluster
    session: str
    started: float
    state: str
    entrypoint: str
    submission_id: str
    failed: int
    error: str
    ray: str


def session_name(started: float, number: int) -> str:
    return f"session_{datetime.fromtimestamp(started, UTC):%Y-%m-%d_%H-%M-%S}_{number:06d}_1"


def write_fleet(store: Store, sessions: int, now: float, *, summarized: bool = True, seed: int = 7) -> list[Made]:
    """Write sessions of the last month, the newest first: four are live, every fiftieth is lost."""
    draw = random.Random(seed)
    made = [_make(draw, number, sessions, now) for number in range(sessions)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: write_made(store, one, now, summarized=summarized), made))
    return made


def _make(draw: random.Random, number: int, sessions: int, now: float) -> Made:
    name, namespace, kind, program = PROGRAMS[number % len(PROGRAMS)]
    started = float(int(now - 30 * DAY * number / sessions - 60))
    state = "live" if number < 4 else "lost" if number % 50 == 9 else "ended"
    error = ERRORS[number // 6 % 3] if number % 6 == 5 else None
    return Made(
        Cluster(namespace, f"{name}-{number:05d}", kind, name if kind else ""),
        session_name(started, number),
        started,
        state,
        program.format(n=number),
        f"submit-{number:05d}",
        draw.randint(1, 400) if error else 0,
        error[2] if error else "",
        ("2.60.0", "2.58.1", "2.56.0")[number % 3],
    )


def summary_of(one: Made, now: float, *, entrypoint: str = "", error: str = "") -> Summary:
    """The summary that its index would have."""
    begin, end = one.started, now if one.state == "live" else min(one.started + 60 + hash_of(one) % 9000, now)
    status = "RUNNING" if one.state in ("live", "lost") else "FAILED" if one.failed else "SUCCEEDED"
    graceful = one.state == "ended"
    tasks = {"FINISHED": 1000 + hash_of(one) % 100_000, "FAILED": one.failed, "RUNNING": 0 if graceful else 12}
    failures = [Failure("TASK_EXECUTION_EXCEPTION", "work", error or one.error, one.failed)] if one.failed else []
    job = Job(
        "01000000",
        one.submission_id,
        entrypoint or one.entrypoint,
        status,
        "",
        int(begin * 1000),
        int(end * 1000) if graceful else None,
    )
    return Summary(
        version=VERSION,
        index="0" * 32,
        event_files=9,
        newest_file=end,
        facts=Facts(
            ray_version=one.ray,
            start_ns=int(begin * 1e9),
            last_ns=int(end * 1e9),
            ended="graceful" if graceful else "lost",
            alive_until=end + 60 if one.state == "live" else end,
            events_received=5000,
            events_stored=5000,
            nodes=1 + hash_of(one) % 16,
            cpus=8.0 * (1 + hash_of(one) % 16),
            gpus=float(hash_of(one) % 3),
        ),
        tasks={state: number for state, number in tasks.items() if number},
        jobs_by_status={status: 1},
        jobs=[job],
        failures=failures,
        accounts=Accounts(2, 0 if graceful else 2, graceful, 0),
        problem_count=0,
        problem="",
    )


def hash_of(one: Made) -> int:
    """A hash that is the same in every process."""
    return int(one.submission_id.rpartition("-")[2]) * 7919 % 100_003


def write_made(store: Store, one: Made, now: float, *, summarized: bool) -> None:
    store.put(layout.marker_key("", one.cluster, one.session), b"")
    alive_until = now + 600 if one.state == "live" else one.started + 600
    for role in ("head", "worker"):
        ledger = {
            "role": role,
            "started": one.started,
            "written": now if one.state == "live" else one.started + 540,
            "alive_until": alive_until if one.state != "lost" else min(alive_until, now - 3600),
            "ended": "graceful" if one.state == "ended" else None,
            "events": {"received": 2500, "stored": 2500, "dropped_by_ray": 0},
        }
        store.put(layout.ledger_key("", one.cluster, one.session, f"{role}-1"), msgspec.json.encode(ledger))
    if summarized:
        store.put(layout.summary_key(one.cluster, one.session), msgspec.json.encode(summary_of(one, now)))


if __name__ == "__main__":
    import sys
    import time
    from pathlib import Path

    from ray_history.archive.stores import open_store
    from ray_history.archive.stores.directory import DirectorySettings

    write_fleet(open_store(DirectorySettings(Path(sys.argv[1]))), int(sys.argv[2]), time.time())
