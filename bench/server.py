"""The server under load: 64 clients on 20 sessions, one of them with a million tasks.

Goals: no errors; with one client on a million tasks, over HTTP and without the response cache,
`tasks?detail=1&limit=10000` <= 150 ms, summary and one task <= 25 ms; 16 such lists at once without failure.
"""

from __future__ import annotations

import http.client
import os
import random
import shutil
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from bench.generated import generate
from ray_history.archive.layout import Cluster
from tests.support.processes import Process, free_port, port_is_open

PLACE = Path(".parts/bench")
CLIENTS = 64
SECONDS = 20.0
LARGE = "/s/default/bench/latest"
_STORED = 1_767_250_000
"""Modification time of the files: in the past, because answers about a session that may still run are not cached."""


def main() -> None:
    archive = _fleet()
    port = free_port()
    command = [
        *(sys.executable, "-c", "from ray_history.cli import main; main()", "--log-level", "warning", "serve"),
        *("--storage", archive.absolute().as_uri(), "--port", str(port), "--cache-dir", str(PLACE / "fleet-cache")),
    ]
    with Process(command, log=PLACE / "server.log", ready=lambda: port_is_open(port)) as server:
        begin = time.perf_counter()
        _get(port, f"{LARGE}/api/v0/nodes")
        print(f"  first answer of 1M tasks {time.perf_counter() - begin:7.2f} s")
        begin = time.perf_counter()
        for number in range(19):
            _get(port, f"/s/default/small{number}/latest/api/v0/nodes")
        print(f"  19 sessions of 2k tasks  {time.perf_counter() - begin:7.2f} s for the first answers")
        _alone(port)
        _together(port, server.pid)


def _fleet() -> Path:
    """Twenty sessions in one archive; the files of the large one are hard links to those of `bench.history`."""
    large = PLACE / "1000000" / "archive"
    generate(large, tasks=1_000_000)
    archive = PLACE / "fleet"
    unneeded = shutil.ignore_patterns("generated.json", "history-index")
    if not archive.exists():
        for number in range(19):
            generate(
                PLACE / "small" / str(number), tasks=2_000, seed=number, cluster=Cluster("default", f"small{number}")
            )
            shutil.copytree(PLACE / "small" / str(number), archive, ignore=unneeded, dirs_exist_ok=True)
        shutil.copytree(large, archive, ignore=unneeded, copy_function=os.link, dirs_exist_ok=True)
        for file in archive.rglob("*.gz"):
            os.utime(file, (_STORED, _STORED))
    return archive


@contextmanager
def _response(port: int, path: str, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {response.read(200)!r}")
        yield response


def _get(port: int, path: str) -> bytes:
    with _response(port, path, {}) as response:
        return response.read()


def _length(port: int, path: str, headers: Mapping[str, str]) -> int:
    """Bytes of the answer, read into one buffer: the client should not be what is measured."""
    buffer, length = bytearray(1 << 18), 0
    with _response(port, path, headers) as response:
        while read := response.readinto(buffer):
            length += read
    return length


def _paths(port: int) -> dict[str, str]:
    one = msgspec.json.decode(_get(port, f"{LARGE}/api/v0/tasks?limit=1&offset=5000"))
    task = one["data"]["result"]["result"][0]["task_id"]
    filters = f"filter_keys=task_id&filter_predicates=%3D&filter_values={task}"
    return {
        "10,000 tasks with detail": f"{LARGE}/api/v0/tasks?detail=1&limit=10000",
        "summary by function": f"{LARGE}/api/v0/tasks/summarize",
        "one task by id": f"{LARGE}/api/v0/tasks?detail=1&limit=1&{filters}",
        "page of 100 tasks": f"{LARGE}/api/v0/tasks",
        "actors": f"{LARGE}/logical/actors",
        "nodes": f"{LARGE}/nodes?view=summary",
        "jobs": f"{LARGE}/api/jobs/",
    }


def _alone(port: int) -> None:
    for name, path in _paths(port).items():
        _print(name, port, path)
        if name.startswith("10,000"):
            _print("  the same, compressed", port, path, {"Accept-Encoding": "gzip"})
            begin = time.perf_counter()
            with ThreadPoolExecutor(16) as threads:
                list(threads.map(lambda number, path=path: _get(port, f"{path}&n=together{number}"), range(16)))
            print(f"  16 such lists at once    {time.perf_counter() - begin:7.2f} s, none failed")


def _print(name: str, port: int, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
    """The median of requests that differ in a meaningless parameter, so that none is answered from the cache."""
    times = []
    for number in range(9):
        begin = time.perf_counter()
        size = _length(port, f"{path}{'&' if '?' in path else '?'}n={number}", headers)
        times.append(time.perf_counter() - begin)
    print(f"  {name:<25}{statistics.median(times) * 1000:7.0f} ms  {size / 1e6:6.2f} MB")


def _together(port: int, pid: int) -> None:
    small = [f"/s/default/small{number}/latest" for number in range(19)]
    routes = [
        *("/api/v0/tasks?limit=100", "/api/v0/tasks/summarize", "/nodes?view=summary", "/api/jobs/", "/logical/actors")
    ]
    large = list(_paths(port).values())
    took: dict[str, list[float]] = defaultdict(list)
    errors: list[str] = []
    until = time.monotonic() + SECONDS
    peak = [0]

    def client(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < until:
            path = chance.choice(large) if chance.random() < 0.3 else chance.choice(small) + chance.choice(routes)
            begin = time.perf_counter()
            try:
                _get(port, path)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                errors.append(str(error))
            took["large" if path in large else "small"].append(time.perf_counter() - begin)

    def watch() -> None:
        while time.monotonic() < until:
            peak[0] = max(peak[0], int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20)
            time.sleep(0.1)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(map(len, took.values()))
    summary = f"{len(errors)} errors, peak {peak[0]} MiB"
    print(f"  {CLIENTS} clients, 20 sessions   {total / SECONDS:7.0f} requests/s, {summary}")
    for kind, times in sorted(took.items()):
        times.sort()
        print(f"    {kind} sessions: median {times[len(times) // 2]:.2f} s, p99 {times[int(len(times) * 0.99)]:.2f} s")
    for error in errors[:3]:
        print(f"    {error}")
