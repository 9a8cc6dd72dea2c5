"""A standby object is taken once, the next one is created meanwhile, and the last one is discarded."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from ray_history.server.sessions.standby import Standby


def test_each_object_is_taken_once_and_the_last_is_discarded() -> None:
    left: list[int] = []
    spare = Standby(count().__next__, left.append)
    assert [spare.take() for _ in range(3)] == [0, 1, 2]
    spare.close()
    assert left == [3]


def test_the_object_is_created_before_it_is_taken() -> None:
    made = threading.Event()
    spare = Standby(made.set, lambda _: None)
    assert made.wait(10)
    spare.close()


def test_after_a_failure_another_object_is_created() -> None:
    numbers = count()

    def make() -> int:
        number = next(numbers)
        if number % 2 == 0:
            raise OSError("no memory")
        return number

    left: list[int] = []
    spare = Standby(make, left.append)
    with pytest.raises(OSError, match="no memory"):
        spare.take()
    assert spare.take() == 1
    spare.close()
    assert left == []
