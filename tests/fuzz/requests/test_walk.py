"""The bounded part of fuzzing requests: a few walks, the same in every run."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.requests.place import place
from tests.fuzz.requests.walk import walk


def test_walks_hold(tmp_path: Path) -> None:
    with place(tmp_path) as found:
        assert walk(found, 6) > 50
