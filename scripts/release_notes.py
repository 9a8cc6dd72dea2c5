"""Prints the changelog's section of a version: `python -m scripts.release_notes v0.1.0`.

Fails if the version is not the package's, or if the changelog has no section for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def section(changelog: str, version: str) -> str:
    """The text below the heading of a version, up to the next one."""
    heading = rf"^## {re.escape(version)}(?: [^\n]*)?\n"
    found = re.search(heading + r"(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if not found or not found[1].strip():
        raise SystemExit(f"CHANGELOG.md has no section {version!r}: rename 'Unreleased' before you tag")
    return found[1].strip() + "\n"


def package_version() -> str:
    """The version in the source."""
    return re.findall(r'^__version__ = "(.+)"', (ROOT / "src/ray_history/__init__.py").read_text(), re.MULTILINE)[0]


def main(arguments: Sequence[str]) -> int:
    version = arguments[0].removeprefix("v") if arguments else package_version()
    if version != package_version():
        raise SystemExit(f"the tag is for version {version}, but the package is {package_version()}")
    print(section((ROOT / "CHANGELOG.md").read_text(), version), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
