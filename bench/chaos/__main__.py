"""The command of bench.chaos."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from . import report
from .machine import Machine
from .run import run
from .scenarios import SCENARIOS

PLACE = Path(".parts/chaos").absolute()


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything that was started is ended
    seed, minutes = options.seed, options.minutes
    names = [name for name in SCENARIOS if any(each in name for each in options.only.split(","))]
    print(f"CHAOS_SEED={seed} CHAOS_MINUTES={minutes:g}: {len(names)} scenarios", flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    with Machine(PLACE, seed) as machine:
        result = run(machine, seed, minutes, names)
    print("\n".join(["", *report.lines(result), ""]))
    if options.write:
        report.write(result)
    print(f"{len(result.findings)} findings; repeat with CHAOS_SEED={seed}")
    return 1 if result.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.chaos", description="Look for what is lost when all fails.")
    seed = os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000)
    parser.add_argument("--seed", type=int, default=int(seed))
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("CHAOS_MINUTES") or 10))
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only scenarios whose names contain one of these, separated by commas",
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/failure-modes.md")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
