"""The throughput of a collector: events acknowledged after a sync, on one core and on a fifth of one, and log uploads.

Goals: >= 20,000 events/s on one core, p99 <= 100 ms, <= 90 MiB under load, >= 3,000 events/s at 0.2 CPU. The baseline
is a server that parses each batch and appends its lines to a file, without a sync.
"""

from __future__ import annotations

import http.client
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.event_files import generate
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.logs.shipper import LogShipper
from tests.support.processes import Process, free_port, port_is_open

BATCH = 1000
SECONDS = 8.0
SENDERS = 4
MARK = b"0000000000000000"
SESSION = "session_2026-01-01_00-00-00_000001_1"
JSON = {"Content-Type": "application/json"}

BASELINE = """
import json, sys
from aiohttp import web
out = open(sys.argv[2], "a")
async def take(request):
    for event in json.loads(await request.read()):
        out.write(json.dumps(event) + "\\n")
    out.flush()
    return web.Response()
app = web.Application(client_max_size=2**28)
app.router.add_post("/v1/events", take)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@dataclass
class Load:
    """Results of all senders."""

    events: int = 0
    bytes: int = 0
    failed: int = 0
    latencies: list[float] = field(default_factory=list)
    peak_rss: float = 0.0
    seconds: float = 0.0


def batch_body() -> bytes:
    """A batch as Ray sends it. The mark makes each one different, so that none counts as a duplicate."""
    lines = generate(4 * BATCH * 1000)[:BATCH]
    return (
        b'[{"eventId":"' + MARK + b'","sessionName":"session_2026-01-01_00-00-00_000001_1"},' + b",".join(lines) + b"]"
    )


def rss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def send(port: int, body: bytes, pid: int, seconds: float, senders: int = SENDERS) -> Load:
    """Post batches over several connections for some seconds."""
    load, lock, deadline = Load(), threading.Lock(), time.perf_counter() + seconds
    at = body.index(MARK)

    def sender(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for count in range(10**9):
            if time.perf_counter() >= deadline:
                break
            mark = f"{number:04d}{count:012d}".encode()
            before = time.perf_counter()
            connection.request("POST", "/v1/events", body[:at] + mark + body[at + len(mark) :], JSON)
            answer = connection.getresponse()
            answer.read()
            took = time.perf_counter() - before
            with lock:
                if answer.status == 200:
                    load.events += BATCH + 1
                    load.bytes += len(body)
                    load.latencies.append(took)
                else:
                    load.failed += 1
                    time.sleep(0.01)
        connection.close()

    began = time.perf_counter()
    threads = [threading.Thread(target=sender, args=(number,)) for number in range(senders)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        load.peak_rss = max(load.peak_rss, rss(pid))
        time.sleep(0.05)
    load.seconds = time.perf_counter() - began
    return load


def show(name: str, load: Load, note: str = "") -> None:
    cuts = statistics.quantiles(load.latencies, n=100) if len(load.latencies) > 1 else [0.0] * 99
    print(
        f"{name:26} {load.events / load.seconds:8.0f} events/s {load.bytes / load.seconds / 1e6:6.1f} MB/s  "
        f"ack p50 {cuts[49] * 1000:5.1f} ms p99 {cuts[98] * 1000:6.1f} ms  peak RSS {load.peak_rss:4.0f} MiB"
        f"{f'  refused {load.failed}' if load.failed else ''}  {note}",
        flush=True,
    )


@contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[int]:
    with Process(command, log=folder / "process.log", ready=lambda: port_is_open(port)) as process:
        os.sched_setaffinity(process.pid, {0})
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {0})
        yield process.pid


def collector_command(port: int, folder: Path) -> list[str]:
    return [
        str(Path(sys.executable).with_name("ray-history")),
        "collect",
        f"--storage={(folder / 'archive').as_uri()}",
        "--cluster=bench",
        f"--events-port={port}",
        f"--event-data-dir={folder / 'data'}",
        f"--ray-tmp-root={folder}",
        "--enable-log-collector=false",
        "--push-interval=1s",
    ]


@contextmanager
def a_fifth_of_a_core(pid: int) -> Iterator[None]:
    """Let the process run 20 ms of every 100 ms, as a CPU limit of 200m does, without a cgroup."""
    over = threading.Event()

    def throttle() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.08)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


def in_folder(work: Callable[[Path, int], None]) -> None:
    with tempfile.TemporaryDirectory() as name:
        work(Path(name), free_port())


def measure_events() -> None:
    body = batch_body()
    print(f"batches of {BATCH + 1} events, {len(body) / 1e6:.2f} MB, {SENDERS} senders, collector on one core")

    def baseline(folder: Path, port: int) -> None:
        script = folder / "baseline.py"
        script.write_text(BASELINE)
        command = [sys.executable, str(script), str(port), str(folder / "out")]
        with running(command, port, folder) as pid:
            show("baseline, no sync", send(port, body, pid, SECONDS))

    def collector(folder: Path, port: int) -> None:
        with running(collector_command(port, folder), port, folder) as pid:
            time.sleep(1)
            idle = rss(pid)
            show("collector, synced", send(port, body, pid, SECONDS), f"idle {idle:.0f} MiB")

    def like_ray(folder: Path, port: int) -> None:
        with running(collector_command(port, folder), port, folder) as pid:
            show("collector, one sender", send(port, body, pid, SECONDS / 2, senders=1))

    def throttled(folder: Path, port: int) -> None:
        with running(collector_command(port, folder), port, folder) as pid, a_fifth_of_a_core(pid):
            show("collector at 0.2 CPU", send(port, body, pid, SECONDS, senders=1))

    for work in (baseline, collector, like_ray, throttled):
        in_folder(work)


def measure_logs() -> None:
    """200 MB of log lines in 200 files, written and uploaded in ten rounds; then the final upload."""

    def work(folder: Path, _: int) -> None:
        logs = folder / "logs"
        logs.mkdir()
        store = open_store(DirectorySettings(folder / "archive"))
        store.check(create=True)
        destination = Destination(store, Cluster("bench", "logs"))
        shipper = LogShipper(
            destination, "session_2026-01-01_00-00-00_000001_1", "ab" * 28, logs, folder / "state.json"
        )
        wall, cpu = 0.0, 0.0
        for turn in range(10):
            for number in range(200):
                with (logs / f"worker-{number:04d}.out").open("ab") as file:
                    lines = (
                        f"2026-11-16 02:{turn:02d}:{row % 60:02d},{row % 1000:03d} INFO step {row} loss={row / 7:.4f}\n"
                        for row in range(number, number + 1700)
                    )
                    file.write("".join(lines).encode())
            before, before_cpu = time.perf_counter(), time.process_time()
            shipper.scan()
            shipper.ship_tails()
            wall, cpu = wall + time.perf_counter() - before, cpu + time.process_time() - before_cpu
        written = sum(path.stat().st_size for path in logs.iterdir())
        print(f"tails: {written / 1e6:.0f} MB in 200 files, {written / wall / 1e6:.0f} MB/s, {cpu:.2f} CPU s")
        before = time.perf_counter()
        shipper.finish(time.monotonic() + 120, final=True)
        counted = shipper.counters
        print(
            f"end:   whole files in {time.perf_counter() - before:.2f} s; uploaded "
            f"{counted.bytes_uploaded / written:.2f}x of the bytes written (goal 2.2x)"
        )
        before_cpu = time.process_time()
        for _ in range(10):
            shipper.scan()
        print(f"scan:  {(time.process_time() - before_cpu) * 100:.2f} ms CPU for 200 unchanged files")

    in_folder(work)


def main() -> None:
    measure_events()
    measure_logs()
