"""What a fuzzing target is: a function that is called with any bytes, and raises if something does not hold."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from zlib import crc32

from tests.fuzz.growth import assert_linear
from tests.fuzz.mutations import pumped

CORPUS = Path(__file__).parent / "corpus"
MAX_INPUT = 4096
"""Bytes. Longer inputs rarely reach more code, and each costs more."""
_PUMPED = 64
"""One of so many inputs is also repeated, to see how the time grows."""


@dataclass(frozen=True)
class Target:
    """A function under fuzzing."""

    name: str
    check: Callable[[bytes], None]
    """Raises AssertionError if something does not hold, and must raise nothing else."""
    make_seeds: Callable[[], Iterable[bytes]]
    tokens: Sequence[bytes]
    """Words of the format, which chance would not find."""
    is_linear: bool
    examples: int
    """Inputs that the tests make."""

    @property
    def corpus(self) -> Path:
        return CORPUS / f"{self.name}.txt"

    @cached_property
    def seeds(self) -> list[bytes]:
        """Valid inputs, and the corpus."""
        return [seed[:MAX_INPUT] for seed in self.make_seeds()] + read_corpus(self.corpus)

    def run(self, data: bytes) -> None:
        self.check(data)
        chance = crc32(data)
        if self.is_linear and chance % _PUMPED == 0:
            self.grow(data)

    def grow(self, data: bytes) -> None:
        """Check that the time for the input with a part of it repeated grows with its length."""
        before, part, after = pumped(data, Random(crc32(data)))
        assert_linear(self.check, lambda size: before + part * (size // len(part)) + after)


TARGETS: dict[str, Target] = {}


def target(
    name: str,
    seeds: Callable[[], Iterable[bytes]],
    *,
    tokens: Sequence[bytes] = (),
    is_linear: bool = True,
    examples: int = 300,
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Register a function as a target; its docstring says what must hold."""

    def register(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
        assert name not in TARGETS, name
        assert check.__doc__, f"{name} does not say what must hold"
        TARGETS[name] = Target(name, check, seeds, tokens, is_linear, examples)
        return check

    return register


def read_corpus(path: Path) -> list[bytes]:
    """The inputs in a file: one to a line, as Python writes bytes."""
    if not path.exists():
        return []
    return [ast.literal_eval(line) for line in path.read_text().splitlines() if line and not line.startswith("#")]


def write_corpus(path: Path, inputs: Iterable[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{data!r}\n" for data in inputs))
