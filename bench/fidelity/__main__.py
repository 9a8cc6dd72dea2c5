"""The commands of bench.fidelity."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.ray_releases import FOLDER, MINORS

from . import document, matrix
from .counts import count
from .report import count_lines, lines
from .scenarios import SCENARIOS, capture
from .score import score

CAPTURES = FOLDER.parent / "captures"


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything that was started is ended
    if options.verb == "score":
        print("\n".join([*lines(score(options.folder)), "", *count_lines(count(options.folder))]))
        return 0
    if options.verb == "docs":
        document.collect(options.captures)
        document.PAGE.write_text(document.page())
        return 0
    if options.verb == "matrix":
        cells = [cell for cell in matrix.CELLS if options.only in "-".join(cell)]
        return matrix.run(cells, options.out, options.poll_interval)
    capture(options.ray, options.scenario, options.out, seed=options.seed, poll_interval=options.poll_interval)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.fidelity", description="Compare histories with live dashboards.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    capturing = verbs.add_parser("capture", help="capture a real cluster")
    capturing.add_argument("--ray", choices=MINORS, default=MINORS[-1])
    capturing.add_argument("--scenario", choices=SCENARIOS, default="calm")
    capturing.add_argument("--out", type=Path, required=True)
    capturing.add_argument("--seed", type=int, default=1)
    scoring = verbs.add_parser("score", help="score a capture")
    scoring.add_argument("folder", type=Path)
    whole = verbs.add_parser("matrix", help="capture and score every version")
    whole.add_argument("--only", default="", metavar="TEXT", help="only if VERSION-SCENARIO contains this")
    whole.add_argument("--out", type=Path, default=CAPTURES, help="directory (default: .parts/captures)")
    writing = verbs.add_parser("docs", help="write the scores of captures into docs/fidelity.md")
    writing.add_argument("captures", type=Path, nargs="?", default=CAPTURES, help="default: .parts/captures")
    for each in (capturing, whole):
        each.add_argument("--poll-interval", default="30s", help="the collectors' setting (default: 30s, theirs)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
