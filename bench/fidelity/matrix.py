"""Captures and scores of every supported Ray, one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.processes import PartUnavailable, ProcessFailed
from tests.support.ray_releases import MINORS

from .counts import count
from .scenarios import SCENARIOS, capture, is_captured
from .score import Score, score

BUSY_MINORS = ("2.49", "2.52", "2.56", "2.60")
CELLS = tuple((minor, "calm") for minor in MINORS) + tuple(
    (minor, name) for minor in BUSY_MINORS for name, scenario in SCENARIOS.items() if scenario.busy
)
"""What `make matrix` runs: each version calm, some in every scenario."""

FAILURES = (AssertionError, PartUnavailable, ProcessFailed, OSError, subprocess.SubprocessError)
"""How a capture may fail; `OSError` includes what the dashboard refused."""

HEADER = f"{'Ray':5} {'scenario':10} {'routes':>8} {'answers':>8} {'leaves':>8} {'events':>13} {'log bytes lost':>15}"


def run(cells: Sequence[tuple[str, str]], folder: Path, poll_interval: str) -> int:
    """Capture what is not there yet, and score all; keep the summaries beside the captures, and print a table."""
    failed = 0
    print(HEADER, flush=True)
    for minor, scenario in cells:
        place = folder / f"{minor}-{scenario}"
        began = time.monotonic()
        try:
            if not is_captured(place):
                _capture_again_once(minor, scenario, place, poll_interval)
            found = summary(place)
        except FAILURES as error:
            failed += 1
            _report(minor, scenario, error)
            continue
        print(f"{line(found)}  {time.monotonic() - began:4.0f} s", flush=True)
    return 1 if failed else 0


def _capture_again_once(minor: str, scenario: str, place: Path, poll_interval: str) -> None:
    """Capture; a cluster that failed, as it may on a busy machine, is reported and gets a second chance."""
    try:
        capture(minor, scenario, place, poll_interval=poll_interval)
    except PartUnavailable:
        raise
    except FAILURES as error:
        _report(minor, scenario, error)
        capture(minor, scenario, place, poll_interval=poll_interval)


def _report(minor: str, scenario: str, error: BaseException) -> None:
    print(f"{minor:5} {scenario:10} {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def summary(place: Path) -> dict[str, Any]:
    """The score of a capture as facts, written beside it."""
    facts = json.loads((place / "capture.json").read_text())
    scored = score(place)
    equal, total = scored.leaves
    found = {
        "ray": facts["version"],
        "scenario": facts["scenario"],
        "mean_of_routes": scored.mean_of_routes,
        "mean_of_answers": scored.mean_of_answers,
        "answers": len(scored.scored),
        "equal": equal,
        "total": total,
        "rows_apart": sum(result.rows_apart for result in scored.results),
        "drifting": sum(result.drifting for result in scored.results),
        "routes": scored.by_route(),
        "differences": _differences(scored),
        "counts": asdict(count(place)),
    }
    (place / "summary.json").write_text(json.dumps(found, indent=1))
    return found


def _differences(scored: Score) -> list[dict[str, Any]]:
    return [
        {"route": route, "path": found.path, "leaves": leaves, "live": found.live, "ours": found.ours}
        for leaves, route, found in scored.differences()
    ]


def line(found: dict[str, Any]) -> str:
    counts = found["counts"]
    return (
        f"{found['ray']:5} {found['scenario']:10} {found['mean_of_routes']:8.2%} {found['mean_of_answers']:8.2%} "
        f"{found['equal'] / found['total']:8.2%} {counts['archived']:6,}/{counts['acknowledged']:6,} "
        f"{counts['log_bytes'] - counts['stored_log_bytes']:15,}"
    )
