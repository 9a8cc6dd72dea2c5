"""What a collector stores after SIGTERM, from a store of 50 MB/s and one of 0.6 MB/s, with a grace period of 25 s.

Twenty log files get a line every 100 ms until the signal. None of these lines may be missing, and the ledger must name
exactly what could not be stored. The store is a real S3 server behind a link that all requests share.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.collector import JSON
from ray_history.archive.catalog import read_catalog
from ray_history.archive.ledger import Ledger, decode
from ray_history.archive.session_files import events_of, list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from tests.collector.collector_process import SESSION, CollectorProcess, event
from tests.conftest import s3_variables
from tests.support.fault_proxy import FaultProxy
from tests.support.seaweedfs import SeaweedFS
from tests.support.waiting import until

SPEEDS = (50e6, 0.6e6)
GRACE = 25.0
NODE = "ab" * 28
FILES, INTERVAL = 20, 0.1
EVENTS, BATCH = 4000, 100
"""Of 8 KB each, which compress to half."""
HUGE = 100 << 30
HUGE_NAME = "huge.log"


@dataclass(frozen=True)
class Backlog:
    """What waits for the store when the signal arrives."""

    name: str
    has_events: bool = False
    has_log: bool = False


BACKLOGS = (
    Backlog("none"),
    Backlog("32 MB of events", has_events=True),
    Backlog("100 GiB log file", has_log=True),
    Backlog("both", has_events=True, has_log=True),
)


def main() -> None:
    columns = f"{'backlog':16} {'used':>6}  {'last lines':10}  {'events left':>11}  {'log bytes left':>16}  named"
    print(f"grace {GRACE:g} s\n{'store':>9}  {columns}")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        s3 = SeaweedFS(Path(place) / "s3")
        s3.start()
        stack.callback(s3.stop)
        proxy = stack.enter_context(FaultProxy(s3.endpoint))
        for number, (speed, backlog) in enumerate(product(SPEEDS, BACKLOGS)):
            _measure(s3, proxy, speed, backlog, Path(place) / str(number))


def _measure(s3: SeaweedFS, proxy: FaultProxy, speed: float, backlog: Backlog, folder: Path) -> None:
    logs, storage, variables = _session(folder), f"s3://bench-grace/{folder.name}", s3_variables(s3)
    flags = (
        f"--ray-tmp-root={folder / 'ray'}",
        f"--node-id={NODE}",
        f"--shutdown-grace={GRACE:g}s",
        "--push-interval=10s",
    )
    proxy.pass_through()
    with CollectorProcess(folder / "c", storage, *flags, env={**variables, "S3_ENDPOINT": proxy.url}) as collector:
        until(lambda: collector.get("/v1/status")["store"]["ever_reached"])
        proxy.refuse()
        sent = _post(collector.port) if backlog.has_events else set[str]()
        if backlog.has_log:
            (logs / HUGE_NAME).touch()
            os.truncate(logs / HUGE_NAME, HUGE)
        proxy.slow(speed, together=True)
        with _Writer(logs) as writer:
            time.sleep(2)
        began = time.monotonic()
        collector.end()
        used = time.monotonic() - began
    proxy.pass_through()
    store = open_store(resolve(storage, Upstream(), variables))
    _show(store, speed, backlog, used, sent, writer.lines)


def _show(store: Store, speed: float, backlog: Backlog, used: float, sent: set[str], lines: int) -> None:
    (entry,) = read_catalog(store).sessions
    files = list_session(store, entry)
    events = {json.loads(raw)["eventId"] for raw in events_of(store, files, [])}
    logs = files.logs(store)
    found = {file.name: file for file in logs.list(NODE)}
    kept = sum(
        b"".join(logs.open(found[_name(n)]).stream()).count(b"\n") == lines for n in range(FILES) if _name(n) in found
    )
    huge_left = HUGE - found[HUGE_NAME].size if HUGE_NAME in found else HUGE * backlog.has_log
    events_left, ledger = len(sent - events), _ledger(store)
    named = (
        ledger.events.unsent_batches * BATCH == events_left
        and ledger.logs.bytes_unsent == huge_left
        and bool(ledger.events.unsent_segments) == bool(events_left)
    )
    print(
        f"{speed / 1e6:4.1f} MB/s  {backlog.name:16} {used:5.1f}s  {kept:4} of {FILES}  {events_left:11}  "
        f"{huge_left:16}  {'yes' if named else 'NO'}",
        flush=True,
    )


def _ledger(store: Store) -> Ledger:
    (key,) = [found.key for found in store.list("history-ledger")]
    ledger = decode(store.get(key))
    return ledger if ledger is not None else Ledger()


def _session(folder: Path) -> Path:
    logs = folder / "ray" / SESSION / "logs"
    logs.mkdir(parents=True)
    (folder / "ray" / "session_latest").symlink_to(SESSION)
    return logs


def _name(number: int) -> str:
    return f"worker-{number}.out"


def _post(port: int) -> set[str]:
    """Post events; returns the ids of the acknowledged ones."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    acknowledged = set()
    for start in range(0, EVENTS, BATCH):
        batch = [event(f"e{n}") | {"message": random.randbytes(3700).hex()} for n in range(start, start + BATCH)]
        connection.request("POST", "/v1/events", json.dumps(batch), JSON)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            acknowledged |= {each["eventId"] for each in batch}
    connection.close()
    return acknowledged


class _Writer(threading.Thread):
    """Appends a line to each log file, again and again."""

    def __init__(self, logs: Path) -> None:
        super().__init__(daemon=True)
        self._logs = logs
        self._over = threading.Event()
        self.lines = 0

    def __enter__(self) -> _Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(INTERVAL):
            self.lines += 1
            for number in range(FILES):
                with (self._logs / _name(number)).open("a") as file:
                    file.write(f"line {self.lines} of file {number}\n")
