"""Building the index of a session and querying its tables, at 50,000 and 1,000,000 tasks.

Goals: open 50k tasks for the first time <= 1.5 s; 1M <= 30 s within 1.5 GiB; open again <= 0.3 s to the first
answer; `tasks?detail=1&limit=10000` <= 150 ms, summary <= 25 ms, one task <= 25 ms, 16 lists at once without failure.
The baseline is gzip + json.loads + dictionaries; the floor is reading, decompressing and scanning the JSON.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.generated import Generated, generate
from bench.plain_rebuild import scan_limit
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.json_rows import row
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST, View
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer

SIZES = (50_000, 1_000_000)
PLACE = Path(".parts/bench")

PLAIN = """
import sys, time, pathlib
from bench.plain_rebuild import rebuild
begin = time.perf_counter()
rows = rebuild([pathlib.Path(name) for name in sys.stdin.read().split("\\n")])
print(time.perf_counter() - begin, len(rows))
"""
OPEN = """
import sys, time
begin = time.perf_counter()
from bench.history import Tables, indexer, only_session
started = time.perf_counter()
here, session = indexer(sys.argv[1]), only_session(sys.argv[1])
with here.open(session, publish_later=True) as opened:
    ready = time.perf_counter()
    tables = Tables(opened.directory)
    tables.rows(f"select state, count(*) from {tables.source('tasks')} group by all")
    answered = time.perf_counter()
    here.publish_deferred(session)
    print(started - begin, ready - started, answered - started, time.perf_counter() - answered)
    tables.close()
"""
"""Prints seconds: to start the program; then, as in a running server, to open the tables; to the first answer; and to
upload the index for other servers."""


def indexer(archive: str) -> Indexer:
    return Indexer(open_store(DirectorySettings(Path(archive))), Cache(Path(archive).parent / "cache", 100 << 30))


def only_session(archive: str) -> Session:
    (session,) = read_catalog(open_store(DirectorySettings(Path(archive)))).sessions
    return session


def measured(script: str, *arguments: str, stdin: str = "") -> tuple[list[float], int]:
    """Run a script in its own process; returns the numbers that it prints, and its peak memory in MiB."""
    code = script + "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    ran = subprocess.run([sys.executable, "-c", code, *arguments], input=stdin, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    *numbers, peak = ran.stdout.split()
    return [float(number) for number in numbers], int(peak) >> 10


def main() -> None:
    for tasks in SIZES:
        archive = PLACE / str(tasks) / "archive"
        made = generate(archive, tasks=tasks)
        print(
            f"\n{made.tasks:,} tasks, {made.attempts:,} attempts, {made.events:,} events, {made.files} files, "
            f"{made.raw_bytes / 1e6:,.0f} MB of JSON ({made.stored_bytes / 1e6:,.0f} stored)"
        )
        _build(archive, made)
        _refresh(archive)
        _queries(archive)


def _delete_index(archive: Path) -> None:
    shutil.rmtree(archive.parent / "cache", ignore_errors=True)
    shutil.rmtree(archive / "history-index", ignore_errors=True)


def _build(archive: Path, made: Generated) -> None:
    files = sorted(archive.rglob("*.jsonl.gz"))
    floor = scan_limit(files)
    (plain, _), plain_peak = measured(PLAIN, stdin="\n".join(map(str, files)))
    opened = []
    for _ in range(5 if made.tasks < SIZES[-1] else 1):
        _delete_index(archive)
        opened.append(measured(OPEN, str(archive)))
    starting, built, _, sharing = map(statistics.median, zip(*(times for times, _ in opened), strict=True))
    peak = max(peak for _, peak in opened)
    megabytes = made.raw_bytes / 1e6
    rates = f"{megabytes / built:6.0f} MB/s  {made.tasks / built:8,.0f} tasks/s"
    few = " (median of 5)" if len(opened) > 1 else ""
    print(f"  open for the first time  {built:7.2f} s{few}  {rates}  {peak} MiB")
    print(f"  upload the index         {sharing:7.2f} s, in the background")
    print(f"  json.loads and dicts     {plain:7.2f} s  {plain / built:.1f}x as long, {plain_peak} MiB")
    print(f"  floor: read, unpack, scan{floor:7.2f} s on one core; the build takes {built / floor:.1f}x that on all")
    index = sum(file.stat().st_size for file in (archive / "history-index").rglob("*.parquet"))
    print(f"  index                    {index / 1e6:7.1f} MB, {index / made.attempts:.0f} bytes per attempt")
    again = _reopened(archive)
    os.sync()  # another machine opens the index only after it is on disk
    elsewhere = _reopened(archive, elsewhere=True)
    print(f"  first answer, reopened   {again:7.2f} s from the local cache, {elsewhere:.2f} s from the archive's index")
    print(f"  starting a new process   {starting:7.2f} s more, each time")


def _reopened(archive: Path, *, elsewhere: bool = False) -> float:
    """Seconds to the first answer in a new process: the median of five."""
    times = []
    for _ in range(5):
        if elsewhere:
            shutil.rmtree(archive.parent / "cache")
        (_, _, answered, _), _ = measured(OPEN, str(archive))
        times.append(answered)
    return statistics.median(times)


def _refresh(archive: Path) -> None:
    """Add one file in a hundred after the first build."""
    late = sorted(archive.rglob("*.jsonl.gz"))[::100]
    aside = archive.parent / "late"
    aside.mkdir(exist_ok=True)
    _delete_index(archive)
    for number, file in enumerate(late):
        file.rename(aside / str(number))
    try:
        indexer(str(archive)).open(only_session(str(archive))).close()
    finally:
        for number, file in enumerate(late):
            (aside / str(number)).rename(file)
    begin = time.perf_counter()
    indexer(str(archive)).open(only_session(str(archive))).close()
    print(f"  refresh, {len(late)} new files    {time.perf_counter() - begin:7.2f} s")
    _delete_index(archive)


def _queries(archive: Path) -> None:
    with indexer(str(archive)).open(only_session(str(archive))) as opened:
        tables = Tables(opened.directory, memory=1 << 30)
        tasks, first = tables.source("tasks"), tables.first_tasks(12_500)
        detailed = row("tasks", detail=True, redact=True, environments=tables.environments())
        alone = row("tasks", detail=True, few=True)
        (one,) = tables.rows(f"select task_id from {tasks} limit 1 offset 40000")
        (middle,) = tables.rows(f"select median(running_ns)::bigint from {tasks}")
        then = tables.source("tasks", View(at=middle[0]))
        queries: dict[str, Callable[[], object]] = {
            "10,000 tasks with detail": lambda: _fetch(tables, f"select {detailed} from {first} limit 10000"),
            "10,000 failed tasks": lambda: _fetch(
                tables, f"select {detailed} from (from {tasks} where state = 'FAILED' limit 10000)"
            ),
            "summary by function": lambda: tables.rows(
                f"""
                select coalesce(name, func_or_class_name), type, state, sum(attempts)
                from {tables.task_counts()}
                group by all
                """
            ),
            "one task by id": lambda: tables.fetch_task(
                *one, LAST, lambda rows: f"select {alone} from {rows} where task_id = ?", one
            ),
            "states at a moment": lambda: tables.rows(f"select state, count(*) from {then} group by all"),
        }
        for name, query in queries.items():
            print(f"  {name:<25}{_median(query) * 1000:7.0f} ms")
        begin = time.perf_counter()
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda _: queries["10,000 tasks with detail"](), range(16)))
        print(f"  16 such lists at once    {time.perf_counter() - begin:7.2f} s, none failed")
        tables.close()


def _fetch(tables: Tables, sql: str) -> int:
    return sum(len(text) for (text,) in tables.fetch(sql))


def _median(query: Callable[[], object]) -> float:
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        query()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
