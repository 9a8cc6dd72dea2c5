"""The Grafana dashboards that the heads of some versions of Ray write, as captured."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

CAPTURED = Path(__file__).parents[1] / "data" / "dashboards.tar.xz"
VERSIONS = ("2.49", "2.52", "2.55", "2.57", "2.60")

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
_VALUES = {"__interval": "30s", "__rate_interval": "1m", "__range": "1800s", "interval": "5m", "window": "1m"}


@cache
def dashboards(version: str) -> dict[str, dict[str, Any]]:
    """The dashboards of a version by file name."""
    with tarfile.open(CAPTURED) as archive:
        members = [member for member in archive if member.isfile() and Path(member.name).parts[0] == version]
        contents = {Path(member.name).name: archive.extractfile(member) for member in members}
        return {name: json.load(content) for name, content in contents.items() if content is not None}


def panels(found: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in found:
        yield panel
        yield from panels(panel.get("panels", []))


def expressions(version: str) -> list[str]:
    """Every different query of a version, with a value for each variable."""
    return expressions_of(dashboards(version).values())


def expressions_of(found: Iterable[dict[str, Any]]) -> list[str]:
    """Every different query of dashboards."""
    written = {
        target["expr"]
        for dashboard in found
        for panel in panels(dashboard["panels"])
        for target in panel.get("targets", [])
    }
    return sorted(_VARIABLE.sub(lambda found: _VALUES.get(found[1] or found[2], ".*"), each) for each in written)
