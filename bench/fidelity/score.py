"""The score of a capture: what our server answers from its archive, compared with its truth."""

from __future__ import annotations

import difflib
import json
import re
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from urllib.parse import urlsplit

from tests.support.processes import Process, free_port, port_is_open

from . import truth
from .cluster import NAME
from .comparison import Comparison, Difference, newest
from .rules import route
from .truth import Answer

MANY_LINES = 8000
POLLED = (
    ("restful__nodes__", "", re.compile(r"/nodes/.|/logical/actors")),
    ("restful__nodes?", "", re.compile(r"/nodes$")),
    ("restful__api__v0__actors", "ACTOR_DEFINITION_EVENT", re.compile(r"/api/v0/actors")),
    ("restful__api__v0__workers", "WORKER_DEFINITION_EVENT", re.compile(r"/api/v0/workers")),
)
"""Routes whose content is polled, unless there are events of this type: the file, the type and the path."""


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
    observations = Observations.of(folder / "archive")
    with _server(folder / "archive") as base:
        session = f"{base}/s/default/{NAME}/{facts['session']}"
        moved = _last_changes(session)
        results = []
        for answer in passes["last"]:
            if answer.url in first:
                comparison = Comparison(answer.url, answer.asked, observations.time(answer.url), moved)
                ours = _ask(session, answer.url)
                results.append(_result(folder / "truth", first[answer.url], answer, ours, comparison))
        return Score(results)


def _last_changes(session: str) -> dict[str, float]:
    """When tasks, actors and workers changed for the last time, by id, as far as we know."""
    changes: dict[str, float] = defaultdict(float)
    for table, name in (("tasks", "task_id"), ("workers", "worker_id")):
        for row in json.loads(_ask(session, f"/api/v0/{table}?{truth.ALL}")[1])["data"]["result"]["result"]:
            changes[row[name]] = max(changes[row[name]], newest(row))
            if row.get("type") == "ACTOR_CREATION_TASK":
                changes[row["actor_id"]] = max(changes[row["actor_id"]], newest(row))
    for identity, actor in json.loads(_ask(session, "/logical/actors")[1])["data"]["actors"].items():
        changes[identity] = max(changes[identity], newest(actor))
    return changes


@dataclass(frozen=True)
class Observations:
    """When an archive learned something for the last time."""

    event: float
    polls: dict[str, float]
    """By file name of a polled answer."""
    types: Collection[str]
    """Of the events that were received."""

    @classmethod
    def of(cls, archive: Path) -> Observations:
        files = [path for path in archive.rglob("*") if path.is_file()]
        events = [path.stat().st_mtime for path in files if re.search(r"/(node|job)_events/", path.as_posix())]
        polls = {path.name: path.stat().st_mtime for path in files if path.parent.name == "fetched_endpoints"}
        ledgers = [json.loads(path.read_bytes()) for path in (archive / "history-ledger").rglob("*.json")]
        types = {name for ledger in ledgers for name in ledger["events"]["types"]}
        return cls(max(events, default=0), polls, types)

    def time(self, url: str) -> float:
        """The last observation of what a route shows: of a poll, if there are no events about it."""
        path = urlsplit(url).path
        source = next((name for name, event, pattern in POLLED if pattern.match(path) and event not in self.types), "")
        polls = [time for name, time in self.polls.items() if name.startswith(source)]
        return min(self.event, max(polls)) if source and polls else self.event


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


def _result(folder: Path, first: Answer, last: Answer, ours: tuple[int, bytes], comparison: Comparison) -> Result:
    status, body = ours
    if last.status != 200 or first.status != 200:
        return Result(last.url, last.status or -1 if last.status != 200 else first.status or -1, status)
    bodies = [(folder / answer.file).read_bytes() for answer in (first, last)]
    if not last.is_json:
        return _text_result(last, bodies, status, body)
    before, live = (json.loads(text) for text in bodies)
    if status != 200:
        return _refused(last.url, status, body, comparison.leaves(live, ""))
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
