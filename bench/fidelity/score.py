"""The score of a capture: what our server answers from its archive, compared with its truth."""

from __future__ import annotations

import difflib
import json
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

from tests.support.processes import Process, free_port, port_is_open

from . import truth
from .cluster import NAME
from .comparison import Comparison, Difference, leaves
from .rules import route
from .truth import Answer

MANY_LINES = 8000


@dataclass(frozen=True)
class Result:
    """One answer, compared."""

    url: str
    live: int
    ours: int
    equal: int = 0
    total: int = 0
    drifting: int = 0
    rows_apart: int = 0
    leaves_apart: int = 0
    differences: Sequence[Difference] = ()

    @property
    def route(self) -> str:
        return route(self.url)

    @property
    def is_scored(self) -> bool:
        return self.live == 200 and self.total > 0

    @property
    def ratio(self) -> float:
        return self.equal / self.total


@dataclass(frozen=True)
class Score:
    """The results of a capture."""

    results: Sequence[Result]
    scored: Sequence[Result] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scored", [result for result in self.results if result.is_scored])

    def by_route(self) -> dict[str, float]:
        ratios: dict[str, list[float]] = defaultdict(list)
        for result in self.scored:
            ratios[result.route].append(result.ratio)
        return {name: fmean(values) for name, values in sorted(ratios.items())}

    @property
    def mean_of_answers(self) -> float:
        return fmean(result.ratio for result in self.scored)

    @property
    def mean_of_routes(self) -> float:
        return fmean(self.by_route().values())

    @property
    def leaves(self) -> tuple[int, int]:
        return sum(result.equal for result in self.scored), sum(result.total for result in self.scored)

    def differences(self) -> list[tuple[int, str, Difference]]:
        """The number of unequal leaves by route and place, the most first, with an example."""
        counts: Counter[tuple[str, str]] = Counter()
        examples: dict[tuple[str, str], Difference] = {}
        for result in self.scored:
            for difference in result.differences:
                counts[result.route, difference.path] += difference.leaves
                examples.setdefault((result.route, difference.path), difference)
        return [(count, place[0], examples[place]) for place, count in counts.most_common()]


def score(folder: Path) -> Score:
    """Start a server on the archive of a capture, and compare its answers."""
    facts = json.loads((folder / "capture.json").read_text())
    passes = truth.load(folder / "truth")
    first = {answer.url: answer for answer in passes["first"]}
    observed = _last_event_time(folder / "archive")
    with _server(folder / "archive") as base:
        session = f"{base}/s/default/{NAME}/{facts['session']}"
        return Score(
            [
                _result(folder / "truth", first[answer.url], answer, _ask(session, answer.url), observed)
                for answer in passes["last"]
                if answer.url in first
            ]
        )


def _last_event_time(archive: Path) -> float:
    files = [path for path in archive.rglob("*") if path.parent.parent.name in ("node_events", "job_events")]
    files += [path for path in archive.rglob("*") if "events" in path.parent.name and path.is_file()]
    return max((path.stat().st_mtime for path in files), default=0)


@contextmanager
def _server(archive: Path) -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-history-fidelity-") as temporary:
        command = [sys.executable, "-m", "ray_history", "serve", f"--storage={archive.resolve().as_uri()}"]
        command += [f"--port={port}", f"--cache-dir={temporary}/cache", "--show-secrets"]
        log = Path(temporary, "server.log")
        with Process(command, log=log, ready=partial(port_is_open, port), start_seconds=120):
            yield f"http://127.0.0.1:{port}"


def _ask(session: str, url: str) -> tuple[int, bytes]:
    """The answer as the cluster was last observed, before its end closed what was open."""
    try:
        with urllib.request.urlopen(f"{session}{url}{'&' if '?' in url else '?'}raw=1", timeout=120) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _result(folder: Path, first: Answer, last: Answer, ours: tuple[int, bytes], observed: float) -> Result:
    status, body = ours
    if last.status != 200 or first.status != 200:
        return Result(last.url, last.status or -1 if last.status != 200 else first.status or -1, status)
    bodies = [(folder / answer.file).read_bytes() for answer in (first, last)]
    if not last.is_json:
        return _text_result(last, bodies, status, body)
    before, live = (json.loads(text) for text in bodies)
    if status != 200:
        return _refused(last.url, status, body, leaves(live))
    comparison = Comparison(last.url, last.asked, observed)
    comparison.compare(before, live, json.loads(body))
    return Result(
        last.url,
        200,
        status,
        comparison.equal,
        comparison.total,
        comparison.drifting,
        comparison.rows_apart,
        comparison.leaves_apart,
        comparison.differences,
    )


def _refused(url: str, status: int, body: bytes, total: int) -> Result:
    """An answer that should have been 200: all of its leaves are unequal."""
    example = Difference("<status>", 200, f"<{status}> {body[:200].decode(errors='replace')}", total)
    return Result(url, 200, status, total=total, differences=[example])


def _text_result(last: Answer, bodies: Sequence[bytes], status: int, ours: bytes) -> Result:
    whole = "lines=-1" in last.url
    if bodies[0] != bodies[1] and not (whole and bodies[1].startswith(bodies[0])):
        return Result(last.url, 200, status, drifting=bodies[1].count(b"\n") + 1)
    live, found = bodies[1].split(b"\n"), ours.split(b"\n")
    if status != 200:
        return _refused(last.url, status, ours, len(live))
    if whole and ours.startswith(bodies[1]):  # a log of Ray's own, which continued after the live answer
        return Result(last.url, 200, status, len(live), len(live), leaves_apart=len(found) - len(live))
    total, equal = max(len(live), len(found)), _common_lines(live, found)
    pairs = enumerate(zip(live, found, strict=False))
    number = next((n for n, (a, b) in pairs if a != b), min(len(live), len(found)))
    differences = [Difference("<line>", _line(live, number), _line(found, number), total - equal)]
    return Result(last.url, 200, status, equal, total, differences=differences if equal < total else ())


def _common_lines(live: list[bytes], ours: list[bytes]) -> int:
    if len(live) + len(ours) > MANY_LINES:
        return (Counter(live) & Counter(ours)).total()
    matcher = difflib.SequenceMatcher(None, live, ours, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks())


def _line(lines: list[bytes], number: int) -> str:
    return lines[number].decode(errors="replace") if number < len(lines) else "<end of text>"
