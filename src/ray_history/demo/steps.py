"""Tells a person what happens: one line per step, with its time; on a terminal the line moves while the step runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click


class Steps:
    """Numbered steps of a known total."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self.number += 1
        step = Step(f"[{self.number}/{self.total}] {title}")
        step.tell("")
        try:
            yield step
        except BaseException:
            step.end("✗")
            raise
        step.end("✓")


class Step:
    """One step that is under way."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.began = time.monotonic()
        self.moves = sys.stdout.isatty()

    def tell(self, detail: str) -> None:
        """Shown behind the title; on a terminal each telling replaces the last."""
        self.detail = detail
        if self.moves:
            click.echo(f"\r\033[K  {self._line()}", nl=False)

    def end(self, mark: str) -> None:
        start = "\r\033[K" if self.moves else ""
        click.echo(f"{start}{mark} {self._line()}")

    def _line(self) -> str:
        told = f": {self.detail}" if self.detail else ""
        return f"{self.title}{told} ({time.monotonic() - self.began:.0f} s)"
