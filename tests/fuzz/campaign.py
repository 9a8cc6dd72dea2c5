"""All targets for a long time, each in a process of its own.

Inputs that reach new code are kept in `.parts/fuzz/NAME`, from where the next run continues; inputs for which something
does not hold, as `.parts/fuzz/failures/NAME-…`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random

from tests.fuzz.mutations import mutated
from tests.fuzz.target import MAX_INPUT, Target

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".parts" / "fuzz"
_MEMORY = 2048
"""MiB that a target may take."""
_HANGS = 60
"""Seconds that one input may take."""
_GRACE = 60.0
_STATUS = re.compile(r"cov: (?P<edges>\d+)")
_COUNT = re.compile(r"^stat::(?P<name>\w+):\s+(?P<value>\d+)$", re.MULTILINE)
_ERROR = re.compile(r"^(?:\w+\.)*([A-Z]\w+(?:Error|Exception|Linear)\b.*|==\d+== ERROR: libFuzzer: .*)$", re.MULTILINE)


@dataclass(slots=True)
class Outcome:
    """What came of one target."""

    name: str
    executions: int = 0
    edges: int = 0
    """Of the code that was reached; 0 without coverage."""
    found: int = 0
    """Inputs that reached code that no earlier one reached."""
    failures: list[Path] = field(default_factory=list)
    message: str = ""


def has_coverage() -> bool:
    """Whether atheris is installed, which has wheels for Linux on x86-64 only."""
    return find_spec("atheris") is not None


def run(target: Target, seconds: float) -> Outcome:
    return _run_guided(target, seconds) if has_coverage() else _run_blindly(target, seconds)


def _run_guided(target: Target, seconds: float) -> Outcome:
    corpus, failures = FOLDER / target.name, FOLDER / "failures"
    for folder in (corpus, failures):
        folder.mkdir(parents=True, exist_ok=True)
    before = {*corpus.iterdir(), *failures.glob(f"{target.name}-*")}
    with tempfile.TemporaryDirectory(prefix="ray-history-fuzz-") as seeds:
        for number, seed in enumerate(target.seeds):
            (Path(seeds) / str(number)).write_bytes(seed)
        options = (
            *(
                f"-max_total_time={seconds:g}",
                f"-timeout={_HANGS}",
                f"-rss_limit_mb={_MEMORY}",
                "-print_final_stats=1",
                "-report_slow_units=1000",
            ),
            *(f"-max_len={MAX_INPUT}", f"-artifact_prefix={failures}/{target.name}-"),
        )
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", target.name, *options, str(corpus), seeds],
            capture_output=True,
            cwd=ROOT,
            timeout=seconds + _GRACE + 2 * _HANGS,
            check=False,
        )
    report = (done.stdout + done.stderr).decode(errors="replace")
    counts = {found["name"]: int(found["value"]) for found in _COUNT.finditer(report)}
    edges = [int(found["edges"]) for found in _STATUS.finditer(report)]
    outcome = Outcome(
        target.name,
        counts.get("number_of_executed_units", 0),
        max(edges, default=0),
        len({*corpus.iterdir()} - before),
        sorted({*failures.glob(f"{target.name}-*")} - before),
    )
    if done.returncode:
        found = _ERROR.findall(report)
        outcome.message = found[0] if found else report[-2000:]
    return outcome


def _run_blindly(target: Target, seconds: float) -> Outcome:
    """Without coverage: mutations of the seeds only."""
    outcome, random, deadline = Outcome(target.name), Random(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        data = mutated(random.choice(target.seeds), target.seeds, target.tokens, random, MAX_INPUT)
        outcome.executions += 1
        try:
            target.run(data)
        except Exception as error:  # noqa: BLE001 - every exception is a finding
            path = FOLDER / "failures" / f"{target.name}-crash-{random.randbytes(8).hex()}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            outcome.failures.append(path)
            outcome.message = repr(error)[:500]
            break
    return outcome


def small_corpus(target: Target, most: int, longest: int) -> Iterator[bytes]:
    """The shortest inputs found so far that together, with the seeds, reach all the code that any of them reached."""
    with tempfile.TemporaryDirectory(prefix="ray-history-fuzz-") as temporary:
        merged, seeds = Path(temporary) / "merged", Path(temporary) / "seeds"
        shutil.copytree(FOLDER / target.name, seeds)
        merged.mkdir()
        for number, seed in enumerate(target.seeds):
            (merged / f"seed-{number}").write_bytes(seed)
        subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", target.name, "-merge=1", str(merged), str(seeds)],
            capture_output=True,
            cwd=ROOT,
            check=True,
        )
        added = [path.read_bytes() for path in merged.iterdir() if not path.name.startswith("seed-")]
    yield from sorted((data for data in added if len(data) <= longest), key=lambda data: (len(data), data))[:most]
