"""The commands of bench.fidelity."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.ray_releases import MINORS

from .report import lines
from .scenarios import SCENARIOS, capture
from .score import score


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench.fidelity", description="Compare histories with live dashboards.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    capturing = verbs.add_parser("capture", help="capture a real cluster")
    capturing.add_argument("--ray", choices=MINORS, default=MINORS[-1])
    capturing.add_argument("--scenario", choices=SCENARIOS, default="calm")
    capturing.add_argument("--out", type=Path, required=True)
    capturing.add_argument("--seed", type=int, default=1)
    capturing.add_argument("--poll-interval", default="30s")
    scoring = verbs.add_parser("score", help="score a capture")
    scoring.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.verb == "score":
        print("\n".join(lines(score(options.folder))))
        return 0
    capture(options.ray, options.scenario, options.out, seed=options.seed, poll_interval=options.poll_interval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
