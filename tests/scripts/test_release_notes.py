"""The changelog's section of a version becomes the notes of its release."""

from __future__ import annotations

import re

import pytest

from scripts.release_notes import main, package_version, section

CHANGELOG = """# Changelog

## Unreleased

Next.

## 0.2.0 - 2026-12-01

### Added

- A route.

## 0.1.0

- The first.
"""


def test_the_section_of_a_version_ends_at_the_next_heading() -> None:
    assert section(CHANGELOG, "0.2.0") == "### Added\n\n- A route.\n"
    assert section(CHANGELOG, "0.1.0") == "- The first.\n"


def test_a_version_without_a_section_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no section '0\.3\.0'"):
        section(CHANGELOG, "0.3.0")


def test_a_tag_of_another_version_is_refused() -> None:
    with pytest.raises(SystemExit, match="the package is " + re.escape(package_version())):
        main(["v99.0.0"])
