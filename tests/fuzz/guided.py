"""One target under atheris, in a process of its own: `python -m tests.fuzz.guided NAME [options of libFuzzer]`."""

from __future__ import annotations

import logging
import sys
from random import Random

import atheris

from tests.fuzz.mutations import mutated

_OWN_MUTATIONS = 0.5
"""Of all inputs; the others are made by libFuzzer, which uses what the code compared the input with."""


def main() -> None:
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["ray_history"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS  # imports the modules under test, which are changed while they load
    target = TARGETS[name]
    logging.disable()

    def custom_mutator(data: bytes, limit: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < _OWN_MUTATIONS:
            return mutated(data, target.seeds, target.tokens, random, limit)
        return bytes(atheris.Mutate(data, limit))

    atheris.Setup([sys.argv[0], *options], target.run, custom_mutator=custom_mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
