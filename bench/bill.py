"""What a collector asks of its store: requests and bytes per hour, by rate of events.

Real collectors store on a real S3 server, behind a proxy that counts. They receive events only: log files and polling
are off. Each rate runs for two minutes, all at the same time.
"""

from __future__ import annotations

import http.client
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.collector import JSON
from bench.event_files import SESSION, generate
from ray_history.archive import layout
from tests.collector.collector_process import CollectorProcess
from tests.conftest import s3_variables
from tests.support.fault_proxy import FaultProxy
from tests.support.http_connection import Head
from tests.support.seaweedfs import SeaweedFS

RATES = (0, 1, 20, 1000)
"""Events per second."""
DESIGNS = {
    "without journals": ("--event-journal-interval=0s",),
    "event files every 2 s": ("--event-journal-interval=0s", "--event-rotation-interval=2s"),
    "with journals": (),
}
"""What is compared. Event files every 2 s would have to be merged later, at the price of further requests."""
WARM_UP = 45.0
SECONDS = 120.0
BATCHES_PER_SECOND = 10
"""Ray's agent sends every 100 ms."""
KINDS = {"events": layout.HISTORY, "journals": layout.JOURNALS, "ledgers": layout.LEDGER}


@dataclass
class Bill:
    """The requests of one collector."""

    requests: Counter[str] = field(default_factory=Counter)
    """By method, PUTs by kind of object."""
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes of PUTs, by kind of object."""

    def copy(self) -> Bill:
        return Bill(self.requests.copy(), self.sent.copy())

    def note(self, request: Head) -> None:
        path = urlsplit(request.target).path
        kind = next((kind for kind, tree in KINDS.items() if f"/{tree}/" in path), "others")
        is_deletion = request.method == "DELETE" or (request.method == "POST" and "delete" in request.target)
        name = "deletions" if is_deletion else kind if request.method == "PUT" else "reads"
        self.requests[name] += 1
        if request.method == "PUT":
            self.sent[kind] += int(request.headers.get("content-length", 0))


def post(port: int, rate: int, lines: list[bytes], stop: threading.Event) -> None:
    """Send events at this rate, as Ray's agent does, each batch as large as the last one needs to catch up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began, sent = time.monotonic(), 0
    while rate and not stop.wait(1 / BATCHES_PER_SECOND):
        due = int((time.monotonic() - began) * rate)
        if due == sent:
            continue
        batch = [lines[number % len(lines)] for number in range(sent, due)]
        # Each batch differs, so that none counts as a duplicate.
        connection.request("POST", "/v1/events", b"[" + b" " * (sent % 997) + b",".join(batch) + b"]", JSON)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the collector answered {answer.status}")
        sent = due
    connection.close()


@contextmanager
def billed(server: SeaweedFS, folder: Path, rate: int, flags: tuple[str, ...], lines: list[bytes]) -> Iterator[Bill]:
    """A collector that receives events at this rate, and its bill."""
    bill, stop = Bill(), threading.Event()
    own = ("--push-interval=10s", "--enable-log-collector=false", f"--ray-tmp-root={folder}/ray", *flags)
    (folder / "ray" / SESSION / "logs").mkdir(parents=True)
    (folder / "ray" / "session_latest").symlink_to(SESSION)
    with FaultProxy(server.endpoint, bill.note) as proxy:
        variables = s3_variables(server) | {"S3_ENDPOINT": proxy.url}
        with CollectorProcess(folder, f"s3://bench/{folder.name}", *own, env=variables) as collector:
            sender = threading.Thread(target=post, args=(collector.port, rate, lines, stop))
            sender.start()
            try:
                yield bill
            finally:
                stop.set()
                sender.join()


def show(name: str, before: Bill, after: Bill) -> None:
    an_hour = 3600 / SECONDS
    requests = {name: (after.requests[name] - before.requests[name]) * an_hour for name in after.requests}
    megabytes = {name: (after.sent[name] - before.sent[name]) * an_hour / 1e6 for name in after.sent}
    puts = sum(requests.get(kind, 0) for kind in (*KINDS, "others"))
    print(
        f"{name:34} {puts:6.0f} PUT ("
        + ", ".join(f"{requests.get(kind, 0):.0f} {kind}" for kind in KINDS)
        + f")  {sum(megabytes.values()):7.1f} MB ("
        + ", ".join(f"{megabytes.get(kind, 0):.1f} {kind}" for kind in KINDS)
        + f")  {requests.get('deletions', 0):5.0f} deletions  {requests.get('reads', 0):4.0f} reads"
        f"  ${puts * 5e-6:.4f}",
        flush=True,
    )


def main() -> None:
    lines = generate(20_000_000)
    runs = [(rate, design) for rate in RATES for design in DESIGNS]
    print("per hour; the price is that of S3: 5 dollars for a million PUTs, while DELETE is free")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        server = SeaweedFS(Path(place) / "s3")
        server.start()
        stack.callback(server.stop)
        bills = [
            stack.enter_context(billed(server, Path(place) / f"{number}", rate, DESIGNS[design], lines))
            for number, (rate, design) in enumerate(runs)
        ]
        time.sleep(WARM_UP)
        before = [bill.copy() for bill in bills]
        time.sleep(SECONDS)
        after = [bill.copy() for bill in bills]
    for (rate, design), start, end in zip(runs, before, after, strict=True):
        show(f"{rate:5} events/s, {design}", start, end)
