"""Waiting for a condition."""

from __future__ import annotations

import pytest

from . import waiting
from .waiting import until


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", None, "found", "never read"])
    assert until(lambda: next(values), pause=0) == "found"
    assert next(values) == "never read"


def test_a_condition_that_never_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LIMIT", 0)
    with pytest.raises(AssertionError, match="not within 0 s: the cluster is dead"):
        until(lambda: False, "the cluster is dead")


def test_an_error_of_the_condition_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 / 0)
