"""JSON that somebody else wrote: what is of another type than expected counts as absent."""

from __future__ import annotations

import math
from typing import Any


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects of a list that somebody else wrote."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_of(value: Any) -> dict[str, Any]:
    """An object that somebody else wrote; empty if it is none."""
    return value if isinstance(value, dict) else {}


def amounts_of(value: Any) -> dict[str, float]:
    """Amounts of resources that somebody else wrote; what is no amount is left out."""
    return {name: amount for name, told in object_of(value).items() if (amount := _amount(told)) is not None}


def _amount(told: Any) -> float | None:
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        return None
    try:
        amount = float(told)
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) else None
