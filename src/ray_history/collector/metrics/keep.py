"""Which metrics are stored: all, those of Ray's dashboards, or those whose name a regular expression matches."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

ALL, PANELS = "all", "panels"


def chosen(keep: str) -> Callable[[str], bool]:
    """Decides by the name of a metric."""
    if keep == ALL:
        return lambda _: True
    if keep == PANELS:
        return panel_names().__contains__
    pattern = re.compile(keep)
    return lambda name: pattern.fullmatch(name) is not None


@cache
def panel_names() -> frozenset[str]:
    """The metrics that the panels of Ray 2.49 to 2.60 show."""
    return frozenset(files(__package__).joinpath("panel_names.txt").read_text().split())
