"""What the collector spends on scraping one endpoint of 4,000 series every 15 seconds, and the size of its blocks."""

from __future__ import annotations

import http.server
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from ray_history.archive.layout import Cluster
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.metrics import MetricsRecorder, Schedule
from ray_history.collector.metrics.dashboards import SessionDashboards
from ray_history.collector.metrics.keep import chosen
from ray_history.collector.metrics.targets import AGENT, Target
from ray_history.collector.node.identity import RayNode

from .pages import Page

SERIES = 4_000
FASTER = 40
"""The recorder lives this many times as fast as with the default intervals."""
INTERVAL, SAVE, BLOCK = 15.0, 60.0, 300.0
BLOCKS = 3


def scraping() -> None:
    """Measure in a process of its own, so that its memory is known."""
    ours, theirs = multiprocessing.Pipe()
    endpoint = multiprocessing.Process(target=_serve, args=[theirs], daemon=True)
    endpoint.start()
    port = ours.recv()
    done = subprocess.run([sys.executable, "-m", __spec__.name, str(port)], capture_output=True, text=True, check=True)
    endpoint.terminate()
    endpoint.join()
    found = json.loads(done.stdout)
    share = found["cpu"] / found["scrapes"] / INTERVAL
    print(f"  {SERIES:,} series, {found['page'] >> 10:,} KiB a scrape, {found['scrapes']} scrapes")
    print(f"    processor time a scrape    {found['cpu'] / found['scrapes'] * 1000:6.1f} ms = {share:.2%} of a core")
    print(f"    memory                     {found['memory'] / 2**20:6.1f} MiB more than before the first scrape")
    print(f"    archive                    {found['bytes'] / found['samples']:6.2f} bytes a sample", flush=True)


def _serve(started: Connection) -> None:
    page = Page(SERIES)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.next()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    started.send(server.server_port)
    server.serve_forever()


def _record(port: int) -> None:
    session = "session_2026-11-18_22-16-13_033386_22923"
    with tempfile.TemporaryDirectory() as folder:
        volume = Path(folder) / "volume"
        store = open_store(DirectorySettings(Path(folder) / "archive"))
        store.check(create=True)
        destination = Destination(store, Cluster("default", "bench"))
        recorder = MetricsRecorder(
            destination,
            LedgerBook(Path(folder) / "ledger.json"),
            volume,
            lambda: [Target(session, "ab" * 28, AGENT, port, f"10.0.12.7:{port}")],
            Schedule(INTERVAL / FASTER, save=SAVE / FASTER, block=BLOCK / FASTER),
            chosen("all"),
            SessionDashboards(destination, RayNode(volume, head=True), {}, is_head=False),
        )
        memory, cpu, begin = _memory(), time.process_time(), time.monotonic()
        peak = memory
        while time.monotonic() - begin < (BLOCKS + 0.2) * BLOCK / FASTER:
            recorder.tick()
            time.sleep(0.1)
            peak = max(peak, _memory())
        cpu = time.process_time() - cpu
        sizes = [path.stat().st_size for path in Path(folder).joinpath("archive").rglob("*.rhm")]
        scrapes = round(BLOCK / INTERVAL) * len(sizes)
        page = len(Page(SERIES).next())
        found = {"scrapes": scrapes, "cpu": cpu, "memory": peak - memory, "page": page}
        print(json.dumps(found | {"bytes": sum(sizes), "samples": scrapes * SERIES}))


def _memory() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    _record(int(sys.argv[1]))
