"""What a process and its descendants take up, looked at while something runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar


class Use(NamedTuple):
    """What processes take up."""

    rss: int = 0
    """Bytes of memory, with what they share counted in each of them."""
    pss: int = 0
    """Bytes of memory, with what they share counted once."""
    threads: int = 0
    descriptors: int = 0


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                found += map(int, tasks.read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of the process since its start, background work included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def use_of(pids: Iterable[int]) -> Use:
    """The sum over processes; those that have ended take up nothing."""
    uses = [Use()]
    for pid in pids:
        with suppress(OSError):
            uses.append(_use(Path(f"/proc/{pid}")))
    return Use(*map(sum, zip(*uses, strict=True)))


def _use(process: Path) -> Use:
    sizes = dict.fromkeys(("Rss", "Pss"), 0)
    for line in (process / "smaps_rollup").read_text().splitlines():
        name, _, size = line.partition(":")
        if name in sizes:
            sizes[name] = int(size.split()[0]) << 10
    threads, descriptors = (sum(1 for _ in (process / kind).iterdir()) for kind in ("task", "fd"))
    return Use(sizes["Rss"], sizes["Pss"], threads, descriptors)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line through points, by least squares; 0 through fewer than two."""
    count = len(points)
    middle_x, middle_y = (sum(values) / max(count, 1) for values in zip(*points, strict=True)) if points else (0, 0)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


_Look = TypeVar("_Look")


class Watch(Generic[_Look]):
    """Looks at something at intervals, in a thread, until the block ends."""

    def __init__(self, look: Callable[[], _Look], interval: float) -> None:
        self._look, self._interval = look, interval
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.seen: list[tuple[float, _Look]] = []
        """With the time in seconds since the beginning."""

    def __enter__(self) -> Watch[_Look]:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(self._interval):
            self.seen.append((time.monotonic() - self._began, self._look()))
