"""Progress output: one line per step with its duration; on a terminal the line is updated while the step runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click


class Steps:
    """Numbered steps; their total is known in advance."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self.number += 1
        step = Step(f"[{self.number}/{self.total}] {title}")
        step.update("")
        try:
            yield step
        except BaseException:
            step.end("✗")
            raise
        step.end("✓")


class Step:
    """A running step."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.began = time.monotonic()
        self.is_terminal = sys.stdout.isatty()

    def update(self, detail: str) -> None:
        """Show a detail after the title; it replaces the previous one."""
        self.detail = detail
        if self.is_terminal:
            click.echo(f"\r\033[K  {self._line()}", nl=False)

    def end(self, mark: str) -> None:
        start = "\r\033[K" if self.is_terminal else ""
        click.echo(f"{start}{mark} {self._line()}")

    def _line(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.title}{detail} ({time.monotonic() - self.began:.0f} s)"
