"""The bounded part of fuzzing: all seeds, and some mutations of them, the same in every run."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.mutations import mutated
from tests.fuzz.target import MAX_INPUT, Target
from tests.fuzz.targets import TARGETS

each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
LINEAR = [target for target in TARGETS.values() if target.is_linear]


@each_target
def test_seeds_hold(target: Target) -> None:
    assert target.seeds
    for seed in target.seeds:
        target.check(seed)


@each_target
def test_mutations_hold(target: Target) -> None:
    random = Random(target.name)
    for _ in range(target.examples):
        data = mutated(random.choice(target.seeds), target.seeds, target.tokens, random, MAX_INPUT)
        try:
            target.check(data)
        except Exception as error:
            raise AssertionError(f"{target.name}: {data!r}") from error


@pytest.mark.parametrize("target", LINEAR, ids=[target.name for target in LINEAR])
def test_time_grows_with_the_input(target: Target) -> None:
    random = Random(target.name)
    for _ in range(5):
        target.grow(mutated(random.choice(target.seeds), target.seeds, target.tokens, random, MAX_INPUT))
