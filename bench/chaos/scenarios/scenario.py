"""What a scenario is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.chaos.life import Life

SECONDS = 6.0
"""About the length of a scenario."""


def always() -> str:
    return ""


@dataclass(frozen=True)
class Scenario:
    """A way of failing."""

    summary: str
    run: Callable[[Life], None]
    prepare: Callable[[Life], None] = lambda _: None
    """Called before the collector starts."""
    flags: tuple[str, ...] = ()
    """Settings of its collector."""
    share: float = 0.3
    """Part of the requests to the store that fail."""
    pause: float = 0.02
    """Seconds between batches, and between writes to log files."""
    obstacle: Callable[[], str] = always
    """Why it cannot run on this machine; empty if it can."""
    can_end: bool = True
    """Whether the collector can store everything within its grace period."""
    once: bool = False
    """Whether it is too slow to be repeated in a run."""


def steady(life: Life) -> None:
    life.wait(SECONDS, SECONDS)
