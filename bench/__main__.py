"""Run the measurements by name, all of them without one."""

from __future__ import annotations

import importlib
import platform
import sys
from datetime import UTC, datetime

MEASUREMENTS = {
    "stores": "small puts and gets, and large bodies, on a real S3 server and on a directory",
    "catalog": "listing 2,000 sessions",
    "event_files": "reading event files, against gzip + json",
    "collector": "events acknowledged with a sync, logs shipped",
    "home": "the home page of 2,000 sessions",
    "server": "the server alone and under load",
    "history": "rebuilding a session of 50,000 and of 1,000,000 tasks, and asking its tables",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no measurement {', '.join(unknown)}; there are: {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, {platform.machine()}")
    for name in names or MEASUREMENTS:
        print(f"\n== {name}: {MEASUREMENTS[name]}", flush=True)
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
