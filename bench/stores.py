"""Small puts and gets per second, and MB/s of large bodies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from bench.places import directory, s3_server
from ray_history.archive.stores import Store

SMALL, SMALL_COUNT, WORKERS = 4096, 3000, 32
LARGE, LARGE_COUNT = 32 * 1024 * 1024, 8


def measured(work: Callable[[int], object], items: Iterable[int], workers: int) -> tuple[float, float]:
    """Wall and CPU seconds of the work over all items."""
    wall, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(workers) as threads:
        for _ in threads.map(work, items):
            pass
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(name: str, store: Store) -> None:
    body, large = os.urandom(SMALL), os.urandom(LARGE)
    rows = [
        ("put 4 KiB", SMALL_COUNT, WORKERS, lambda n: store.put(f"small/{n}", body), "objects/s", SMALL_COUNT),
        ("get 4 KiB", SMALL_COUNT, WORKERS, lambda n: store.get(f"small/{n}"), "objects/s", SMALL_COUNT),
        ("put 32 MiB", LARGE_COUNT, 4, lambda n: store.put(f"large/{n}", large), "MB/s", LARGE * LARGE_COUNT / 1e6),
        ("get 32 MiB", LARGE_COUNT, 4, lambda n: store.get(f"large/{n}"), "MB/s", LARGE * LARGE_COUNT / 1e6),
    ]
    for what, count, workers, work, unit, amount in rows:
        wall, cpu = measured(work, range(count), workers)
        print(f"{name:10} {what:11} {amount / wall:8.0f} {unit:10} {cpu:6.2f} CPU s for {count}", flush=True)


def main() -> None:
    with s3_server() as store:
        measure("SeaweedFS", store)
    with directory() as store:
        measure("directory", store)
