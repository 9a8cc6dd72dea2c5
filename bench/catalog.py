"""Seconds to list 2,000 sessions; goal: at most 0.3 s cold on a local S3 server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from bench.places import directory, s3_server
from ray_history.archive import layout
from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store

SESSIONS = 2000


def fill(store: Store) -> None:
    """Write markers of 2,000 sessions of 200 clusters, a third of them of generation A, each with one data object."""
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def write(number: int) -> None:
        moment = start + timedelta(minutes=7 * number)
        session = f"session_{moment:%Y-%m-%d_%H-%M-%S}_{number:06d}_1"
        cluster = Cluster(f"team-{number % 20}", f"cluster-{number % 200}")
        if number % 3 == 0:
            store.put(layout.join("log", layout.METADIR, cluster.legacy_path, session), b"")
            prefix = layout.legacy_session_prefix("log", cluster, session)
        else:
            store.put(layout.marker_key("", cluster, session), b"")
            prefix = layout.session_prefix("", cluster, session)
        store.put(layout.join(prefix, "fetched_endpoints", "restful__timezone"), b"{}")

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(write, range(SESSIONS)))


def measure(name: str, store: Store) -> None:
    fill(store)
    times = []
    for _ in range(5):
        before = time.perf_counter()
        found = len(read_catalog(store).sessions)
        times.append(time.perf_counter() - before)
        if found != SESSIONS:
            raise SystemExit(f"the catalog found {found} of {SESSIONS} sessions")
    print(f"{name:10} first {times[0]:.3f} s, best of 5 {min(times):.3f} s (goal 0.300 s)", flush=True)


def main() -> None:
    with s3_server() as store:
        measure("SeaweedFS", store)
    with directory() as store:
        measure("directory", store)
