"""The values of variables, put into queries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .dashboard import Dashboard, Variable
from .times import USUAL_INTERVAL, TimeRange

_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?:\.\w+)?(?::\w+)?\}|\[\[(\w+)(?::\w+)?\]\]")
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_ALL = frozenset({"", "$__all", "All", "undefined"})

Chosen = Mapping[str, Sequence[str]]
"""Values by the name of the variable."""


def chosen_values(given: Sequence[str]) -> tuple[str, ...]:
    """The values that an address gives to a variable; empty for all of them, or for its default."""
    return tuple(dict.fromkeys(value for value in given if value not in _ALL))


def texts(
    dashboard: Dashboard, chosen: Chosen, shown: TimeRange, step_ms: int, interval: int = USUAL_INTERVAL
) -> dict[str, str]:
    """What stands in queries for each variable. `interval` is that of scrapes: rates need a few of them."""
    seconds = max(1, (shown.end - shown.start) // 1000)
    return {
        **{
            variable.name: _text(variable, chosen_values(chosen.get(variable.name, ())))
            for variable in dashboard.variables
        },
        "__interval": f"{step_ms // 1000}s",
        "__interval_ms": str(step_ms),
        "__rate_interval": f"{max(step_ms + interval, 4 * interval) // 1000}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
        "__range_ms": str(seconds * 1000),
    }


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """The text with the values of its variables; unknown ones stay, so that the query names them in its error."""
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2] or found[3], found[0]), text)


def _text(variable: Variable, chosen: Sequence[str]) -> str:
    if not chosen:
        if variable.has_all:
            return variable.all_value or _either(variable.options) if variable.options else variable.all_value or ".*"
        return variable.default
    if variable.has_all or variable.is_multiple:
        return _either(chosen)
    return chosen[0]


def _either(values: Sequence[str]) -> str:
    """A regular expression inside of a string of PromQL."""
    escaped = [_quoted(_SPECIAL.sub(lambda found: "\\" + found[0], value)) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
