"""Fuzz for a long time: `python -m tests.fuzz [NAMES] --seconds 30`.

`--keep` writes the shortest inputs that reach more code than the seeds into the corpus of the repository.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from tests.fuzz.campaign import ROOT, Outcome, has_coverage, run, small_corpus
from tests.fuzz.requests.walk import REQUESTS, fuzz_requests
from tests.fuzz.target import Target, read_corpus, write_corpus
from tests.fuzz.targets import TARGETS

_KEPT = 12
_LONGEST = 300
_LINE = "{:<28} {:>12} {:>8} {:>8}  {}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join((*TARGETS, REQUESTS))}; by default all"
    )
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "30")), help="per target")
    parser.add_argument("--keep", action="store_true", help="add to the corpus what an earlier run found")
    arguments = parser.parse_args()
    names = arguments.names or (*TARGETS, REQUESTS)
    if arguments.keep:
        for name in names:
            if name != REQUESTS:
                keep(TARGETS[name])
        return
    logging.disable()  # the product says what is wrong with each input
    sys.exit(fuzz(names, arguments.seconds))


def fuzz(names: Sequence[str], seconds: float) -> int:
    """Run the targets and print a table; returns the exit code."""
    if not has_coverage():
        print("atheris has no wheel for this platform or Python: mutations of the seeds only, without coverage")
    print(_LINE.format("target", "executions", "edges", "new", "failures"), flush=True)
    outcomes = []
    for name in names:
        outcome = fuzz_requests(seconds) if name == REQUESTS else run(TARGETS[name], seconds)
        failures = ", ".join(str(path.relative_to(ROOT)) for path in outcome.failures)
        failures = failures or ("no reproducer" if outcome.message else "-")
        print(_LINE.format(outcome.name, outcome.executions, outcome.edges or "-", outcome.found, failures), flush=True)
        outcomes.append(outcome)
    return report(outcomes)


def report(outcomes: Sequence[Outcome]) -> int:
    """Print the failures, and how to see one again."""
    failed = [outcome for outcome in outcomes if outcome.message or outcome.failures]
    for outcome in failed:
        print(f"\n{outcome.name}: {outcome.message}")
        for path in outcome.failures:
            print(f"  python -m tests.fuzz.replay {outcome.name} {path.relative_to(ROOT)}")
    return 1 if failed else 0


def keep(target: Target) -> None:
    known = read_corpus(target.corpus)
    added = [data for data in small_corpus(target, _KEPT, _LONGEST) if data not in known]
    write_corpus(target.corpus, [*known, *added])
    print(f"{target.corpus.relative_to(ROOT)}: {len(added)} added, {target.corpus.stat().st_size} bytes")


if __name__ == "__main__":
    main()
