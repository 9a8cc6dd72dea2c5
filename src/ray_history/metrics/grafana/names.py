"""Names of series, by the legend of their query."""

from __future__ import annotations

import re

from ray_history.metrics.exposition import NAME_LABEL
from ray_history.metrics.promql.vector import Labels

_PLACE = re.compile(r"\{\{([^{}]*)\}\}")
_LONGEST = 300


def series_name(template: str, labels: Labels, query: str) -> str:
    """`{{label}}` stands for a label, and `{{a, b}}`, which Ray writes for two, for both."""
    if not template or template == "__auto":
        return _written(labels) or query[:_LONGEST]
    name = _PLACE.sub(lambda found: _values(found[1], labels), template)[:_LONGEST].strip()
    return name or _written(labels) or "Value"


def _values(names: str, labels: Labels) -> str:
    return ", ".join(value for name in names.split(",") if (value := labels.get(name.strip(), "")))


def _written(labels: Labels) -> str:
    others = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()) if name != NAME_LABEL)
    return (labels.get(NAME_LABEL, "") + (f"{{{others}}}" if others else ""))[:_LONGEST]
