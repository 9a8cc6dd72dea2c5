"""What a live dashboard answers: every route that the dashboard and the state API use, asked twice."""

from __future__ import annotations

import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

AT_ONCE = 3
SECONDS = 90
"""A pass that takes longer leaves the rest of its URLs out."""

CACHED = ("/nodes", "/logical/actors", "/events")
"""Ray 2.60 has a cache for these that is always one request behind."""
PAUSE = 5
"""Between both passes: what changes in this time has no truth."""

ROWS = ("tasks", "actors", "jobs", "workers", "nodes", "placement_groups")
ALL = "detail=1&limit=10000"
FIXED = (
    f"/api/v0/tasks?{ALL}",
    f"/api/v0/tasks?{ALL}&exclude_driver=false",
    "/api/v0/tasks?limit=10000",
    f"/api/v0/actors?{ALL}",
    "/api/v0/actors?limit=10000",
    f"/api/v0/jobs?{ALL}",
    f"/api/v0/workers?{ALL}",
    f"/api/v0/nodes?{ALL}",
    f"/api/v0/placement_groups?{ALL}",
    f"/api/v0/runtime_envs?{ALL}",
    "/api/v0/tasks/summarize",
    "/api/v0/tasks/summarize?summary_by=lineage",
    "/api/v0/actors/summarize",
    "/api/v0/tasks/timeline",
    "/logical/actors",
    "/nodes?view=summary",
    "/nodes?view=hostNameList",
    "/api/jobs/",
    "/api/cluster_status",
    "/api/cluster_status?format=1",
    "/api/v0/cluster_metadata",
    "/api/serve/applications/",
    "/api/train/v2/runs/v1",
    "/events",
    "/timezone",
    "/api/version",
    "/usage_stats_enabled",
)


@dataclass(frozen=True)
class Answer:
    """One answer, and the file with its body."""

    url: str
    status: int
    content_type: str
    file: str
    asked: float
    answered: float

    @property
    def is_json(self) -> bool:
        return "json" in self.content_type


def record(dashboard: str, folder: Path, seed: int) -> dict[str, list[Answer]]:
    """Ask for everything twice; the answers of both passes, in the same order."""
    recorder = _Recorder(dashboard, folder)
    first = recorder.ask(FIXED, "first")
    urls = list(dict.fromkeys(_urls_of(_Listings(folder, first), random.Random(seed))))
    first += recorder.ask(urls, "first")
    time.sleep(PAUSE)
    # Ids first: the listings, which most depends on, are then the last word.
    last = recorder.ask([answer.url for answer in reversed(first)], "last")
    passes = {"first": first, "last": last}
    index = {name: [asdict(answer) for answer in answers] for name, answers in passes.items()}
    (folder / "INDEX.json").write_text(json.dumps(index, indent=1))
    return passes


def warm_up(dashboard: str, folder: Path) -> None:
    """Ask where the dashboard then starts drivers of its own, which would otherwise appear with the first answers."""
    _Recorder(dashboard, folder).ask(["/api/train/v2/runs/v1", "/api/serve/applications/", "/api/v0/tasks"], "warm-up")


def load(folder: Path) -> dict[str, list[Answer]]:
    index = json.loads((folder / "INDEX.json").read_text())
    return {name: [Answer(**answer) for answer in answers] for name, answers in index.items()}


class _Recorder:
    def __init__(self, dashboard: str, folder: Path) -> None:
        self._dashboard = dashboard
        self._folder = folder
        self._count = 0

    def ask(self, urls: Iterable[str], name: str) -> list[Answer]:
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        numbered = [(f"{name}/{self._count + number:04}", url) for number, url in enumerate(urls)]
        self._count += len(numbered)
        deadline = time.monotonic() + SECONDS
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = threads.map(lambda item: self._ask(item[0], item[1], deadline), numbered)
            return [answer for answer in answers if answer is not None]

    def _ask(self, file: str, url: str, deadline: float) -> Answer | None:
        asked = time.time()
        if time.monotonic() > deadline:
            return None
        try:
            if url.startswith(CACHED):
                urllib.request.urlopen(self._dashboard + url, timeout=40).close()
            with urllib.request.urlopen(self._dashboard + url, timeout=40) as response:
                status, body, kind = response.status, response.read(), response.headers.get("Content-Type", "")
        except urllib.error.HTTPError as error:
            status, body, kind = error.code, error.read(), error.headers.get("Content-Type", "")
        except OSError as error:
            status, body, kind = 0, repr(error).encode(), ""
        (self._folder / file).write_bytes(body)
        return Answer(url, status, kind, file, asked, time.time())


class _Listings:
    """Rows of the listings of the first pass."""

    def __init__(self, folder: Path, answers: Sequence[Answer]) -> None:
        self._bodies = {answer.url: folder / answer.file for answer in answers if answer.status == 200}

    def rows(self, table: str) -> list[dict[str, Any]]:
        file = self._bodies.get(f"/api/v0/{table}?{ALL}")
        if file is None:
            return []
        rows: list[dict[str, Any]] = json.loads(file.read_bytes())["data"]["result"]["result"]
        return rows


def _filtered(table: str, *conditions: tuple[str, str, str]) -> str:
    parameters = [("filter_keys", "filter_predicates", "filter_values"), *conditions]
    pairs = [pair for condition in parameters[1:] for pair in zip(parameters[0], condition, strict=True)]
    return f"/api/v0/{table}?{ALL}&{urlencode(pairs)}"


def _urls_of(listings: _Listings, chance: random.Random) -> Iterator[str]:
    """By-id routes, filters and logs; a sample where there are many."""
    tasks, actors, jobs, nodes = (listings.rows(table) for table in ("tasks", "actors", "jobs", "nodes"))

    def some(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
        return chance.sample(rows, min(number, len(rows)))

    yield from _of_nodes(nodes, listings.rows("workers"), some)
    yield from _of_jobs(jobs)
    for state in ("FAILED", "FINISHED", "RUNNING"):
        yield _filtered("tasks", ("state", "=", state))
    yield _filtered("tasks", ("state", "!=", "FINISHED"), ("type", "=", "ACTOR_TASK"))
    for state in ("ALIVE", "DEAD"):
        yield _filtered("actors", ("state", "=", state))
    for row in some(tasks, 4):
        yield _filtered("tasks", ("name", "=", row["name"]))
        yield _filtered("tasks", ("task_id", "=", row["task_id"]))
        yield _filtered("tasks", ("func_or_class_name", "=", row["func_or_class_name"]))
    for row in some([row for row in tasks if row.get("task_log_info")], 8):
        of_task = f"/api/v0/logs/file?task_id={row['task_id']}&attempt_number={row['attempt_number']}"
        yield f"{of_task}&suffix=out&lines=50000&filter_ansi_code=true"
        yield f"{of_task}&suffix=err&lines=100"
    for row in some([row for row in actors if row["node_id"]], 6):
        yield f"/logical/actors/{row['actor_id']}"
        yield f"/api/v0/logs/file?actor_id={row['actor_id']}&suffix=out&lines=1000&filter_ansi_code=true"


def _of_jobs(jobs: list[dict[str, Any]]) -> Iterator[str]:
    for job in jobs:
        if job["submission_id"]:
            identity = quote(job["submission_id"], safe="")
            yield f"/api/jobs/{identity}"
            yield f"/api/jobs/{identity}/logs"
            yield f"/api/v0/logs/file?submission_id={identity}&lines=100"
        if job["job_id"]:
            yield f"/api/jobs/{job['job_id']}"
            yield _filtered("tasks", ("job_id", "=", job["job_id"]))
            of_job = f"/api/v0/tasks/summarize?filter_keys=job_id&filter_predicates=%3D&filter_values={job['job_id']}"
            yield of_job
            yield f"{of_job}&summary_by=lineage"
            yield f"/api/v0/tasks/timeline?download=1&job_id={job['job_id']}"
            yield f"/events?job_id={job['job_id']}"


def _of_nodes(nodes: list[dict[str, Any]], workers: list[dict[str, Any]], some: Any) -> Iterator[str]:
    for node in nodes:
        identity = node["node_id"]
        yield f"/nodes/{identity}"
        if node["state"] != "ALIVE":
            continue
        yield f"/api/v0/logs?node_id={identity}"
        yield f"/api/v0/logs?node_id={identity}&glob=worker*"
        yield f"/api/v0/logs?node_id={identity}&glob=events/*"
        for name in ("raylet.out", "raylet.err", "log_monitor.err", "gcs_server.out", "dashboard_agent.log"):
            if node["is_head_node"] or not name.startswith("gcs"):
                yield f"/api/v0/logs/file?node_id={identity}&filename={name}&lines=-1"
        of_node = [row for row in workers if row["node_id"] == identity and row["worker_type"] == "WORKER"]
        for worker in some(of_node, 4):
            file = f"/api/v0/logs/file?node_id={identity}&pid={worker['pid']}"
            yield f"{file}&suffix=out&lines=1000"
            yield f"{file}&suffix=err&lines=100"
