"""A collector that is killed at any moment loses no more metrics than the open block had since it was last saved."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.metrics.block import read_block
from tests.metrics.test_block import content
from tests.support.processes import Process, free_port, port_is_open
from tests.support.waiting import until

SESSION, NODE = "session_2026-11-15_20-00-00_000000_1", "a" * 56
SERIES = "ray_scrapes"
FAST = """
import sys
from ray_history.cli.main import main
from ray_history.collector.metrics import Schedule
Schedule.__init__.__defaults__ = (0.4, 1.5)  # seconds between saves, and of a block
sys.argv[0] = "ray-history"
main()
"""
SAVED_EVERY = 8
"""Scrapes, at 0.05 s and 0.4 s."""


@contextmanager
def counting_endpoint() -> Iterator[tuple[int, list[int]]]:
    """A stand-in for Ray's agent that shows how often it has been scraped; its port, and what it showed."""
    shown: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = len(shown)
            if self.headers["Accept"] != "*/*":  # not when the collector looks how many events were dropped
                shown.append(number)
            body = f"{SERIES} {number}\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], shown
        finally:
            server.shutdown()
            thread.join()


def test_a_killed_collector_loses_only_the_unsaved_scrapes(tmp_path: Path) -> None:
    chance = random.Random(22)
    session = tmp_path / "ray" / SESSION
    (session / "logs").mkdir(parents=True)
    (tmp_path / "ray" / "session_latest").symlink_to(session)
    port = free_port()
    archive = tmp_path / "archive"
    options = [
        f"--storage={archive.as_uri()}",
        "--cluster=demo",
        f"--events-port={port}",
        f"--event-data-dir={tmp_path / 'data'}",
        f"--ray-tmp-root={tmp_path / 'ray'}",
        f"--node-id={NODE}",
        "--metrics-interval=50ms",
        "--shutdown-grace=4s",
    ]
    collector = Process(
        [sys.executable, "-c", FAST, "collect", *options],
        log=tmp_path / "collector.log",
        ready=lambda: port_is_open(port),
    )
    ends = []
    with counting_endpoint() as (agent, shown):
        (session / f"metrics_export_port_{NODE}").write_text(str(agent))
        try:
            for _ in range(4):
                collector.start()
                enough = len(shown) + 2 * SAVED_EVERY
                until(lambda enough=enough: len(shown) > enough, collector.log_tail(20))
                time.sleep(chance.uniform(0, 1))  # so that the kill comes at any moment of a block
                collector.kill9()
                ends.append(len(shown))
            collector.start()
            until(lambda: len(shown) > ends[-1] + 2, collector.log_tail(20))
        finally:
            collector.stop()

    store = open_store(DirectorySettings(archive))
    blocks = [read_block(store.get(info.key)) for info in store.list("history-metrics")]
    stored = sorted(int(value) for block in blocks for value in content(block).get(SERIES, []) if value is not None)
    assert len(stored) == len(set(stored)), "nothing is stored twice"
    missing = set(shown) - set(stored)
    for begin, end in zip([0, *ends], [*ends, len(shown)], strict=True):
        lost = [number for number in range(begin, end) if number in missing]
        assert lost == list(range(end - len(lost), end)), "only the last scrapes before a kill may be lost"
        assert len(lost) <= 2 * SAVED_EVERY
