"""What grows in a server that runs for long: 64 clients use 30 sessions, of which only a few fit into memory and cache
and the others come from the indexes in the archive; then 500 other sessions are built and opened in a row.

`SECONDS` and `SESSIONS` are the length of the two parts. Goals: no errors; memory, threads and descriptors do not grow.
"""

from __future__ import annotations

import http.client
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.generated import generate
from bench.processes import Use, Watch, family, slope, use_of
from ray_history.archive import layout
from ray_history.archive.layout import Cluster
from tests.support.processes import Process, free_port, port_is_open

PLACE = Path(".parts/bench/soak")
SECONDS = float(os.environ.get("SECONDS", "600"))
IN_A_ROW = int(os.environ.get("SESSIONS", "500"))
RAY_HISTORY = (sys.executable, "-c", "from ray_history.cli import main; main()", "--log-level", "warning")
SESSIONS, CLIENTS, TASKS = 30, 64, 5_000
OPEN_SESSIONS, CACHE_MIB = 5, 4
"""Limits of the server. The indexes of the 30 sessions take 20 MiB."""
INTERVAL = 3.0
"""Seconds between two looks at the processes."""
RESTS = float(os.environ.get("RESTS", "45"))
"""Seconds until a server without requests has ended what it started: it replaces a used build process after 20 s."""
_STORED = 1_767_250_000
"""Modification time of the files: in the past, so that no session may still grow."""
_ROUTES = (
    "/api/v0/tasks?limit=100",
    "/api/v0/tasks?detail=1&limit=1000",
    "/api/v0/tasks/summarize",
    "/nodes?view=summary",
    "/api/jobs/",
    "/logical/actors",
    "/api/v0/tasks/timeline",
    "/_session",
)


def main() -> None:
    archive = _archive()
    port, cache = free_port(), PLACE / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    command = [
        *(*RAY_HISTORY, "serve"),
        *("--storage", archive.absolute().as_uri(), "--port", str(port), "--cache-dir", str(cache), "--prebuild", "0"),
        *("--open-sessions", str(OPEN_SESSIONS), "--cache-size", str(CACHE_MIB)),
    ]
    with Process(command, log=PLACE / "server.log", ready=lambda: port_is_open(port)) as server:
        answers = _Answers(port)
        answers.get(f"{_session(0)}/api/v0/nodes")
        with _watched(f"{CLIENTS} clients on {SESSIONS} sessions for {SECONDS:.0f} s", server.pid):
            _load(answers)
        answers.print()
        answers = _Answers(port)
        with _watched(f"{IN_A_ROW} sessions in a row", server.pid):
            for number in range(IN_A_ROW):
                answers.get(f"/s/row/s{number}/latest{_ROUTES[number % len(_ROUTES)]}")
        answers.print()


def _session(number: int) -> str:
    return f"/s/soak/s{number}/latest"


def _archive() -> Path:
    archive = PLACE / "archive"
    if not archive.exists():
        for number in range(SESSIONS):
            generate(archive, tasks=TASKS, seed=number, cluster=Cluster("soak", f"s{number}"))
        (archive / "generated.json").unlink()
        for file in archive.rglob("*.gz"):
            os.utime(file, (_STORED, _STORED))
    # The limit of the cache is one of builds too, and these sessions are larger while they are built.
    clusters = [f"soak/s{number}" for number in range(SESSIONS)]
    indexing = [*RAY_HISTORY, "index", *clusters, "--storage", archive.absolute().as_uri()]
    subprocess.run([*indexing, "--cache-dir", PLACE / "prepared"], check=True, stdout=subprocess.DEVNULL)
    _copy_in_a_row(archive)
    for indexes in (layout.INDEX, layout.SUMMARIES):
        shutil.rmtree((archive / indexes / Cluster("row", "s0").path).parent, ignore_errors=True)
    return archive


def _copy_in_a_row(archive: Path) -> None:
    """Sessions that differ in the names of their clusters only; their files are hard links."""
    generated = generate(PLACE / "row", tasks=200)
    original = PLACE / "row" / layout.session_prefix("", Cluster("default", "bench"), generated.session)
    for number in range(IN_A_ROW):
        cluster = Cluster("row", f"s{number}")
        marker = archive / layout.marker_key("", cluster, generated.session)
        if not marker.exists():
            copy = archive / layout.session_prefix("", cluster, generated.session)
            shutil.copytree(original, copy, copy_function=os.link, dirs_exist_ok=True)
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()


@dataclass
class _Answers:
    """Answers of the server, counted by status, and how long they took."""

    port: int
    statuses: Counter[str] = field(default_factory=Counter)
    took: list[float] = field(default_factory=list)

    def get(self, path: str) -> None:
        begin = time.perf_counter()
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
                connection.request(
                    "GET", path, headers={"Accept": "text/html" if path.endswith("/_session") else "*/*"}
                )
                response = connection.getresponse()
                response.read()
                self.statuses[str(response.status)] += 1
        except (OSError, http.client.HTTPException) as error:
            self.statuses[type(error).__name__] += 1
        self.took.append(time.perf_counter() - begin)

    def print(self) -> None:
        times = sorted(self.took)
        p50, p99 = (times[int(len(times) * share)] for share in (0.5, 0.99))
        print(f"    answers: {dict(self.statuses)}; p50 {p50:.2f} s, p99 {p99:.2f} s", flush=True)


def _load(answers: _Answers) -> None:
    until = time.monotonic() + SECONDS

    def client(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < until:
            session = int(SESSIONS * chance.random() ** 2)  # the first ones more often than the last ones
            path = f"{_session(session)}{chance.choice(_ROUTES)}"
            answers.get(path)

    threads = [threading.Thread(target=client, args=[number]) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _watched(name: str, pid: int) -> Iterator[None]:
    """Print what the server and its build processes take up inside the block, before, and after a rest."""

    def look() -> tuple[Use, Use]:
        return use_of([pid]), use_of(family(pid)[1:])

    print(f"  {name}")
    before = look()
    with Watch(look, INTERVAL) as watch:
        yield
    time.sleep(RESTS)
    after = look()
    for place, kind in enumerate(("server", "build processes")):
        seen = [(moment, each[place]) for moment, each in watch.seen]
        print(f"    {kind}: before / at most / after a rest, and the slope over the last half")
        late = seen[len(seen) // 2 :]
        for measure in Use._fields:
            unit, scale = (" MiB", 1 << 20) if measure in ("rss", "pss") else ("", 1)
            first, most, last = (
                getattr(use, measure) / scale
                for use in (before[place], Use(*map(max, zip(*(use for _, use in seen), strict=True))), after[place])
            )
            per_minute = 60 * slope([(moment, getattr(use, measure) / scale) for moment, use in late])
            print(
                f"      {measure:<12}{first:7.0f} / {most:5.0f} / {last:5.0f}{unit:<5} {per_minute:+8.2f} per minute",
                flush=True,
            )
