"""Scrapes of an invented cluster that has every metric of Ray's dashboards, with the labels that their queries use."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import promql_parser as parser

from ray_history.metrics.block import STALE, BlockRow, OpenBlock, read_block
from ray_history.metrics.promql.syntax import parse
from ray_history.metrics.tables import TablesWriter

START = 1_790_000_000_000
INTERVAL = 15_000
INSTANCES = ("10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
_FREE_WORDS = {
    "State": ["FINISHED", "FAILED", "RUNNING", "PENDING_NODE_ASSIGNMENT", "ALIVE", "DEAD", "WAITING_FOR_EXECUTION"],
    "RayNodeType": ["head", "worker"],
    "Location": ["SPILLED", "MMAP_SHM", "WORKER_HEAP"],
    "IsRetry": ["0", "1"],
}
_OF_A_PROCESS = {"WorkerId", "deployment", "replica"}
"""Labels by which queries join metrics: a process of an instance has the same ones everywhere."""
_IDENTITY = {"instance", "job", "SessionName", "ray_io_cluster", "__name__", "le"}

Labels = tuple[tuple[str, str], ...]
Scrape = dict[Labels, float]


@dataclass(frozen=True)
class Cluster:
    """The scrapes of each instance: those of one instance are at the same distance from each other."""

    scrapes: Mapping[str, Sequence[tuple[int, Scrape]]]

    @property
    def end(self) -> int:
        return max(scrapes[-1][0] for scrapes in self.scrapes.values())

    def series(self) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
        """The samples of each series, with a stale marker where a scrape does not show it any more."""
        found = defaultdict[Labels, list[tuple[int, float]]](list)
        for instance, scrapes in self.scrapes.items():
            extra = (("instance", instance), ("job", "ray"))
            for (_, before), (time, scrape) in pairwise([(0, {}), *scrapes, (scrapes[-1][0] + 1, {})]):
                for labels in before.keys() - scrape.keys():
                    found[*labels, *extra].append((time, STALE))
                for labels, value in scrape.items():
                    found[*labels, *extra].append((time, value))
        return [(dict(labels), samples) for labels, samples in found.items()]

    def write_tables(self, directory: Path) -> None:
        """Write what a history server makes of the scrapes."""
        stored = [
            (BlockRow(f"{instance}/{block.first}", "", instance, "agent", block.first), block)
            for instance, scrapes in self.scrapes.items()
            for block in blocks(instance, scrapes)
        ]
        with closing(TablesWriter(directory, [row for row, _ in stored])) as writer:
            for row, block in stored:
                writer.add(row, read_block(block.encode()), [("job", "ray")])
            writer.finish()


def blocks(instance: str, scrapes: Sequence[tuple[int, Scrape]], size: int = 20) -> Iterator[OpenBlock]:
    """What a collector stores of the scrapes of an instance."""
    for start in range(0, len(scrapes), size):
        block = OpenBlock(instance)
        for time, scrape in scrapes[start : start + size]:
            block.add(time, (line(dict(labels), value) for labels, value in scrape.items()))
        yield block


def line(labels: Mapping[str, str], value: float) -> str:
    """A sample as an endpoint shows it."""
    labels = dict(labels)
    name = labels.pop("__name__")
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


Values = Callable[[str, int, random.Random], Iterator[float | None]]
"""So many values of a metric of this name; None where a scrape does not show it."""


def cluster(queries: Iterable[str], *, scrapes: int = 120, seed: int = 1, values: Values | None = None) -> Cluster:
    """A cluster with the metrics of these queries. Some series begin late, end early or have gaps; counters restart."""
    chance = random.Random(seed)
    values = values or _values
    metrics = _metrics(queries)
    by_instance: dict[str, list[tuple[int, Scrape]]] = {}
    for number, instance in enumerate(INSTANCES):
        times = [START + number * 7 + each * INTERVAL for each in range(scrapes)]
        by_instance[instance] = [(time, {}) for time in times]
        for name in sorted(metrics):
            for labels in _series_of(name, metrics[name], number, chance):
                for (_, scrape), value in zip(by_instance[instance], values(name, scrapes, chance), strict=True):
                    scrape.update(_samples_of(name, labels, value))
    return Cluster(by_instance)


def _series_of(
    name: str, labels: Mapping[str, list[str]], number: int, chance: random.Random
) -> Iterator[dict[str, str]]:
    seen = set[Labels]()
    for _ in range(3):
        found = {"__name__": name, "SessionName": "session_1", "ray_io_cluster": "demo"}
        for label, texts in sorted(labels.items()):
            choices = _FREE_WORDS.get(label, [*texts, f"{label}_1", f"{label}_2"])
            if label in _OF_A_PROCESS:
                found[label] = f"{label}_{number}"
            elif label not in _IDENTITY and chance.random() < 0.8:
                found[label] = chance.choice(choices)
        key = tuple(found.items())
        if key not in seen:
            seen.add(key)
            yield found


def _samples_of(name: str, labels: dict[str, str], value: float | None) -> Iterator[tuple[Labels, float]]:
    if value is None:
        return
    if not name.endswith("_bucket"):
        yield tuple(labels.items()), value
        return
    for share, bound in ((0.13, "0.1"), (0.41, "1.0"), (0.63, "5.0"), (0.9, "25.0"), (1.0, "+Inf")):
        yield (*labels.items(), ("le", bound)), float(int(value * 1000 * share))


def _values(name: str, count: int, chance: random.Random) -> Iterator[float | None]:
    """A counter or a gauge, with None where a scrape does not show it."""
    is_counter = re.search(r"_(total|sum|count|bucket)$", name) is not None
    value, first, scale = 0.0, chance.choice((0, 0, 0, count // 4)), chance.choice((1.0, 100.0, 1e9))
    last = chance.choice((count, count, count * 3 // 4))
    for number in range(count):
        if is_counter:
            value = 0.0 if chance.random() < 0.01 else value + chance.choice((0, 0, 1, 3, 10.5))
        else:
            value = chance.choice((0.0, scale * chance.random()))
        yield value if first <= number < last and chance.random() > 0.02 else None


def _metrics(queries: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """The labels of each metric that queries name, and the words to which they compare them."""
    found: dict[str, dict[str, list[str]]] = {}
    for query in queries:
        _collect(parse(query), frozenset(), found)
    return found


def _collect(node: Any, labels: frozenset[str], found: dict[str, dict[str, list[str]]]) -> None:
    if isinstance(node, parser.VectorSelector):
        for name in _names(node):
            known = found.setdefault(name, {})
            for label in labels:
                known.setdefault(label, [])
            for matcher in node.matchers.matchers:
                known.setdefault(matcher.name, []).extend(re.findall(r"[A-Za-z0-9_]+", matcher.value))
        return
    if isinstance(node, parser.AggregateExpr):
        labels |= set(node.modifier.labels if node.modifier else ())
    if isinstance(node, parser.BinaryExpr) and node.modifier and node.modifier.matching:
        labels |= set(node.modifier.matching.labels)
    for attribute in ("expr", "lhs", "rhs", "vector_selector"):
        if getattr(node, attribute, None) is not None:
            _collect(getattr(node, attribute), labels, found)
    for argument in getattr(node, "args", ()):
        _collect(argument, labels, found)


def _names(node: parser.VectorSelector) -> list[str]:
    if node.name:
        return [node.name]
    pattern = next(matcher.value for matcher in node.matchers.matchers if matcher.name == "__name__")
    choices = re.search(r"\((.*)\)", pattern)
    return [pattern.replace(choices[0], each) for each in choices[1].split("|")] if choices else [pattern]
