"""The server under fire: one tenant's hostile sessions are built, and 8 clients list 10,000 tasks each, over and over.

Goals, on two idle cores: one task p99 <= 150 ms, `/livez` p99 <= 50 ms, the home page p99 <= 300 ms;
the memory of all processes together at most the sum of their limits and a tenth.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec

from bench.generated import generate
from bench.processes import Watch, family
from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.build.usage import memory_of
from tests.support.processes import Process, free_port, port_is_open

PLACE = Path(".parts/bench/fire")
SECONDS = float(os.environ.get("SECONDS", "40"))
STARTING = 5.0
"""Seconds in which the clients start: they run on the same two cores, which is not the server's doing."""
CLIENTS, TASKS = 8, 20_000
QUERY_MEMORY, BUILD_MEMORY = 512, 1024
"""The defaults, in MiB."""
LIMITS = {
    "the server itself": 256,
    "queries of the open session": QUERY_MEMORY,
    "build process": BUILD_MEMORY + 512,
    "build process of small sessions": 512,
    "idle build process": 80,
}
"""MiB."""
HOSTILE = 200
"""Hostile sessions: more than can be built meanwhile."""
MINE = "/s/mine/bench/latest"
POLLED = ("actors", "nodes", "workers", "placement_groups")


def main() -> None:
    archive = _archive()
    port = free_port()
    cache = PLACE / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    command = [
        *(sys.executable, "-c", "from ray_history.cli import main; main()", "--log-level", "error", "serve"),
        *("--storage", archive.absolute().as_uri(), "--port", str(port), "--cache-dir", str(cache), "--prebuild", "0"),
        *("--query-memory", str(QUERY_MEMORY), "--build-memory", str(BUILD_MEMORY), "--no-share-index"),
    ]
    with Process(command, log=PLACE / "server.log", ready=lambda: port_is_open(port)) as server:
        probes = _probes(port)
        print("  alone")
        _measure(port, probes, SECONDS / 4)
        with Watch(lambda: _memory(server.pid), 0.05) as watch:
            begin = time.time() + STARTING
            command = [sys.executable, "-m", __spec__.name, str(port), str(begin), str(SECONDS)]
            clients = [subprocess.Popen(command) for _ in range(CLIENTS)]
            time.sleep(begin - time.time())
            attacker = threading.Thread(target=_attack, args=[port, time.monotonic() + SECONDS])
            attacker.start()
            print(f"  with {CLIENTS} clients that list 10,000 tasks, and hostile sessions being built")
            _measure(port, probes, SECONDS)
            for client in clients:
                client.wait()
            attacker.join()
        peak = max((each for _, each in watch.seen), key=sum)
        print(f"  peak memory {sum(peak)} MiB of {sum(LIMITS.values())} MiB, the sum of {', '.join(LIMITS)}")
        print(f"    {len(peak)} processes: {peak} MiB")


def _archive() -> Path:
    archive = PLACE / "archive"
    generate(PLACE / "mine", tasks=TASKS, cluster=Cluster("mine", "bench"))
    if not archive.exists():
        shutil.copytree(PLACE / "mine", archive, ignore=shutil.ignore_patterns("generated.json", "history-index"))
        store = open_store(DirectorySettings(archive))
        sizes = (46 << 20, 12 << 20, 5 << 20, 1 << 20)
        for size in sizes:
            (PLACE / str(size)).write_bytes(
                b'{"data":{"result":{"result":[' + b",".join([b"{}"] * (size // 3)) + b"]}}}"
            )
        for number in range(HOSTILE):
            cluster, name = Cluster("bad", f"hostile{number}"), "session_2026-01-01_00-00-00_000000_1"
            store.put(layout.marker_key("", cluster, name), b"")
            folder = archive / layout.session_prefix("", cluster, name) / "fetched_endpoints"
            folder.mkdir(parents=True)
            for kind in POLLED:
                target = folder / f"restful__api__v0__{kind}?detail=1&limit=10000"
                os.link(PLACE / str(sizes[number % len(sizes)]), target)
    return archive


def _get(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()


def _probes(port: int) -> dict[str, Iterator[str]]:
    """The addresses to ask for, none of which is in a cache."""
    listed = msgspec.json.decode(_get(port, f"{MINE}/api/v0/tasks?limit=1000")[1])
    tasks = [row["task_id"] for row in listed["data"]["result"]["result"]]
    filters = "detail=1&filter_keys=task_id&filter_predicates=%3D&filter_values="
    return {
        "one task": (f"{MINE}/api/v0/tasks?{filters}{tasks[n % len(tasks)]}&n={n}" for n in count()),
        "/livez": ("/livez" for _ in count()),
        "home page": (f"/?n={n}" for n in count()),
    }


def _measure(port: int, probes: dict[str, Iterator[str]], seconds: float) -> None:
    until = time.monotonic() + seconds
    took: dict[str, list[float]] = {name: [] for name in probes}
    statuses = Counter[int]()

    def ask(name: str, paths: Iterator[str]) -> None:
        while time.monotonic() < until:
            begin = time.perf_counter()
            status, _ = _get(port, next(paths), Accept="text/html" if name == "home page" else "*/*")
            took[name].append(time.perf_counter() - begin)
            statuses[status] += 1
            time.sleep(0.05)

    threads = [threading.Thread(target=ask, args=probe) for probe in probes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, times in took.items():
        times.sort()
        p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
        print(f"    {name:<12} p50 {p50:6.0f} ms, p99 {p99:6.0f} ms  ({len(times)} times)", flush=True)
    if statuses.keys() != {200}:
        print(f"    statuses: {dict(statuses)}")


def _attack(port: int, until: float) -> None:
    """Open one hostile session after the other."""
    statuses = Counter[int]()
    begin = time.monotonic()
    for number in range(HOSTILE):
        if time.monotonic() > until:
            break
        statuses[_get(port, f"/s/bad/hostile{number}/latest/api/v0/nodes")[0]] += 1
    print(f"    hostile sessions: {dict(statuses)} in {time.monotonic() - begin:.0f} s", flush=True)


def _list(port: int, begin: float, seconds: float) -> None:
    """A client that lists tasks from a moment on."""
    time.sleep(max(begin - time.time(), 0))
    until, lists, statuses = time.monotonic() + seconds, 0, Counter[int]()
    while time.monotonic() < until:
        status, body = _get(port, f"{MINE}/api/v0/tasks?detail=1&limit=10000&n={os.getpid()}-{lists}")
        statuses[status] += 1
        lists += body.count(b'"task_id"') >= TASKS // 2
    if os.getpid() % CLIENTS == 0 or statuses.keys() != {200}:
        print(f"    a client got {lists} lists, statuses {dict(statuses)}", flush=True)


def _memory(pid: int) -> list[int]:
    """MiB of a process and its descendants."""
    return sorted(memory_of(each) >> 20 for each in family(pid))


if __name__ == "__main__":
    _list(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
