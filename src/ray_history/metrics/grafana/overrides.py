"""How single series are drawn, by the overrides of a panel."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .dashboard import Override

Matching = Callable[[str, Sequence[str]], Sequence[bool]]
"""Which texts contain a match of a regular expression; raises `ValueError` if it is none.

It must take linear time: the expression comes from a dashboard that anybody may have written.
"""

_WORDS = re.compile(r"[\w :,/+%-]+(\|[\w :,/+%-]+)*")
"""Alternatives without any other special character."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one series is drawn."""

    is_hidden: bool = False
    """Until it is clicked in the legend."""
    is_dashed: bool = False
    color: str | None = None
    is_stacked: bool = True
    """If its panel is."""
    fill: float | None = None


def styles(overrides: Sequence[Override], names: Sequence[str], matching: Matching) -> list[Style]:
    """The style of each series."""
    found = [Style()] * len(names)
    for override in overrides:
        for number, is_meant in enumerate(_meant(override.alias, names, matching)):
            if is_meant:
                found[number] = _overridden(found[number], override)
    return found


def _meant(alias: str, names: Sequence[str], matching: Matching) -> Sequence[bool]:
    if len(alias) < 2 or not (alias.startswith("/") and alias.rstrip("i").endswith("/")):
        return [name == alias for name in names]
    pattern = alias[1 : alias.rindex("/")]
    if alias.endswith("i"):
        return matching(f"(?i){pattern}", names)
    if _WORDS.fullmatch(pattern):
        words = pattern.split("|")
        return [any(word in name for word in words) for name in names]
    return matching(pattern, names)


def _overridden(style: Style, override: Override) -> Style:
    return replace(
        style,
        is_hidden=style.is_hidden if override.hidden_series is None else override.hidden_series,
        is_dashed=style.is_dashed if override.dashes is None else override.dashes,
        color=style.color if override.color is None else override.color,
        is_stacked=style.is_stacked if override.stack is None else override.stack is not False,
        fill=style.fill if override.fill is None else override.fill,
    )
