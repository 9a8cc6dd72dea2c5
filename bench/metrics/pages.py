"""Pages of a Prometheus endpoint whose values change like those of a real node: most do not, some count, few wander."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import repeat

from tests.metrics.generated import line

_COUNTERS = re.compile(r"_(total|sum|count|bucket)$")
_COMPONENTS = ("raylet", "gcs_server", "agent", "ray::IDLE", "ray::train", "ray::load_batch", "ray::Actor.step")
_METRICS = (
    "ray_component_rss_bytes",
    "ray_component_cpu_percentage",
    "ray_component_num_fds",
    "ray_component_uss_bytes",
)


def steady_values(name: str, count: int, chance: random.Random) -> Iterator[float | None]:
    """Values of a metric of this name, as a real node would show them. Of Ray's series, two thirds are constant."""
    if chance.random() < 0.66:
        constant = float(chance.choice((0, 0, 1, 4, chance.randrange(1 << 34) // 4096 * 4096)))
        yield from repeat(constant, count)
    elif _COUNTERS.search(name):
        value = 0.0
        for _ in range(count):
            value += chance.choice((0, 0, 0, 1, 2, 17))
            yield value
    else:
        value = chance.randrange(1 << 30) // 4096 * 4096.0
        for _ in range(count):
            value += chance.choice((0, 0, 0, 0, 4096, -4096, 1 << 20))
            yield max(value, 0.0)


class Page:
    """The page of an endpoint with this many series, scrape after scrape."""

    def __init__(self, series: int, seed: int = 1) -> None:
        chance = random.Random(seed)
        self._labels = [_labels(number) for number in range(series)]
        self._values = [steady_values(each["__name__"], 1 << 30, chance) for each in self._labels]

    def next(self) -> bytes:
        values = (next(each) or 0.0 for each in self._values)
        shown = (line(labels, value) for labels, value in zip(self._labels, values, strict=True))
        return "\n".join(shown).encode() + b"\n"


def _labels(number: int) -> dict[str, str]:
    return {
        "__name__": _METRICS[number % len(_METRICS)] + ("_total" if number % 5 == 0 else ""),
        "Component": _COMPONENTS[number // 4 % len(_COMPONENTS)],
        "NodeAddress": "10.0.12.7",
        "SessionName": "session_2026-11-18_22-16-13_033386_22923",
        "Version": "2.60.0",
        "WorkerId": f"{number // 28 * 0x9E3779B97F4A7C15 % (1 << 112):028x}",
        "otel_scope_name": "ray_worker",
        "otel_scope_version": "",
        "pid": str(20_000 + number // 28),
    }
