"""What processes hold, and whether it grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

WARM_UP = 4
"""Samples of a process before what it holds counts: until then it opens sessions and fills caches."""


class Usage(NamedTuple):
    """What a process holds."""

    pid: int
    memory: int
    """MiB."""
    descriptors: int
    threads: int


MOST_GROWTH = Usage(0, memory=150, descriptors=20, threads=30)
"""More than this, from the end of the warm-up to the last sample, is a leak."""


def usage(pid: int) -> Usage:
    place = Path(f"/proc/{pid}")
    memory = int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return Usage(pid, memory, len(list((place / "fd").iterdir())), len(list((place / "task").iterdir())))


def leaks(samples: Sequence[Usage]) -> list[str]:
    """Growth of each process, which were started one after the other."""
    found = []
    for pid, group in groupby(samples, key=lambda sample: sample.pid):
        warm = list(group)[WARM_UP:]
        for name, most in MOST_GROWTH._asdict().items():
            if len(warm) > 1 and name != "pid" and getattr(warm[-1], name) - getattr(warm[0], name) > most:
                values = [getattr(sample, name) for sample in warm]
                found.append(f"{name} of process {pid} grow: {values}")
    return found
