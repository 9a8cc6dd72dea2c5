"""Access to JSON from other programs: a value of an unexpected type counts as absent."""

from __future__ import annotations

import math
from typing import Any


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_of(value: Any) -> dict[str, Any]:
    """The value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def amounts_of(value: Any) -> dict[str, float]:
    """Amounts of resources; values that are not numbers are omitted."""
    return {name: amount for name, value in object_of(value).items() if (amount := _amount(value)) is not None}


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) else None
