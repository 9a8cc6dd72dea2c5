"""Checks of accessibility for the tests: axe-core, installed by npm, run inside the pages of the browser.

Installed once with `python -m tests.support.axe install`, in the versions of
`axe_npm/package-lock.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .chromium import Page
from .npm import install

_GRAVE = ("serious", "critical")


class Axe:
    """axe-core as a script that is added to pages."""

    def __init__(self) -> None:
        self._script = program().read_text()

    def grave_findings(self, page: Page, inside: str = "html") -> list[str]:
        """Serious and critical violations in a part of the page: the rule, the element and the reason."""
        page.value(self._script + "; 1")
        found: list[dict[str, Any]] = page.value(f"axe.run({json.dumps(inside)}).then(result => result.violations)")
        return [
            f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}"
            for rule in found
            if rule["impact"] in _GRAVE
            for node in rule["nodes"]
        ]


def program() -> Path:
    return install("axe") / "axe-core" / "axe.min.js"


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.support.axe install")
    sys.stdout.write(f"{program()}\n")
