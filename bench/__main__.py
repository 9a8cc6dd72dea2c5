"""Run measurements by name, or all of them: `python -m bench [NAME…]`."""

from __future__ import annotations

import importlib
import platform
import sys
from datetime import UTC, datetime

MEASUREMENTS = {
    "stores": "small and large objects on a real S3 server and in a directory",
    "catalog": "listing 2,000 sessions",
    "event_files": "reading event files, compared with gzip + json",
    "collector": "events acknowledged after a sync, logs uploaded",
    "bill": "requests and bytes that a collector causes per hour",
    "grace": "what a collector stores after SIGTERM, from fast and slow stores",
    "metrics": "scraping, blocks, tables and PromQL, beside Prometheus and VictoriaMetrics",
    "home": "the home page of 2,000 sessions",
    "server": "the server with one client and under load",
    "fire": "one task, /livez and the home page while hostile sessions are built and large lists sent",
    "soak": "memory, threads and descriptors after ten minutes of load, and after 500 sessions in a row",
    "history": "building and querying sessions of 50,000 and of 1,000,000 tasks",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"unknown measurement {', '.join(unknown)}; choose from {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, {platform.machine()}")
    for name in names or MEASUREMENTS:
        print(f"\n== {name}: {MEASUREMENTS[name]}", flush=True)
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
