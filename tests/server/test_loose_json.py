"""JSON that other programs wrote: a value of an unexpected type counts as absent."""

from __future__ import annotations

from typing import Any

import pytest

from ray_history.server.loose_json import amounts_of, object_of, objects_of


@pytest.mark.parametrize("value", [None, 1, "text", {"a": 1}, True])
def test_other_values_have_no_objects(value: Any) -> None:
    assert objects_of(value) == []


def test_only_objects_of_a_list_are_returned() -> None:
    assert objects_of([{"a": 1}, None, [], "x", {}]) == [{"a": 1}, {}]


@pytest.mark.parametrize("value", [None, 1, "text", [], True])
def test_other_values_are_empty_objects(value: Any) -> None:
    assert object_of(value) == {}
    assert amounts_of(value) == {}


@pytest.mark.parametrize(
    ("written", "amount"),
    [(1, 1.0), (0.5, 0.5), ("2", 2.0), ("1e3", 1000.0), (0, 0.0), (-1, -1.0)],
)
def test_an_amount_may_be_a_number_or_its_text(written: Any, amount: float) -> None:
    assert amounts_of({"CPU": written}) == {"CPU": amount}


@pytest.mark.parametrize("written", [None, True, "many", "", [1], {}, "nan", "inf", float("inf"), 10**400])
def test_amounts_that_are_not_finite_are_omitted(written: Any) -> None:
    assert amounts_of({"CPU": 1, "GPU": written}) == {"CPU": 1.0}
