"""Milliseconds until the first byte of the home page of 2,000 sessions; goal: at most 100 when warm, searches too."""

from __future__ import annotations

import http.client
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.places import s3_bucket
from bench.processes import cpu_seconds
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.ui.fleets import write_fleet
from tests.support.processes import Process, free_port, port_is_open

SESSIONS = 2000
GOAL = 100.0
ROUNDS = 30
QUERIES = {
    "all": "/select_cluster",
    "one word": "/select_cluster?q=fraud",
    "submission id": "/select_cluster?q=submit-01234",
    "error text": "/select_cluster?q=error:refused&failed=1",
    "filters": "/select_cluster?state=ended&namespace=ml-prod&ray=2.60.0&range=7d",
    "by failures": "/select_cluster?sort=failed",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "archive"
        write_fleet(open_store(DirectorySettings(place)), SESSIONS, time.time())
        measure("directory", Path(folder), place.as_uri(), {})
    with s3_bucket() as bucket, tempfile.TemporaryDirectory() as folder:
        write_fleet(open_store(bucket), SESSIONS, time.time())
        credentials = {
            "AWS_ENDPOINT_URL": bucket.endpoint or "",
            "AWS_REGION": bucket.region or "",
            "AWS_ACCESS_KEY_ID": bucket.access_key_id or "",
            "AWS_SECRET_ACCESS_KEY": bucket.secret_access_key or "",
        }
        measure("SeaweedFS", Path(folder), bucket.url, credentials)


def measure(name: str, folder: Path, storage: str, env: dict[str, str]) -> None:
    port = free_port()
    command = [
        *(sys.executable, "-c", "from ray_history.cli import main; main()", "--log-level", "warning", "serve"),
        *("--storage", storage, "--port", str(port), "--cache-dir", str(folder / "cache"), "--index-ahead", "0"),
    ]
    for start in ("first start", "second start"):
        with Process(command, log=folder / "server.log", ready=lambda: port_is_open(port), env=env) as server:
            first, _ = ask(port, QUERIES["all"])
            begin = time.perf_counter()
            while b'data-again="1"' in ask(port, QUERIES["all"])[1]:
                time.sleep(0.05)
            complete = time.perf_counter() - begin
            print(f"{name}, {start}: first page {first:6.1f} ms, complete {complete:.2f} s later", flush=True)
            if start == "second start":
                warm(port, server.pid)


def warm(port: int, pid: int) -> None:
    for what, path in QUERIES.items():
        before = cpu_seconds(pid)
        times = [ask(port, path)[0] for _ in range(ROUNDS)]
        used = (cpu_seconds(pid) - before) / ROUNDS * 1000
        print(
            f"  {what:14} median {statistics.median(times):6.1f} ms, worst {max(times):6.1f} ms (goal {GOAL:.0f} ms), "
            f"{used:5.1f} ms CPU",
            flush=True,
        )


def ask(port: int, path: str) -> tuple[float, bytes]:
    """Milliseconds to the first byte, and the page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        begin = time.perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        response.read(1)
        took = (time.perf_counter() - begin) * 1000
        body = response.read()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body[:200]!r}")
        return took, body
    finally:
        connection.close()
